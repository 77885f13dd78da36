"""A node that a fusion made, and the function body that gives it its meaning."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import FunctionProto, NodeProto

from graphopt.graph.attribute_sets import AttributeSet
from graphopt.graph.scope import Node
from graphopt.rewriting.record import Replaced


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """A specialised function body; several fused nodes may share one."""

    operator: tuple[str, str]
    """The fused operator: the rule's domain, and name."""
    function: FunctionProto
    """Its domain is chosen when the whole model is known, see `body_domains`."""
    rule_label: str
    """The label of the rule, and of the rules that made the fused operators in its body."""
    variadic_count: int | None
    dtypes: tuple[str, ...]
    """The element types of its constants."""
    opset: int
    absent: frozenset[str] = frozenset()
    """The optional inputs that its nodes do not list."""


class FusedNode(Node):
    """A node that a fusion made, not yet written as protobuf."""

    __slots__ = ("body", "replaced")
    _slots = (*Node._slots, *__slots__)

    def __init__(
        self,
        operator: tuple[str, str],
        name: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: AttributeSet,
        body: Body,
        replaced: tuple[Replaced, ...],
    ) -> None:
        self.proto = _NO_PROTO
        self.domain, self.op_type = operator
        self.name = name
        self.inputs = inputs
        self.outputs = outputs
        self.bodies = ()
        self.original_inputs = None
        self.is_changed = False
        self._attributes = attributes
        self._sets = None
        self.body = body
        self.replaced = replaced

    @property
    def is_written(self) -> bool:
        """Whether the node stood in the model already, as `proto`."""
        return self.proto is not _NO_PROTO


_NO_PROTO = NodeProto()
"""Stands in for the protobuf of a node that is not written yet."""
