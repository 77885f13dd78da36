"""From protobuf to scopes: a model is read once, and everything after works on `Node` objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from onnx import AttributeProto, GraphProto, ModelProto, defs

from graphopt.graph.conventions import DEFAULTS_SINCE_IR, normal_domain, opset_versions
from graphopt.graph.graph_reader import GraphReader
from graphopt.graph.scope import Node, Scope


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
    holders: list[Node] = []
    for reading in reader.nodes(proto):
        spelled = reading.domain
        if spelled not in domains:
            domains[spelled] = normal_domain(spelled, fused_domains)
        node = Node(reading, domains[spelled], reader.sets)
        scope.nodes.append(node)
        if reading.attributes is None:
            holders.append(node)
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
    scope.defined.update(chain.from_iterable([node.outputs for node in scope.nodes]))
    found: list[Scope] = []
    for node in holders:
        bodies = [
            Scope(graph, f"{name} of {node.title}", scope.opsets, parent=scope) for name, _, graph in bodies_of(node)
        ]
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
