"""Where Resize reads: for each axis, which cells of the input an output cell is made of, and in which parts.

Coordinates are float32 throughout, in the order of operations in which ONNX writes its formulas: `scales` is a float32
tensor, and a coordinate that ends on a half or on a whole number decides about a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.limits import check_size
from ngine_ref.registry import Array

F32 = np.float32
HALF = F32(0.5)


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """One axis of the input and what becomes of it."""

    axis: int
    length: int
    """Of the input."""
    resized: int
    """Of the output."""
    scale: np.float32
    """As given, or output by input length: not always their exact ratio."""
    width: np.float32
    """The output length; where a scale was given, before it was rounded: `length * scale`."""
    start: np.float32
    end: np.float32
    """The region of interest, in parts of the axis; it counts for `tf_crop_and_resize` only."""


@dataclass(frozen=True, slots=True)
class Taps:
    """What the output cells along one axis are made of: `sum(weights[i] * input[indices[i]])` is output cell i."""

    axis: int
    length: int
    """Of the input."""
    indices: Array
    """`[output cell, tap]`, all within the input."""
    weights: Array | None
    """`[output cell, tap]`; None for a single tap of weight 1."""
    outside: Array
    """`[output cell]`: whether its coordinate lies outside the input, so that it becomes the extrapolation value."""

    @property
    def is_identity(self) -> bool:
        """Whether every output cell is the input cell at the same place."""
        return self.weights is None and np.array_equal(self.indices[:, 0], np.arange(self.length))


def original_coordinates(at: ResizedAxis, mode: str) -> Array:
    """The place in the input of each output cell, by `coordinate_transformation_mode`; float32, `[resized]`.

    Source: ONNX Resize-11, -13, -18, -19; for `align_corners` also its test cases, in which the resized length is the
    width that a scale asks for, before rounding (onnxruntime has the rounded one).

    Raises:
        OperatorError: there is no such mode.
    """
    x, length, resized = np.arange(at.resized, dtype=F32), F32(at.length), F32(at.resized)
    single = at.resized <= 1
    match mode:
        case "half_pixel":
            return (x + HALF) / at.scale - HALF
        case "half_pixel_symmetric":
            adjustment = resized / (at.scale * length)
            # The offset is often what the other terms cancel to a whole number with: they are added up in float64.
            offset = np.float64(length / F32(2) * (F32(1) - adjustment))
            return np.asarray(offset + (x + HALF).astype(np.float64) / np.float64(at.scale) - 0.5, F32)
        case "pytorch_half_pixel":
            return x * F32(0) if single else (x + HALF) / at.scale - HALF
        case "align_corners":
            return x * F32(0) if single else x * (length - F32(1)) / (at.width - F32(1))
        case "asymmetric":
            return x / at.scale
        case "tf_half_pixel_for_nn":
            return (x + HALF) / at.scale
        case "tf_crop_and_resize":
            last = length - F32(1)
            if single:
                return x + HALF * (at.start + at.end) * last
            return at.start * last + x * (at.end - at.start) * last / (resized - F32(1))
    raise OperatorError(f"Resize: coordinate_transformation_mode is {mode!r}, which ONNX does not know.")


def nearest_taps(at: ResizedAxis, x: Array, mode: str) -> Taps:
    """The one cell nearest to each coordinate, by `nearest_mode`.

    A coordinate within a millionth of a half counts as the half that exact numbers would have given (for onnxruntime
    too).

    Raises:
        OperatorError: there is no such mode.
    """
    match mode:
        case "round_prefer_floor":
            rounded = np.where(_is_half(x), np.floor(x), np.ceil(x - HALF))
        case "round_prefer_ceil":
            rounded = np.where(_is_half(x), np.ceil(x), np.floor(x + HALF))
        case "floor":
            rounded = np.floor(x)
        case "ceil":
            rounded = np.ceil(x)
        case _:
            raise OperatorError(f"Resize: nearest_mode is {mode!r}, which ONNX does not know.")
    indices = np.clip(rounded.astype(np.int64), 0, at.length - 1)
    return Taps(at.axis, at.length, indices[:, None], None, _outside(at, x))


def weighted_taps(
    at: ResizedAxis, x: Array, kernel: Callable[[Array], Array], radius: int, *, antialias: bool, exclude_outside: bool
) -> Taps:
    """The cells within the reach of an interpolation kernel, with its values as weights.

    Args:
        at: the axis.
        x: the coordinates.
        kernel: the weight at a distance.
        radius: the distance from which on weights are zero.
        antialias: stretch the kernel where the axis shrinks, so that it covers all cells.
        exclude_outside: cells outside the input weigh nothing; else the cell at the border stands for them.

    Raises:
        ShapeError: a stretched kernel covers more cells than there can be.
    """
    stretch = max(1.0, 1.0 / float(at.scale)) if antialias and at.resized else 1.0
    reach = radius * stretch
    first = np.floor(x.astype(np.float64) - reach).astype(np.int64) + 1
    count = 2 * radius if stretch == 1.0 else int(np.ceil(2 * reach)) + 1
    check_size("Resize", (at.resized, count), 8)
    indices = first[:, None] + np.arange(count)
    weights = kernel(np.abs(indices - x[:, None].astype(np.float64)) / stretch)
    if exclude_outside:
        weights = np.where((indices < 0) | (indices >= at.length), 0.0, weights)
    if exclude_outside or stretch != 1.0:
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)  # no weight at all: far outside, where it is extrapolated
    indices = np.clip(indices, 0, at.length - 1)
    exact = np.array_equal(x, np.arange(at.length, dtype=F32))
    if exact and stretch == 1.0:
        return Taps(at.axis, at.length, np.arange(at.length)[:, None], None, _outside(at, x))
    return Taps(at.axis, at.length, indices, weights, _outside(at, x))


def linear_kernel(distance: Array) -> Array:
    """The triangle of radius 1."""
    return np.maximum(0.0, 1.0 - distance)


def cubic_kernel(a: float) -> Callable[[Array], Array]:
    """The cubic convolution kernel of radius 2 (Keys, 1981, equation 4), with its free coefficient `a`."""

    def kernel(distance: Array) -> Array:
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((distance - 5) * distance + 8) * distance * a - 4 * a
        return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))

    return kernel


def _is_half(x: Array) -> Array:
    return np.abs(x - np.floor(x) - HALF) < F32(1e-6)


def _outside(at: ResizedAxis, x: Array) -> Array:
    return (x < 0) | (x > at.length - 1)
