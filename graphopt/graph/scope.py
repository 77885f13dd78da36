"""A model as scopes: the main graph, the bodies of If, Loop and Scan at any depth, and the model's own functions.

A scope is a list of plain `Node` objects, and knows what its names mean: which are inputs, which are constants and
which come from the scope around it. `scope_reading` makes scopes from protobuf, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from onnx import FunctionProto, GraphProto, TensorProto

from graphopt.graph.attribute_sets import AttributeSet, AttributeSets
from graphopt.graph.constant_nodes import held_tensor
from graphopt.graph.declared_shapes import DeclaredShapes, Dims
from graphopt.graph.graph_reader import NodeReading


class Node:
    """One node of a scope. `domain` is normalised; `proto` is the node as it stands in the model.

    Attributes are read from protobuf only when somebody asks for them: most nodes are never asked. `attribute_sets`
    then gives nodes with equal attributes one object.
    """

    __slots__ = (
        "_attributes", "_sets", "bodies", "domain", "inputs", "is_changed", "name", "op_type", "original_inputs",
        "outputs", "proto",
    )  # fmt: skip
    _slots: ClassVar[tuple[str, ...]] = __slots__
    """Those of this class and of the one it is derived from."""

    def __init__(self, reading: NodeReading, domain: str, attribute_sets: AttributeSets) -> None:
        self.proto, self.op_type, _, self.inputs, self.outputs, self._attributes = reading
        self.domain = domain
        self.name: str = self.proto.name
        self.original_inputs: tuple[str, ...] | None = None
        """What the model had, where a rewrite that `unfuse` takes back changed the inputs."""
        self.is_changed = False
        """Whether `inputs` or `outputs` are no longer those of `proto`."""
        self.bodies: tuple[Scope, ...] = ()
        self._sets: AttributeSets | None = attribute_sets

    def with_names(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Self:
        """The same node, reading and making values of other names."""
        changed = self.__class__.__new__(self.__class__)  # `copy` takes five times as long
        for slot in self._slots:
            setattr(changed, slot, getattr(self, slot))
        changed.inputs, changed.outputs, changed.is_changed = inputs, outputs, True
        return changed

    @property
    def attributes(self) -> AttributeSet:
        """The attributes by name."""
        if self._attributes is None:
            assert self._sets is not None  # only a fused node has none, and that has its attributes
            self._attributes = self._sets.of(self.proto)
        return self._attributes

    @property
    def title(self) -> str:
        """How messages call this node: its operator and its name, or its first output where it has no name."""
        return f"{self.op_type} {self.label!r}"

    @property
    def label(self) -> str:
        """The node's name, or the name of its first output where it has none."""
        return self.name or next(filter(None, self.outputs), "")

    @property
    def constant(self) -> TensorProto | None:
        """The tensor that a Constant node holds, None for any other node and for forms that are no dense tensor."""
        return held_tensor(self.proto) if self.op_type == "Constant" and self.domain == "" else None

    def __repr__(self) -> str:
        return f"<{self.title}>"


@dataclass(slots=True, eq=False)
class Scope:
    """A list of nodes and what the names in it mean."""

    proto: GraphProto | FunctionProto
    title: str
    """How messages call this scope: '' for the main graph, else the body or the function."""
    opsets: Mapping[str, int]
    parent: Scope | None = None
    nodes: list[Node] = field(default_factory=list)
    """Never changed in place once it is read: a rewrite sets a new list."""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    initializers: dict[str, TensorProto] = field(default_factory=dict)
    """Initializers that are constants: an overridable one (IR 4 and up, listed among the inputs) is an input."""
    added: dict[str, TensorProto] = field(default_factory=dict)
    """Initializers that a rewrite made; they are among `initializers` too."""
    dropped: set[str] = field(default_factory=set)
    """Initializers that a rewrite took away."""
    defined: set[str] = field(default_factory=set)
    """Every name this scope gives a meaning to."""
    captures: tuple[str, ...] = ()
    """Names read here, or in bodies below, that a scope further out gives a meaning to; one entry a reading slot."""
    training_reads: tuple[str, ...] = ()
    """Of the main graph: names that the model's training steps read, which may be any of its values."""
    is_rewritten: bool = False
    shapes: DeclaredShapes | None = None
    _constant_nodes: Mapping[str, TensorProto] | None = None
    view: object = None
    """The last data-flow view of the scope, see `DataflowGraph.of`; it holds as long as `nodes` is the same list."""

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators in this scope; 0 where it imports none."""
        return self.opsets.get("", 0)

    def constant(self, name: str) -> TensorProto | None:
        """The tensor of an initializer here or further out, or of a Constant node; None for any other value."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.initializers:
                return scope.initializers[name]
            if name in scope.defined:
                return scope.constant_nodes.get(name)
            scope = scope.parent
        return None

    @property
    def constant_nodes(self) -> Mapping[str, TensorProto]:
        """The tensors that this scope's Constant nodes hold, by value name."""
        if self._constant_nodes is None:
            tensors = {node.outputs[0]: node.constant for node in self.nodes if node.op_type == "Constant"}
            self._constant_nodes = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        return self._constant_nodes

    def forget(self) -> None:
        """Let go of what was derived from the nodes: what the bodies in it capture may have changed too."""
        self.view = self._constant_nodes = None

    def declared_dims(self, name: str) -> Dims | None:
        """The shape the model declares for a value, None where it declares none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.defined:
                if name in scope.initializers:
                    return tuple(scope.initializers[name].dims)
                if scope.shapes is None:
                    scope.shapes = DeclaredShapes(scope.proto)
                return scope.shapes.by_name.get(name)
            scope = scope.parent
        return None
