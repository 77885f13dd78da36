"""The arithmetic of folding: weight and bias of an affine operator whose output is scaled and shifted by channel.

With `y = W x + b`, `factor * y + shift` is `(factor W) x + (factor b + shift)`. All of it is computed in float64; the
caller rounds once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def factor_and_shift(scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float) -> tuple[Array, Array]:
    """BatchNormalization at inference as `factor * x + shift`; all arrays are [C], the results float64.

    ONNX: `(x - mean) / sqrt(variance + epsilon) * scale + bias`.
    """
    scale, bias, mean, variance = (array.astype(np.float64) for array in (scale, bias, mean, variance))
    with np.errstate(all="ignore"):  # what is not finite, the caller sees
        factor = scale / np.sqrt(variance + epsilon)
        return factor, bias - mean * factor


def fold_into_conv(weight: Array, bias: Array | None, factor: Array, shift: Array) -> tuple[Array, Array]:
    """Conv: weight [M, C/group, ...] is scaled along its first axis, bias [M] or absent."""
    along = factor.reshape(-1, *(1,) * (weight.ndim - 1))
    return weight.astype(np.float64) * along, _folded_bias(bias, factor, shift)


def fold_into_conv_transpose(
    weight: Array, bias: Array | None, factor: Array, shift: Array, group: int
) -> tuple[Array, Array]:
    """ConvTranspose: weight [C, M/group, ...] holds the output channels of one group after the other."""
    split = weight.astype(np.float64).reshape(group, weight.shape[0] // group, *weight.shape[1:])
    along = factor.reshape(group, 1, -1, *(1,) * (weight.ndim - 2))
    return (split * along).reshape(weight.shape), _folded_bias(bias, factor, shift)


def fold_into_gemm(
    weight: Array, addend: Array | None, factor: Array, shift: Array, *, transposed: bool, beta: float
) -> tuple[Array, Array]:
    """Gemm `alpha A B + beta C`: B [K, N], or [N, K] transposed; C absent, or anything that broadcasts to [M, N].

    `alpha` multiplies the new B as it did the old; the shift is divided by `beta`, which multiplies the new C.
    """
    along = factor.reshape(-1, 1) if transposed else factor
    old = 0.0 if addend is None else addend.astype(np.float64)
    return weight.astype(np.float64) * along, old * factor + shift / beta


def _folded_bias(bias: Array | None, factor: Array, shift: Array) -> Array:
    return shift if bias is None else bias.astype(np.float64) * factor + shift
