"""Nodes whose first output is a value that is there already: a function an operator, which says what value that is.

Each returns the value, or None where the node is needed or where that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from onnx import AttributeProto, TensorProto, numpy_helper

from graphopt.graph.scope import Node
from graphopt.graph.value_types import TensorType, keeps_shape


class Place(Protocol):
    """What may be asked about the surroundings of a node."""

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators there."""

    def constant(self, value: str) -> TensorProto | None:
        """The tensor of a value that never changes, else None."""

    def type_of(self, value: str) -> TensorType | None:
        """Element type and shape of a value, as far as inference knows them."""

    def maker(self, value: str) -> Node | None:
        """The node of this scope that makes a value."""

    def is_read(self, value: str) -> bool:
        """Whether anybody reads a value."""


def identity(place: Place, node: Node) -> str | None:
    """An Identity is its input."""
    return node.inputs[0]


def dropout(place: Place, node: Node) -> str | None:
    """A Dropout is its input unless it trains: `is_test` before opset 7, never up to 11, `training_mode` from 12 on."""
    if any(map(place.is_read, node.outputs[1:])):
        return None
    if place.opset >= 12:
        training = node.inputs[2] if len(node.inputs) > 2 else ""
        return node.inputs[0] if not training or _is_false(place.constant(training)) else None
    if place.opset >= 7:
        return node.inputs[0]
    is_test = node.attributes.get("is_test")
    return node.inputs[0] if is_test is not None and is_test.i else None


def concat(place: Place, node: Node) -> str | None:
    """A Concat of one input is that input."""
    return node.inputs[0] if len(node.inputs) == 1 else None


def cast(place: Place, node: Node) -> str | None:
    """A Cast to the element type that its input has is its input."""
    wanted, given = node.attributes.get("to"), place.type_of(node.inputs[0])
    if wanted is None or wanted.type != AttributeProto.INT or wanted.ref_attr_name or given is None:
        return None
    return node.inputs[0] if wanted.i == given.element_type else None


def reshape(place: Place, node: Node) -> str | None:
    """A Reshape to the shape that its input has is its input."""
    before, after = place.type_of(node.inputs[0]), place.type_of(node.outputs[0])
    if before is None or after is None or not keeps_shape(before.dims, after.dims):
        return None
    return node.inputs[0]


def transpose(place: Place, node: Node) -> str | None:
    """A Transpose that moves no axis is its input; one that undoes the Transpose before it is that one's input."""
    order = _order(node)
    if order and order == sorted(order):
        return node.inputs[0]
    earlier = place.maker(node.inputs[0])
    if earlier is None or (earlier.domain, earlier.op_type) != ("", "Transpose"):
        return None
    before = _order(earlier)
    if order is None or before is None:
        return None
    unmoved = list(range(len(order or before)))  # none where both turn the order round: that undoes itself
    order, before = order or unmoved[::-1], before or unmoved[::-1]
    undone = len(order) == len(before) and [before[axis] for axis in order] == unmoved
    return earlier.inputs[0] if undone else None


def pad(place: Place, node: Node) -> str | None:
    """A Pad whose amounts are all 0 is its input; they are an input from opset 11 on."""
    if place.opset >= 11:
        tensor = place.constant(node.inputs[1]) if len(node.inputs) > 1 else None
        return node.inputs[0] if tensor is not None and not _is_any(tensor) else None
    written = node.attributes.get("pads") or node.attributes.get("paddings")
    nothing = written is not None and written.type == AttributeProto.INTS and not any(written.ints)
    return node.inputs[0] if nothing and written is not None and not written.ref_attr_name else None


SameValue = Callable[[Place, Node], str | None]
SAME_VALUE: Mapping[str, tuple[str, SameValue]] = {
    "Identity": ("identity", identity),
    "Dropout": ("dropout", dropout),
    "Concat": ("concat", concat),
    "Cast": ("cast", cast),
    "Reshape": ("reshape", reshape),
    "Transpose": ("transpose", transpose),
    "Pad": ("pad", pad),
}
"""By operator of ONNX's own domain: the cleanup's name, and its function."""


def _order(node: Node) -> list[int] | None:
    """The axes of a Transpose; [] where it turns the order round, None where it does not say one that can be read."""
    attribute = node.attributes.get("perm")
    if attribute is None:
        return []
    order = list(attribute.ints)
    is_order = order and sorted(order) == list(range(len(order))) and not attribute.ref_attr_name
    return order if is_order else None


def _is_false(tensor: TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == TensorProto.BOOL and not _is_any(tensor)


def _is_any(tensor: TensorProto) -> bool:
    """Whether a tensor has an element that is not zero; what lies in another file may have."""
    return tensor.data_location == TensorProto.EXTERNAL or bool(np.any(numpy_helper.to_array(tensor)))
