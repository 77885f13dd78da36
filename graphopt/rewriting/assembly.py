"""From rewritten scopes back to a model: nodes, functions, imports, IR version, and the record of what changed.

Everything the rewrite did not touch is carried over as it stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from graphopt.graph.attribute_sets import AttributeSet
from graphopt.graph.conventions import DEFAULTS_SINCE_IR
from graphopt.graph.scope import Node, Scope
from graphopt.graph.scope_reading import bodies_of
from graphopt.rewriting.body_domains import assign_domains
from graphopt.rewriting.fused_node import Body, FusedNode
from graphopt.rewriting.record import (
    INPUTS,
    IR_VERSION,
    ORIGINAL_INPUTS,
    RULES,
    add_empty_record,
    fill_record,
    set_metadata,
)

FUNCTIONS_SINCE_IR = 8


def assemble(model: ModelProto, scopes: Sequence[Scope], *, digest: str, functions: bool = True) -> ModelProto:
    """The rewritten model, with the functions of its fused nodes; `model` itself is left as it is.

    Args:
        model: the model the scopes were read from.
        scopes: all its scopes as rewritten, main graph first.
        digest: the digest of the rules, for the model's metadata.
        functions: whether to emit the fused nodes' bodies; without them the calls are bare, in the rules' domains.
    """
    result = ModelProto()
    _copy_fields(model, result, without=("graph", "functions"))
    writer = _Writer(scopes, functions=functions)
    bodies = writer.bodies
    if functions:
        assign_domains(bodies, _taken(model, scopes))
    by_proto = {id(scope.proto): scope for scope in scopes}
    writer.write_graph(model.graph, scopes[0], result.graph)
    for function in model.functions:
        writer.write_function(function, by_proto.get(id(function)), result.functions.add())
    _import(result, (writer.domain_of(body) for body in bodies))
    if any(scope.added for scope in scopes):
        _raise_ir_version(result, DEFAULTS_SINCE_IR, is_undone=False)
    if functions and bodies:
        result.functions.extend(body.function for body in bodies)
        _raise_ir_version(result, FUNCTIONS_SINCE_IR, is_undone=True)
    set_metadata(result, RULES, digest)
    return result


class _Writer:
    """Writes scopes as protobuf; a scope and its bodies that nothing changed are copied as they stand."""

    def __init__(self, scopes: Sequence[Scope], *, functions: bool) -> None:
        self._functions = functions
        fused = [node for scope in scopes for node in scope.nodes if isinstance(node, FusedNode)]
        self.bodies = list(dict.fromkeys(node.body for node in fused if not node.is_written))
        """The bodies of new fused nodes, in the order of their first calls."""
        self._common: dict[tuple[Body, AttributeSet], bytes] = {}
        """What calls of one body with equal attributes have in common, serialized."""
        self._changed: set[int] = set()
        for scope in reversed(scopes):  # bodies come after the scope they stand in
            inner = (id(body) in self._changed for node in scope.nodes for body in node.bodies)
            if scope.is_rewritten or any(inner):
                self._changed.add(id(scope))

    def domain_of(self, body: Body) -> str:
        """The domain that calls of this body are written with."""
        return body.function.domain if self._functions else body.operator[0]

    def write_graph(self, source: GraphProto, scope: Scope, target: GraphProto) -> None:
        """Fill an empty graph with what the source has and the scope's nodes. Weights are copied once, here."""
        if id(scope) not in self._changed:
            target.CopyFrom(source)
            return
        _copy_fields(source, target, without=("node", "input", "initializer", "value_info", "quantization_annotation"))
        target.input.extend(value for value in source.input if value.name not in scope.dropped)
        for tensor in source.initializer:
            if tensor.name not in scope.dropped:
                # Not `extend`, which serializes and parses each: three copies of the weights instead of one.
                target.initializer.add().CopyFrom(tensor)
        for name, tensor in scope.added.items():
            added = target.initializer.add()
            added.CopyFrom(tensor)
            added.name = name
        self._write_nodes(scope, target)
        if source.value_info or source.quantization_annotation:
            gone = _gone(source, scope)
            target.value_info.extend(info for info in source.value_info if info.name not in gone)
            target.quantization_annotation.extend(
                entry for entry in source.quantization_annotation if entry.tensor_name not in gone
            )

    def write_function(self, source: FunctionProto, scope: Scope | None, target: FunctionProto) -> None:
        """Fill an empty function likewise; without a scope it stays what it is."""
        if scope is None or id(scope) not in self._changed:
            target.CopyFrom(source)
            return
        _copy_fields(source, target, without=("node", "value_info"))
        self._write_nodes(scope, target)
        if source.value_info:
            gone = _gone(source, scope)
            target.value_info.extend(info for info in source.value_info if info.name not in gone)
        new = (node.body for node in _nodes_within(scope) if isinstance(node, FusedNode) and not node.is_written)
        _import(target, (self.domain_of(body) for body in new))

    def _write_nodes(self, scope: Scope, target: GraphProto | FunctionProto) -> None:
        for node in scope.nodes:
            if isinstance(node, FusedNode) and not node.is_written:
                self._write_call(node, target.node.add())
            else:
                self._write_node(node, target.node.add())

    def _write_node(self, node: Node, target: NodeProto) -> None:
        target.CopyFrom(node.proto)
        if node.is_changed:
            target.input[:] = node.inputs
            target.output[:] = node.outputs
        if node.original_inputs is not None:
            set_metadata(target, ORIGINAL_INPUTS, json.dumps(node.original_inputs))
        if any(id(body) in self._changed for body in node.bodies):
            self._write_bodies(target, node)

    def _write_bodies(self, proto: NodeProto, node: Node) -> None:
        attributes = {attribute.name: attribute for attribute in proto.attribute}
        for (name, place, source), body in zip(bodies_of(node), node.bodies, strict=True):
            target = attributes[name].g if place < 0 else attributes[name].graphs[place]
            target.Clear()
            self.write_graph(source, body, target)

    def _write_call(self, node: FusedNode, target: NodeProto) -> None:
        key = node.body, node.attributes
        common = self._common.get(key)
        if common is None:
            # Making eight attributes costs more than all the rest, so calls that have the same ones parse them.
            proto = NodeProto(op_type=node.op_type, domain=self.domain_of(node.body))
            proto.attribute.extend(node.attributes.values())
            add_empty_record(proto)
            common = self._common[key] = proto.SerializeToString()
        target.ParseFromString(common)
        target.name = node.name
        target.input[:] = node.inputs
        target.output[:] = node.outputs
        fill_record(target, node.replaced)


def _nodes_within(scope: Scope) -> Iterator[Node]:
    """The nodes of a scope and of the bodies inside it, at any depth."""
    pending = [scope]
    while pending:
        inner = pending.pop()
        yield from inner.nodes
        pending += [body for node in inner.nodes for body in node.bodies]


def _copy_fields(source: ModelProto | GraphProto | FunctionProto, target: object, *, without: Sequence[str]) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name in without:
            continue
        if descriptor.is_repeated:
            getattr(target, descriptor.name).extend(value)
        elif descriptor.message_type is not None:
            getattr(target, descriptor.name).CopyFrom(value)
        else:
            setattr(target, descriptor.name, value)


def _gone(source: GraphProto | FunctionProto, scope: Scope) -> set[str]:
    """The values that the source made and the scope makes no more."""
    before = {name for node in source.node for name in node.output} - scope.added.keys() | scope.dropped
    return before.difference(name for node in scope.nodes for name in node.outputs)


def _taken(model: ModelProto, scopes: Sequence[Scope]) -> set[tuple[str, str]]:
    """Domain and name of the functions that the model has, and of its calls that have none."""
    taken = {(function.domain, function.name) for function in model.functions}
    for scope in scopes:
        for node in scope.nodes:
            if node.domain and (not isinstance(node, FusedNode) or node.is_written):
                taken.add((node.proto.domain, node.op_type))
    return taken


def _import(target: ModelProto | FunctionProto, domains: Iterable[str]) -> None:
    known = {entry.domain for entry in target.opset_import}
    for domain in dict.fromkeys(domains):
        if domain not in known:
            target.opset_import.add(domain=domain, version=1)


def _raise_ir_version(model: ModelProto, version: int, *, is_undone: bool) -> None:
    """Functions, and initializers that are no inputs, need a newer IR version; with it, initializers among the inputs
    would turn from constants into defaults that anybody may override, so they leave the inputs.

    Unfusing undoes it only where the model then is what it was: it takes no cleanup back.
    """
    if model.ir_version >= version:
        return
    if is_undone:
        set_metadata(model, IR_VERSION, str(model.ir_version))
    if model.ir_version < DEFAULTS_SINCE_IR:
        initializers = {tensor.name for tensor in model.graph.initializer}
        kept = [value for value in model.graph.input if value.name not in initializers]
        if is_undone and len(kept) != len(model.graph.input):
            set_metadata(model, INPUTS, json.dumps([value.name for value in model.graph.input]))
        del model.graph.input[:]
        model.graph.input.extend(kept)
    model.ir_version = version
