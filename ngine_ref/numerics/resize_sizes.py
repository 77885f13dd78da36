"""What Resize makes of its optional inputs: the sizes, scales and regions of the axes it changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.limits import check_size
from ngine_ref.numerics.resize_coordinates import F32, HALF, ResizedAxis
from ngine_ref.numerics.signature import operand
from ngine_ref.registry import Array, Call


def resized_axes(call: Call) -> list[ResizedAxis]:
    """The axes that a call of Resize-11 or later names, from its inputs `roi`, `scales`, `sizes` (slots 1 to 3).

    An output length is `floor(length * scale)` in float32; a region of interest does not change it, as in ONNX's own
    shape inference. `keep_aspect_ratio_policy` gives all axes the smallest or largest scale that `sizes` asks for.

    Raises:
        ShapeError: an input has the wrong number of elements.
        OperatorError: not exactly one of scales and sizes is given, or a value is not possible.
    """
    shape = operand(call, 0).shape
    rank = len(shape)
    axes = [int(axis) + (rank if axis < 0 else 0) for axis in call.attributes.get("axes") or range(rank)]
    if len(set(axes)) != len(axes) or any(not 0 <= axis < rank for axis in axes):
        raise OperatorError(f"Resize: axes is {call.attributes['axes']}, but the input's shape is {shape}.")
    scales, sizes = _content(call, 2, "scales", len(axes)), _content(call, 3, "sizes", len(axes))
    if (scales is None) == (sizes is None):
        raise OperatorError("Resize needs one of the inputs scales and sizes, and not both.")
    roi = None
    if call.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi = _content(call, 1, "roi", 2 * len(axes))
        if roi is None:
            raise OperatorError("Resize needs the input roi for tf_crop_and_resize.")
    # [start1, ..., startN, end1, ..., endN]
    starts, ends = np.split(np.asarray([0] * len(axes) + [1] * len(axes) if roi is None else roi, F32), 2)
    lengths = [shape[axis] for axis in axes]
    if scales is not None:
        factors = np.asarray(scales, F32)
        resized, widths = scaled_lengths(lengths, factors), np.asarray(lengths, F32) * factors
    else:
        assert sizes is not None
        resized, factors, widths = _from_sizes(lengths, [int(size) for size in sizes], _policy(call))
    found = zip(axes, lengths, resized, factors, widths, starts, ends, strict=True)
    return check_lengths([ResizedAxis(*numbers) for numbers in found])


def scaled_lengths(lengths: Sequence[int], scales: Array) -> list[int]:
    """`floor(length * scale)` for each axis, in float32.

    Raises:
        ShapeError: a length overflows.
        OperatorError: a scale is not positive.
    """
    if not (scales > 0).all() or not np.isfinite(scales).all():
        raise OperatorError(f"Resize: scales is {scales.tolist()}, every number must be positive.")
    with np.errstate(over="ignore"):
        resized = np.floor(np.asarray(lengths, F32) * scales)
    if not np.isfinite(resized).all():
        raise ShapeError(f"Resize: scales is {scales.tolist()}, which is too much for lengths {list(lengths)}.")
    return [int(length) for length in resized]


def check_lengths(axes: list[ResizedAxis]) -> list[ResizedAxis]:
    """Make sure that nothing is to be made of no cells.

    Raises:
        ShapeError: an axis of length 0 is to become longer, or an axis shorter than 0, or all too large.
    """
    for at in axes:
        if at.resized < 0 or (at.length == 0 and at.resized > 0):
            raise ShapeError(f"Resize cannot make {at.resized} cells of the {at.length} cells along axis {at.axis}.")
    check_size("Resize", [at.resized for at in axes])
    return axes


def _content(call: Call, slot: int, name: str, count: int) -> Array | None:
    """The content of an optional input; absent and empty are the same (exporters of opset 11 write empty tensors)."""
    spec = call.spec(slot)
    if spec is None or spec.shape == (0,):
        return None
    if spec.value is None:
        raise OperatorError(f"Resize must know its input {name} before its output can have a shape.")
    if spec.shape != (count,):
        raise ShapeError(f"Resize: the input {name} has shape {spec.shape}, it must have {count} elements.")
    return spec.value


def _policy(call: Call) -> str:
    policy = str(call.attributes.get("keep_aspect_ratio_policy", "stretch"))
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise OperatorError(f"Resize: keep_aspect_ratio_policy is {policy!r}, which ONNX does not know.")
    return policy


def _from_sizes(lengths: list[int], sizes: list[int], policy: str) -> tuple[list[int], Array, Array]:
    """Output lengths, scales, and the lengths as widths. An empty axis stays empty, its scale does not matter."""
    scales: Array = np.asarray(sizes, F32) / np.maximum(np.asarray(lengths, F32), F32(1))
    if policy != "stretch" and sizes:
        scales[:] = scales.min() if policy == "not_larger" else scales.max()
        sizes = [int(width) for width in np.floor(np.asarray(lengths, F32) * scales + HALF)]
    return sizes, scales, np.asarray(sizes, F32)
