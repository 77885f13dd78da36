"""A model as scopes: the main graph, the bodies of If, Loop and Scan at any depth, and the model's own functions.

Protobuf is read once, into plain `Node` objects; everything after works on those. A scope knows what its names mean:
which are inputs, which are constants and which come from the scope around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar, Self

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    defs,
)

from graphopt.graph.attribute_sets import AttributeSet, AttributeSets
from graphopt.graph.constant_nodes import constant_tensor
from graphopt.graph.graph_reader import GraphReader, NodeReading

FUSED_DOMAIN = "ai.ngine"
STANDARD_DOMAINS = ("", "ai.onnx")
DEFAULTS_SINCE_IR = 4
"""From this IR version on, an initializer listed among the graph's inputs is a default; before, it is a constant."""

Dims = tuple[int | None, ...]


def normal_domain(domain: str, fused_domains: Collection[str]) -> str:
    """The domain under its usual spelling: `ai.onnx` is the default domain, a fused sub-domain is the fused domain."""
    if domain == "ai.onnx":
        return ""
    return next((fused for fused in fused_domains if domain.startswith(fused + ".")), domain)


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
    shapes: _Shapes | None = None
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
            tensors = {node.outputs[0]: constant_tensor(node) for node in self.nodes if node.op_type == "Constant"}
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
                    scope.shapes = _Shapes(scope.proto)
                return scope.shapes.by_name.get(name)
            scope = scope.parent
        return None


class _Shapes:
    """The shapes that a graph declares, read when the first is asked for."""

    def __init__(self, proto: GraphProto | FunctionProto) -> None:
        self.proto = proto

    @cached_property
    def by_name(self) -> dict[str, Dims]:
        """Shape by value name, for every value with a declared shape."""
        infos = list(self.proto.value_info)
        if isinstance(self.proto, GraphProto):
            infos += [*self.proto.input, *self.proto.output]
        return {info.name: dims for info in infos if (dims := _dims(info.type)) is not None}


def _dims(type_proto: TypeProto) -> Dims | None:
    if not type_proto.HasField("tensor_type") or not type_proto.tensor_type.HasField("shape"):
        return None
    return tuple(dim_size(dim) for dim in type_proto.tensor_type.shape.dim)


def dim_size(dim: TensorShapeProto.Dimension) -> int | None:
    """The size of a declared dimension; None where it is left open, which some exporters write as -1."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


@lru_cache(maxsize=4096)
def _may_hold_bodies(domain: str, op_type: str) -> bool:
    if domain != "":
        return True
    if not defs.has(op_type):
        return True
    kinds = {attribute.type for attribute in defs.get_schema(op_type).attributes.values()}
    return defs.OpSchema.AttrType.GRAPH in kinds or defs.OpSchema.AttrType.GRAPHS in kinds


def bodies_of(node: Node) -> Iterator[tuple[str, int, GraphProto]]:
    """The graphs in a node's attributes: attribute name, place in a list of graphs (-1 where it is no list), graph."""
    if not _may_hold_bodies(node.domain, node.op_type):
        return
    for attribute in node.proto.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, -1, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            for place, graph in enumerate(attribute.graphs):
                yield attribute.name, place, graph


def opset_versions(imports: ModelProto | FunctionProto) -> dict[str, int]:
    """The imported operator sets: version by domain, the default domain under ''."""
    return {("" if entry.domain == "ai.onnx" else entry.domain): entry.version for entry in imports.opset_import}


def read_scopes(
    model: ModelProto, *, fused_domains: Collection[str] = (), reader: GraphReader | None = None
) -> list[Scope]:
    """Every scope of a model: the main graph first, each scope before the bodies inside it, functions last.

    Functions of the fused domains and their sub-domains are left out: their bodies are what a name means. `reader` may
    know the graphs already.
    """
    scopes: list[Scope] = []
    reader = reader or GraphReader()
    pending = [Scope(model.graph, "", opset_versions(model))]
    pending += [
        Scope(function, f"function {function.domain}::{function.name}", opset_versions(function))
        for function in model.functions
        if normal_domain(function.domain, fused_domains) not in fused_domains
    ]
    pending.reverse()
    while pending:
        scope = pending.pop()
        scopes.append(scope)
        pending += _read(scope, model.ir_version < DEFAULTS_SINCE_IR, fused_domains, reader)[::-1]
    note_captures(scopes)
    scopes[0].training_reads = tuple(_training_reads(model, scopes[0]))
    return scopes


def _training_reads(model: ModelProto, main: Scope) -> Iterator[str]:
    """What the training steps read of the main graph: their nodes run as if they stood in it."""
    for step in model.training_info:
        for graph in (step.initialization, step.algorithm):
            scopes: list[Scope] = []
            pending = [Scope(graph, "a training step", main.opsets, parent=main)]
            while pending:
                scopes.append(pending.pop())
                pending += _read(scopes[-1], False, (), GraphReader())
            note_captures(scopes)
            yield from scopes[0].captures
        for binding in (*step.initialization_binding, *step.update_binding):
            yield binding.key  # an initializer that the step sets


def note_captures(scopes: Sequence[Scope]) -> None:
    """Find out what each scope captures; outer scopes come before inner ones."""
    for scope in reversed(scopes):  # inner scopes come after outer ones
        scope.captures = tuple(_captured(scope))


def _read(
    scope: Scope, initializers_are_constant: bool, fused_domains: Collection[str], reader: GraphReader
) -> list[Scope]:
    """Fill one scope from its protobuf; returns the bodies found in it, not yet filled."""
    proto = scope.proto
    domains: dict[str, str] = {"": ""}
    scope.nodes = []
    for reading in reader.nodes(proto):
        spelled = reading.domain
        if spelled not in domains:
            domains[spelled] = normal_domain(spelled, fused_domains)
        scope.nodes.append(Node(reading, domains[spelled], reader.sets))
    if isinstance(proto, GraphProto):
        scope.inputs = tuple(value.name for value in proto.input)
        scope.outputs = tuple(value.name for value in proto.output)
        scope.initializers = {tensor.name: tensor for tensor in proto.initializer}
        sparse = [tensor.values.name for tensor in proto.sparse_initializer]
        scope.defined.update(scope.inputs, scope.initializers, sparse)
        if not initializers_are_constant:
            for name in scope.inputs:
                scope.initializers.pop(name, None)
    else:
        scope.inputs = tuple(proto.input)
        scope.outputs = tuple(proto.output)
        scope.defined.update(scope.inputs)
    found: list[Scope] = []
    for node in scope.nodes:
        scope.defined.update(node.outputs)
        bodies = [
            Scope(graph, f"{name} of {node.title}", scope.opsets, parent=scope) for name, _, graph in bodies_of(node)
        ]
        if bodies:
            node.bodies = tuple(bodies)
            found += bodies
    scope.defined.discard("")
    return found


def _captured(scope: Scope) -> Iterator[str]:
    if scope.parent is None:
        return
    for node in scope.nodes:
        for name in node.inputs:
            if name and name not in scope.defined:
                yield name
        for body in node.bodies:
            for name in body.captures:
                if name not in scope.defined:
                    yield name
    for name in scope.outputs:
        if name not in scope.defined:
            yield name
