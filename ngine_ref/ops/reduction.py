"""Means over axes, and maxima over positions."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ngine_ref.errors import ShapeError
from ngine_ref.numerics.axes import known_integers, normalize_axes
from ngine_ref.numerics.dtypes import is_floating, is_narrow_float
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.numerics.views import view_kernel
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, operator


@operator("ReduceMean", since=18, shape_inputs=(1,))
def bind_reduce_mean(call: Call) -> Kernel:
    """ReduceMean-18: the mean over the axes that the optional input `axes` lists.

    Data of any shape; float16, bfloat16 (both summed in float32), float32, float64, or an integer of 32 or 64 bits
    (summed in 64 bits, the mean rounded towards zero). Absent or empty axes mean all of them, or none with
    `noop_with_empty_axes=1`. With `keepdims=1` (the default) the axes stay, with size 1. The mean of nothing is NaN
    (0 for integers).

    Raises:
        ShapeError: a listed axis is not there, or listed twice.
        OperatorError: the content of `axes` is not known.
    """
    check_signature(call)
    axes = known_integers(call, 1, "axes")
    x = operand(call, 0)
    if not axes and int_attribute(call, "noop_with_empty_axes", 0):
        return view_kernel(x, x.shape)
    return _mean_kernel(call, axes or range(len(x.shape)), keep=bool(int_attribute(call, "keepdims", 1)))


@operator("ReduceMean", since=1)
def bind_reduce_mean_by_attribute(call: Call) -> Kernel:
    """ReduceMean-1, -11, -13: as ReduceMean-18, with the attribute `axes`; absent or empty means all of them."""
    check_signature(call)
    axes = call.attributes.get("axes") or range(len(operand(call, 0).shape))
    return _mean_kernel(call, axes, keep=bool(int_attribute(call, "keepdims", 1)))


@operator("GlobalAveragePool")
def bind_global_average_pool(call: Call) -> Kernel:
    """GlobalAveragePool-1, -22: the mean of each channel over all of its positions.

    Input [N, C, D1, ..., Dn], of float16, bfloat16 (both summed in float32), float32 or float64; output
    [N, C, 1, ..., 1].

    Raises:
        ShapeError: the input has no channel axis.
    """
    check_signature(call)
    rank = len(operand(call, 0).shape)
    if rank < 2:
        raise ShapeError(f"GlobalAveragePool needs [N, C, D1, ..., Dn], got the shape {operand(call, 0).shape}.")
    return _mean_kernel(call, range(2, rank), keep=True)


@operator("GlobalMaxPool")
def bind_global_max_pool(call: Call) -> Kernel:
    """GlobalMaxPool-1, -22: the maximum of each channel over all of its positions.

    Input [N, C, D1, ..., Dn] of float16, bfloat16, float32 or float64; output [N, C, 1, ..., 1]. NaN is the maximum of
    what has a NaN, and minus infinity that of nothing. (onnx's own implementation is for images alone.)

    Raises:
        ShapeError: the input has no channel axis.
    """
    check_signature(call)
    x = operand(call, 0)
    if len(x.shape) < 2:
        raise ShapeError(f"GlobalMaxPool needs [N, C, D1, ..., Dn], got the shape {x.shape}.")
    axes = tuple(range(2, len(x.shape)))

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        np.maximum.reduce(present(inputs, 0), axis=axes, keepdims=True, initial=-np.inf, out=outputs[0])

    return Kernel((TensorSpec((*x.shape[:2], *(1 for _ in axes)), x.dtype),), compute, strided=True)


def _mean_kernel(call: Call, listed: Iterable[int], *, keep: bool) -> Kernel:
    x = operand(call, 0)
    axes = normalize_axes(call.op_type, listed, len(x.shape))
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    shape = kept if keep else tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    count = math.prod(x.shape[axis] for axis in axes)
    mean = _float_mean if is_floating(x.dtype) else _integer_mean

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        mean(present(inputs, 0), axes, count, outputs[0].reshape(kept))

    return Kernel((TensorSpec(shape, x.dtype),), compute, strided=True)


def _float_mean(x: Array, axes: tuple[int, ...], count: int, out: Array) -> None:
    if is_narrow_float(x.dtype):
        total = np.add.reduce(x.astype(np.float32), axis=axes, keepdims=True)
        np.copyto(out, total / np.float32(count), casting="unsafe")
    else:
        np.add.reduce(x, axis=axes, keepdims=True, out=out)
        np.divide(out, count, out=out)


def _integer_mean(x: Array, axes: tuple[int, ...], count: int, out: Array) -> None:
    total = np.add.reduce(x, axis=axes, keepdims=True, dtype=np.uint64 if x.dtype.kind == "u" else np.int64)
    quotient = np.floor_divide(np.abs(total), total.dtype.type(count))
    np.copyto(out, quotient * np.sign(total), casting="unsafe")
