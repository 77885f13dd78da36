"""Axes and shapes that a node gives as attributes or as the content of an input."""

from __future__ import annotations

from collections.abc import Iterable

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.registry import Call


def normalize_axis(op_type: str, axis: int, rank: int, *, limit: int | None = None) -> int:
    """The axis counted from the front; `limit` is the first axis out of range, `rank` unless given.

    Raises:
        ShapeError: there is no such axis.
    """
    highest = (rank if limit is None else limit) - 1
    if not -rank <= axis <= highest:
        raise ShapeError(f"{op_type} needs an axis from {-rank} to {highest} at rank {rank}, got {axis}.")
    return axis + rank if axis < 0 else axis


def normalize_axes(op_type: str, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """The axes counted from the front, in ascending order.

    Raises:
        ShapeError: there is no such axis, or one is named twice.
    """
    counted = sorted(normalize_axis(op_type, int(axis), rank) for axis in axes)
    if len(set(counted)) != len(counted):
        raise ShapeError(f"{op_type} needs distinct axes, got {tuple(counted)} at rank {rank}.")
    return tuple(counted)


def known_integers(call: Call, slot: int, name: str) -> tuple[int, ...] | None:
    """The content of an integer input that decides the output's shape, None where the input is absent.

    Raises:
        OperatorError: the input is there, but its content is not known when the operator is bound.
    """
    spec = call.spec(slot)
    if spec is None:
        return None
    if spec.value is None:
        raise OperatorError(f"{call.op_type} needs the content of its input {name!r} to know the shape of its output.")
    return tuple(int(value) for value in spec.value.reshape(-1))
