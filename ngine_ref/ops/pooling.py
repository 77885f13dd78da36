"""AveragePool and MaxPool: means and maxima over sliding windows.

A window is a box, so both go along one axis after the other, and an axis shrinks from the input's size to the number
of windows before the next one is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.dtypes import DType, wide
from ngine_ref.numerics.scratch import Request, bytes_needed, carve
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.numerics.sliding_windows import Windows, place_windows
from ngine_ref.registry import Array, Call, Compute, Kernel, TensorSpec, Workspace, operator

BLOCK = 1 << 17
"""Elements of input that are pooled at a time, so that what lies between two axes stays in the cache."""
_INDEX = np.dtype(np.int64)


@operator("AveragePool")
def bind_average_pool(call: Call) -> Kernel:
    """AveragePool-1, -7, -10, -11, -19, -22: the mean of each window of each channel.

    Input X `[N, C, *spatial]` with one spatial axis or more, of float16, bfloat16 (both summed up in float32), float32
    or float64; output Y `[N, C, *windows]`. Attributes `kernel_shape`, `strides`, `pads`, `auto_pad`, `ceil_mode`,
    `dilations`. A mean is over the cells of X, with `count_include_pad` also over the zeros of the padding, and never
    over what lies beyond the padding, where `ceil_mode` lets a window reach; over nothing it is 0.

    Raises:
        ShapeError: the kernel or an attribute does not fit the input's rank or size.
    """
    x, windows = _place(call)
    output = TensorSpec((*x.shape[:2], *windows.output), x.dtype)
    counts = _counts(x.shape[2:], windows, include_padding=bool(int_attribute(call, "count_include_pad", 0)))
    divisor = np.maximum(counts, 1).astype(wide(x.dtype))  # a window that sees no cell has the mean 0
    channels = _channels_at_a_time(x)
    requests = partial(_shrinking, x, windows, dtype=wide(x.dtype))

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        images = present(inputs, 0)
        for n in range(x.shape[0]):
            for start in range(0, x.shape[1], channels):
                sums = images[n, start : start + channels]
                for axis, target in enumerate(carve(workspace.scratch, *requests(len(sums)))):
                    target[...] = 0
                    _over_windows(np.add, sums, target, axis, windows)
                    sums = target
                np.divide(sums, divisor, out=outputs[0][n, start : start + channels], casting="unsafe")

    return Kernel((output,), compute, scratch_bytes=bytes_needed(*requests(channels)), strided=True)


@operator("MaxPool")
def bind_max_pool(call: Call) -> Kernel:
    """MaxPool-1, -8, -10, -11, -12, -22: the largest cell of each window of each channel.

    Input X `[N, C, *spatial]` with one spatial axis or more, of float16, bfloat16, float32, float64, int8 or uint8;
    output Y `[N, C, *windows]`. Attributes `kernel_shape`, `strides`, `pads`, `auto_pad`, `ceil_mode`, `dilations`.
    Padding is never the largest: over nothing the maximum is -inf, or the lowest integer. NaN is larger than anything.

    Output Indices (int64, if asked for) has the place of each maximum in X as one long row, of equals the first;
    `storage_order=1` counts the cells of a channel from its first axis on, the fastest.

    Raises:
        ShapeError: the kernel or an attribute does not fit the input's rank or size.
        OperatorError: `storage_order` is neither 0 nor 1.
    """
    x, windows = _place(call)
    order = int_attribute(call, "storage_order", 0)
    if order not in (0, 1):
        raise OperatorError(f"MaxPool: storage_order is {order}, it must be 0 or 1.")
    shape = (*x.shape[:2], *windows.output)
    outputs = (TensorSpec(shape, x.dtype), TensorSpec(shape, _INDEX))[: call.output_count]
    if call.output_count == 2:
        return Kernel(outputs, _max_pool_with_indices(x, windows, column_major=order == 1), strided=True)
    channels, lowest = _channels_at_a_time(x), _lowest(x.dtype)
    requests = partial(_shrinking, x, windows, dtype=x.dtype)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        images = present(inputs, 0)
        for n in range(x.shape[0]):
            for start in range(0, x.shape[1], channels):
                found = images[n, start : start + channels]
                arrays = carve(workspace.scratch, *requests(len(found)))
                arrays[-1] = outputs[0][n, start : start + channels]
                for axis, target in enumerate(arrays):
                    target[...] = lowest
                    _over_windows(np.maximum, found, target, axis, windows)
                    found = target

    return Kernel(outputs, compute, scratch_bytes=bytes_needed(*requests(channels)), strided=True)


def _place(call: Call) -> tuple[TensorSpec, Windows]:
    """Check a call of a pooling operator; its input and where its windows lie."""
    check_signature(call)
    x = operand(call, 0)
    kernel = tuple(call.attributes["kernel_shape"])
    if len(x.shape) < 3 or len(kernel) != len(x.shape) - 2 or min(kernel) < 1:
        raise ShapeError(
            f"{call.op_type} cannot move a kernel of shape {list(kernel)} over an input of shape {x.shape}."
        )
    ceil_mode = bool(int_attribute(call, "ceil_mode", 0))
    return x, place_windows(call, x.shape[2:], kernel, ceil_mode=ceil_mode, same_may_crop=True)


def _channels_at_a_time(x: TensorSpec) -> int:
    return max(1, min(x.shape[1], BLOCK // max(1, math.prod(x.shape[2:]))))


def _shrinking(x: TensorSpec, windows: Windows, channels: int, dtype: DType) -> list[Request]:
    """What some channels are after each axis, which shrinks from the input's size to the number of windows."""
    shapes = [(*windows.output[: axis + 1], *x.shape[3 + axis :]) for axis in range(len(windows.kernel))]
    return [((channels, *shape), dtype) for shape in shapes]


def _over_windows(combine: np.ufunc, source: Array, target: Array, axis: int, windows: Windows) -> None:
    """Combine what the windows see along one spatial axis with what is in the target; axis 0 are the channels."""
    source, target = np.moveaxis(source, axis + 1, 0), np.moveaxis(target, axis + 1, 0)
    for places, cells in windows.taps(axis, len(source)):
        combine(target[places], source[cells], out=target[places])


def _max_pool_with_indices(x: TensorSpec, windows: Windows, *, column_major: bool) -> Compute:
    """The maxima and where they are, for all channels at once."""
    spatial = x.shape[2:]
    cells = np.arange(math.prod(spatial), dtype=_INDEX).reshape(spatial, order="F" if column_major else "C")
    channels = np.arange(math.prod(x.shape[:2]), dtype=_INDEX) * math.prod(spatial)
    numbers = channels.reshape(*x.shape[:2], *(1 for _ in spatial)) + cells

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        found, where = present(inputs, 0), numbers
        # From the last axis to the first: of equals, the one of the first row wins, and in it that of the first column.
        for axis in reversed(range(len(spatial))):
            shape = (*found.shape[: axis + 2], windows.output[axis], *found.shape[axis + 3 :])
            best, at = np.full(shape, _lowest(x.dtype), x.dtype), np.zeros(shape, _INDEX)
            _larger_over_windows((found, where), (best, at), axis, windows)
            found, where = best, at
        outputs[0][...], outputs[1][...] = found, where

    return compute


def _larger_over_windows(source: tuple[Array, Array], target: tuple[Array, Array], axis: int, windows: Windows) -> None:
    (values, numbers), (best, at) = ([np.moveaxis(array, axis + 2, 0) for array in pair] for pair in (source, target))
    seen = np.zeros(best.shape, np.bool_)
    for places, cells in windows.taps(axis, len(values)):
        new = values[cells]
        larger = ~seen[places] | (new > best[places]) | (np.isnan(new) & ~np.isnan(best[places]))
        np.copyto(best[places], new, where=larger)
        np.copyto(at[places], numbers[cells], where=larger)
        seen[places] = True


def _lowest(dtype: DType) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _counts(spatial: Sequence[int], windows: Windows, *, include_padding: bool) -> Array:
    """How many cells the mean of each window is over, `[*windows]`."""
    per_axis = []
    for axis, size in enumerate(spatial):
        low = -windows.pads_begin[axis] if include_padding else 0
        high = size + windows.pads_end[axis] if include_padding else size
        starts = np.arange(windows.output[axis]) * windows.strides[axis] - windows.pads_begin[axis]
        # Tap k is at start + k * dilation: the taps before `high` without those before `low`.
        below = (np.clip(-((starts - end) // windows.dilations[axis]), 0, windows.kernel[axis]) for end in (high, low))
        per_axis.append(next(below) - next(below))
    return reduce(np.multiply.outer, per_axis)
