"""Activations of straight pieces: elementwise functions of one tensor, most often fused behind a convolution.

Each comes as a function `name_into(x, ..., out)` that may work in place on any block of an array, for fused operators
to call while the block is in the cache, and as an operator of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ngine_ref.errors import ShapeError
from ngine_ref.numerics.blocks import apply_in_blocks, blocks
from ngine_ref.numerics.broadcasting import check_unidirectional
from ngine_ref.numerics.dtypes import DType, is_floating, largest
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, float_attribute, operand, present
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, operator

_SIXTH = float(np.float32(1 / 6))
"""The slope of HardSwish, as its function body in ONNX has it: a float32 attribute."""


def relu_into(x: Array, out: Array) -> None:
    """`out = max(x, 0)`; NaN stays NaN. `out` may be `x`."""
    np.maximum(x, np.zeros((), x.dtype), out=out)


@np.errstate(all="ignore")
def leaky_relu_into(x: Array, alpha: float, out: Array) -> None:
    """`out = alpha * x where x < 0, else x`, with alpha rounded to the dtype of `x`; `out` may be `x`."""
    slope = np.asarray(alpha, x.dtype)
    convex = 0 != float(slope) <= 1 and math.isfinite(float(slope))
    for target, block in blocks(out, x):
        (_convex_slope if convex else _any_slope)(block, slope, target)


@np.errstate(all="ignore")
def prelu_into(x: Array, slope: Array, out: Array) -> None:
    """`out = slope * x where x < 0, else x`; the slope broadcasts to `x`; `out` may be `x`."""
    convex = x.dtype.kind not in "iu" and bool(((slope != 0) & (slope <= 1) & np.isfinite(slope)).all())
    for target, block, factor in blocks(out, x, slope):
        (_convex_slope if convex else _any_slope)(block, factor, target)


def _convex_slope(x: Array, slope: Array, out: Array) -> None:
    # With a finite slope of at most 1, the larger of x and slope * x is the right one, and NaN stays NaN. A slope of
    # 0 does not qualify (0 * inf is NaN), nor do integers (slope * x may wrap).
    np.maximum(x, np.multiply(x, slope), out=out)


def _any_slope(x: Array, slope: Array, out: Array) -> None:
    # One of the two terms is always 0, so their sum is exact; a slope of inf or NaN must not meet that 0.
    below = np.multiply(np.minimum(x, np.zeros((), x.dtype)), slope)
    if not np.isfinite(slope).all():
        np.copyto(below, np.zeros((), x.dtype), where=x >= 0)
    np.add(np.maximum(x, np.zeros((), x.dtype)), below, out=out)


def clip_into(x: Array, low: Array | None, high: Array | None, out: Array) -> None:
    """`out = min(max(x, low), high)` with an absent bound left out; `out` may be `x`."""
    if low is not None:
        np.maximum(x, low, out=out)
        x = out
    if high is not None:
        np.minimum(x, high, out=out)
    elif low is None and out is not x:
        np.copyto(out, x)


def hard_sigmoid_into(x: Array, alpha: float, beta: float, out: Array) -> None:
    """`out = min(max(alpha * x + beta, 0), 1)`; `out` may be `x`."""
    apply_in_blocks(lambda block: _hard_sigmoid(block, alpha, beta), x, out)


def hard_swish_into(x: Array, out: Array) -> None:
    """`out = x * min(max(x / 6 + 0.5, 0), 1)`; `out` may be `x`."""
    apply_in_blocks(lambda block: np.asarray(block * _hard_sigmoid(block, _SIXTH, 0.5)), x, out)


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    y = np.multiply(x, alpha, out=np.empty_like(x))
    np.add(y, beta, out=y)
    np.maximum(y, 0, out=y)
    return np.minimum(y, 1, out=y)


def unary_kernel(call: Call, function: Callable[[Array, Array], None]) -> Kernel:
    """The kernel of an elementwise operator: `function(x, out)` fills an output of the input's shape and dtype."""
    x = operand(call, 0)

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        function(present(inputs, 0), outputs[0])

    return Kernel((TensorSpec(x.shape, x.dtype),), compute, in_place=(0,), strided=True)


@operator("Relu")
def bind_relu(call: Call) -> Kernel:
    """Relu-6, -13, -14: `y = max(x, 0)`, elementwise; NaN stays NaN.

    Input X of any shape; float16, bfloat16, float32, float64 or a signed integer; Y is like X.
    """
    check_signature(call)
    return unary_kernel(call, relu_into)


@operator("LeakyRelu")
def bind_leaky_relu(call: Call) -> Kernel:
    """LeakyRelu-6, -16: `y = alpha * x` where x < 0, else x; NaN stays NaN.

    Input X of any shape; float16, bfloat16, float32 or float64; Y is like X. Attribute `alpha` (default 0.01) may be
    any number, also negative or above 1; it is rounded to the dtype of X, as in ONNX's own function body.
    """
    check_signature(call)
    alpha = float_attribute(call, "alpha", 0.01)
    return unary_kernel(call, lambda x, out: leaky_relu_into(x, alpha, out))


@operator("PRelu", since=7)
def bind_prelu(call: Call) -> Kernel:
    """PRelu-7, -9, -16: `y = slope * x` where x < 0, else x.

    Inputs X and slope of one dtype: float16, bfloat16, float32, float64 or an integer of 32 or 64 bits. The slope
    broadcasts to X, aligned at the last axes; Y is like X.

    Raises:
        ShapeError: the slope would have to grow X (ONNX broadcasts it in one direction only).
    """
    check_signature(call)
    x, slope = operand(call, 0), operand(call, 1)
    check_unidirectional("PRelu", "slope", slope.shape, x.shape)
    return _prelu_kernel(x, slope.shape)


@operator("PRelu", since=1)
def bind_prelu_before_broadcasting(call: Call) -> Kernel:
    """PRelu-1, -6: as PRelu-7, with a slope of one element or one a channel, which is axis 1 of X.

    Raises:
        ShapeError: the slope is neither.
    """
    check_signature(call)
    x, slope = operand(call, 0), operand(call, 1)
    if math.prod(slope.shape) == 1:
        return _prelu_kernel(x, ())
    if len(x.shape) < 2 or slope.shape != x.shape[1:2]:
        raise ShapeError(f"PRelu before opset 7 needs one slope or one a channel of {x.shape}, got {slope.shape}.")
    return _prelu_kernel(x, slope.shape + (1,) * (len(x.shape) - 2))


def _prelu_kernel(x: TensorSpec, slope_shape: tuple[int, ...]) -> Kernel:
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        prelu_into(present(inputs, 0), present(inputs, 1).reshape(slope_shape), outputs[0])

    return Kernel((TensorSpec(x.shape, x.dtype),), compute, in_place=(0,), strided=True)


@operator("HardSigmoid")
def bind_hard_sigmoid(call: Call) -> Kernel:
    """HardSigmoid-1, -6, -22: `y = max(0, min(1, alpha * x + beta))`; alpha is 0.2 and beta 0.5 by default.

    Input X of any shape; float16, bfloat16 (both computed in float32), float32 or float64; Y is like X.
    """
    check_signature(call)
    alpha, beta = float_attribute(call, "alpha", 0.2), float_attribute(call, "beta", 0.5)
    return unary_kernel(call, lambda x, out: hard_sigmoid_into(x, alpha, beta, out))


@operator("HardSwish", since=14)
def bind_hard_swish(call: Call) -> Kernel:
    """HardSwish-14, -22: `y = x * max(0, min(1, x / 6 + 0.5))`; shapes and dtypes as for HardSigmoid."""
    check_signature(call)
    return unary_kernel(call, hard_swish_into)


@operator("Clip", since=11)
def bind_clip(call: Call) -> Kernel:
    """Clip-11, -12, -13: `y = min(max(x, min), max)`; hence `max` wins where the bounds cross, and NaN stays NaN.

    Input of any shape and numeric dtype; the optional inputs `min` and `max` are scalars of that dtype, and an absent
    one is the lowest or largest finite number, so that it bounds infinity. The output is like the input.

    Raises:
        ShapeError: a bound has more than one element.
    """
    check_signature(call)
    x = operand(call, 0)
    for slot, name in ((1, "min"), (2, "max")):
        bound = call.spec(slot)
        if bound is not None and bound.shape not in ((), (1,)):
            raise ShapeError(f"Clip needs a scalar as its {name}, got the shape {bound.shape}.")

    limits = _default_bounds(x.dtype)

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        given = (*inputs[1:], None, None)
        low, high = (limit if bound is None else bound.reshape(()) for bound, limit in zip(given, limits, strict=False))
        clip_into(present(inputs, 0), low, high, outputs[0])

    return Kernel((TensorSpec(x.shape, x.dtype),), compute, in_place=(0,), strided=True)


def _default_bounds(dtype: DType) -> tuple[Array | None, Array | None]:
    if not is_floating(dtype):
        return None, None
    return np.asarray(-largest(dtype), dtype), np.asarray(largest(dtype), dtype)


@operator("Clip", since=1)
def bind_clip_by_attributes(call: Call) -> Kernel:
    """Clip-1, -6: as Clip-11, with the bounds in the attributes `min` and `max`, by default float32's limits."""
    check_signature(call)
    dtype = operand(call, 0).dtype
    limit = largest(np.dtype(np.float32))
    with np.errstate(over="ignore"):  # they become infinite in float16
        low, high = (np.asarray(float_attribute(call, name, v), dtype) for name, v in (("min", -limit), ("max", limit)))
    return unary_kernel(call, lambda x, out: clip_into(x, low, high, out))
