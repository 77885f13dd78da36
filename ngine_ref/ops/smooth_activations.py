"""Smooth activations: Sigmoid and what is made of exp, tanh and the error function.

As in `activations`, each comes as a function `name_into(x, out)` that may work in place on any block of an array.
Narrow floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.numerics.blocks import apply_in_blocks
from ngine_ref.numerics.error_function import erf, erfc
from ngine_ref.numerics.signature import check_signature
from ngine_ref.ops.activations import unary_kernel
from ngine_ref.registry import Array, Call, Kernel, operator


def sigmoid_into(x: Array, out: Array) -> None:
    """`out = 1 / (1 + exp(-x))`, without overflow at either end; `out` may be `x`."""
    apply_in_blocks(_sigmoid, x, out)


def silu_into(x: Array, out: Array) -> None:
    """`out = x * sigmoid(x)`, the product rounded as by Mul; `out` may be `x`."""
    apply_in_blocks(lambda block: block * _sigmoid(block).astype(x.dtype).astype(block.dtype), x, out)


def tanh_into(x: Array, out: Array) -> None:
    """`out = tanh(x)`; `out` may be `x`."""
    apply_in_blocks(np.tanh, x, out)


def softplus_into(x: Array, out: Array) -> None:
    """`out = log(1 + exp(x))`, without overflow; `out` may be `x`."""
    apply_in_blocks(_softplus, x, out)


def mish_into(x: Array, out: Array) -> None:
    """`out = x * tanh(log(1 + exp(x)))`, without overflow; `out` may be `x`."""
    apply_in_blocks(_mish, x, out)


def erf_into(x: Array, out: Array) -> None:
    """`out = erf(x)`; `out` may be `x`."""
    apply_in_blocks(erf, x, out)


def gelu_into(x: Array, out: Array) -> None:
    """`out = x * P`, P being the probability that a normal variable is below x; `out` may be `x`."""
    apply_in_blocks(_gelu, x, out)


def gelu_tanh_into(x: Array, out: Array) -> None:
    """`out = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`; `out` may be `x`."""
    apply_in_blocks(_gelu_tanh, x, out)


def _sigmoid(x: Array) -> Array:
    y = np.negative(x, out=np.empty_like(x))
    np.exp(y, out=y)
    np.add(y, 1, out=y)
    np.reciprocal(y, out=y)
    # Where exp(-x) overflows, the 1 beside it counts for nothing.
    overflown = y == 0
    if overflown.any():
        y[overflown] = np.exp(x[overflown])
    return y


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _mish(x: Array) -> Array:
    # With e = exp(x), tanh(log(1 + e)) is e * (e + 2) / (e * (e + 2) + 2). From 20 on that is 1 in float64 too.
    e = np.exp(np.minimum(x, 20))
    ratio = e * (e + 2)
    return np.asarray(x * (ratio / (ratio + 2)))


def _gelu(x: Array) -> Array:
    # erfc instead of 1 + erf keeps the precision of the small results left of 0.
    return np.asarray(x * (erfc(x * -math.sqrt(0.5)) * 0.5))


def _gelu_tanh(x: Array) -> Array:
    # (1 + tanh(z)) / 2 is sigmoid(2 z), which does not cancel left of 0.
    return np.asarray(x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


@operator("Sigmoid")
def bind_sigmoid(call: Call) -> Kernel:
    """Sigmoid-1, -6, -13: `y = 1 / (1 + exp(-x))`, the true function, without overflow at either end.

    Input X of any shape; float16, bfloat16 (both computed in float32), float32 or float64; Y is like X.
    """
    check_signature(call)
    return unary_kernel(call, sigmoid_into)


@operator("Tanh")
def bind_tanh(call: Call) -> Kernel:
    """Tanh-1, -6, -13: `y = tanh(x)`; shapes and dtypes as for Sigmoid."""
    check_signature(call)
    return unary_kernel(call, tanh_into)


@operator("Softplus")
def bind_softplus(call: Call) -> Kernel:
    """Softplus-1, -22: `y = log(1 + exp(x))`, without overflow; shapes and dtypes as for Sigmoid."""
    check_signature(call)
    return unary_kernel(call, softplus_into)


@operator("Mish", since=18)
def bind_mish(call: Call) -> Kernel:
    """Mish-18, -22: `y = x * tanh(softplus(x))`, without overflow; shapes and dtypes as for Sigmoid."""
    check_signature(call)
    return unary_kernel(call, mish_into)


@operator("Erf", since=9)
def bind_erf(call: Call) -> Kernel:
    """Erf-9, -13: the error function, to the precision of the dtype; shapes and dtypes as for Sigmoid."""
    check_signature(call)
    return unary_kernel(call, erf_into)


@operator("Gelu", since=20)
def bind_gelu(call: Call) -> Kernel:
    """Gelu-20: `y = x / 2 * (1 + erf(x / sqrt(2)))`; with `approximate="tanh"` the formula that has tanh for erf.

    Shapes and dtypes as for Sigmoid.

    Raises:
        OperatorError: `approximate` is neither `none` (the default) nor `tanh`.
    """
    check_signature(call)
    approximate = call.attributes.get("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise OperatorError(f"Gelu needs approximate none or tanh, got {approximate!r}.")
    return unary_kernel(call, gelu_into if approximate == "none" else gelu_tanh_into)
