"""A model as the executor sees it: nodes, values and weights as plain Python objects, without protobuf.

A protobuf message keeps its whole memory, weights included, for as long as any part of it is referenced. So a model
is read once into these classes (`model.py`) and the message is dropped: the weights exist once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ngine_ref.registry import Array

Value = Array | list[Any] | dict[Any, Any] | None
"""What a value can be at run time: a tensor, a sequence, a map, or an optional that holds nothing."""


@dataclass(frozen=True, slots=True)
class AttributeReference:
    """An attribute of a function body's node that takes the value of the function's attribute `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class ValueType:
    """The declared type of an input or output."""

    text: str
    """As onnxruntime writes it: `tensor(float)`, `seq(tensor(int64))`, `optional(tensor(float))`; empty if unknown."""
    shape: tuple[int | str | None, ...] | None
    """Fixed sizes as int, named ones as str, unknown ones as None; None altogether if not even the rank is known."""
    element_type: int = 0
    """`onnx.TensorProto.DataType` of a tensor; 0 for anything that is not a tensor, or where it is not known."""
    is_tensor: bool = False
    item: ValueType | None = None
    """What a sequence or an optional holds."""


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A named input or output of a graph."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Node:
    """One application of an operator."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    """Value names; the empty string where an optional input is absent."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """Plain values: int, float, str, lists of them, arrays for tensors, `Graph` for bodies."""
    attribute_types: Mapping[str, int]
    """`onnx.AttributeProto.AttributeType` of each attribute."""
    opset: int
    """The version of the node's domain that holds where the node stands (a function has its own imports)."""
    overload: str = ""
    origin: Mapping[str, int] = field(default_factory=dict)
    """All opset imports of that scope, which onnx's own implementation of an operator wants to know."""

    def bodies(self) -> Iterator[Graph]:
        """The graphs among the attributes: branches and loop bodies."""
        for value in self.attributes.values():
            if isinstance(value, Graph):
                yield value
            elif isinstance(value, list):
                yield from (item for item in value if isinstance(item, Graph))

    def __str__(self) -> str:
        domain = f"{self.domain}::" if self.domain else ""
        label = self.name or next(filter(None, self.outputs), "")
        kind = f"{domain}{self.op_type}"
        return f"{kind if kind.isprintable() else ascii(kind)} node {label!r}"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A graph: the model's own, or the body of a control-flow operator."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    initializers: Mapping[str, Array]
    """Read-only arrays by name."""
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A model-local function."""

    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    defaults: Mapping[str, tuple[Any, int]]
    """Default value and type of each attribute that has one."""
    nodes: tuple[Node, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """What ONNX identifies a function by."""
        return self.domain, self.name, self.overload


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model's graph and functions."""

    ir_version: int
    graph: Graph
    functions: Mapping[tuple[str, str, str], Function]
