"""ONNX's broadcasting rules: multidirectional, unidirectional, and the rule of opsets before 7.

Source: docs/Broadcasting.md of ONNX; the old rule is in the schemas of Add-6 and its kin.
"""

from __future__ import annotations

from ngine_ref.errors import ShapeError
from ngine_ref.registry import Call, TensorSpec

Shape = tuple[int, ...]


def broadcast_shape(op_type: str, *shapes: Shape) -> Shape:
    """The shape that all of these broadcast to, aligned at their last axes, each able to grow the result.

    Raises:
        ShapeError: two of them differ in an axis, and neither is 1 there.
    """
    result = shapes[0]
    for shape in shapes[1:]:
        if shape == result:
            continue
        rank = max(len(result), len(shape))
        left = (1,) * (rank - len(result)) + result
        right = (1,) * (rank - len(shape)) + shape
        if any(a != b and a != 1 and b != 1 for a, b in zip(left, right, strict=True)):
            listed = " and ".join(str(each) for each in shapes)
            raise ShapeError(f"{op_type} cannot broadcast the shapes {listed}.")
        result = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
    return result


def check_unidirectional(op_type: str, what: str, shape: Shape, target: Shape) -> None:
    """Make sure that `shape` broadcasts to `target` without growing it.

    Raises:
        ShapeError: it does not.
    """
    padded = (1,) * (len(target) - len(shape)) + shape
    if len(shape) > len(target) or any(a not in (1, b) for a, b in zip(padded, target, strict=True)):
        raise ShapeError(f"{op_type} cannot broadcast its {what} of shape {shape} to {target} without growing it.")


def legacy_shape(call: Call, a: Shape, b: Shape) -> Shape:
    """The shape that the second operand has to be given before opset 7, so that it lines up with the first.

    With `broadcast=1`, its axes are a contiguous part of the first one's, starting at `axis` or else ending at the
    last; one element goes with everything. Without it, shapes must be equal.

    Raises:
        ShapeError: the operands do not fit by that rule.
    """
    axis = call.attributes.get("axis")
    if not call.attributes.get("broadcast", 0):
        if a != b:
            raise ShapeError(f"{call.op_type} before opset 7 needs equal shapes unless broadcast=1, got {a} and {b}.")
        return b
    if all(size == 1 for size in b) and len(b) <= len(a):
        return (1,) * len(a)
    start = len(a) - len(b) if axis is None else int(axis) + (len(a) if int(axis) < 0 else 0)
    if start < 0 or a[start : start + len(b)] != b:
        raise ShapeError(f"{call.op_type} cannot broadcast {b} to {a} from axis {start}.")
    return b + (1,) * (len(a) - start - len(b))


def in_place_slots(call: Call, output: TensorSpec) -> tuple[int, ...]:
    """The inputs of an elementwise operator whose buffer its output may take over: same shape and dtype."""
    return tuple(
        slot
        for slot, spec in enumerate(call.inputs)
        if spec is not None and spec.shape == output.shape and spec.dtype == output.dtype
    )
