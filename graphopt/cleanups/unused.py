"""What nobody reads: nodes, and initializers."""

from __future__ import annotations

from onnx import GraphProto

from graphopt.cleanups.effects import may_have_effects
from graphopt.graph.conventions import DEFAULTS_SINCE_IR
from graphopt.graph.scope import Node, Scope
from graphopt.ledger import Cleaned


def drop_dead_nodes(scope: Scope) -> list[Cleaned]:
    """Remove the nodes whose outputs nobody reads, and what only they read, unless they may do more than compute."""
    read = {*scope.outputs, *scope.training_reads}
    kept: list[Node] = []
    cleaned: list[Cleaned] = []
    for node in reversed(scope.nodes):
        made = tuple(filter(None, node.outputs))
        if made and read.isdisjoint(made) and not may_have_effects(node):
            cleaned.append(Cleaned("dead", node.label, made, scope.title))
            scope.defined.difference_update(made)
            continue
        kept.append(node)
        read.update(node.inputs)
        for body in node.bodies:
            read.update(body.captures)
    if cleaned:
        scope.nodes = kept[::-1]
        scope.is_rewritten = True
    return cleaned[::-1]


def drop_unused_initializers(scope: Scope, ir_version: int) -> list[Cleaned]:
    """Remove the initializers that nobody reads; one that a caller may override is an input, and stays."""
    if not isinstance(scope.proto, GraphProto):
        return []
    read = {*scope.outputs, *scope.training_reads}
    for node in scope.nodes:
        read.update(node.inputs)
        for body in node.bodies:
            read.update(body.captures)
    for annotation in scope.proto.quantization_annotation:
        read.update(entry.value for entry in annotation.quant_parameter_tensor_names)
    inputs = set(scope.inputs)
    if ir_version < DEFAULTS_SINCE_IR and scope.parent is None:  # there, constants are listed among the inputs
        inputs.clear()
    unused = [name for name in scope.initializers if name not in read and name not in inputs]
    for name in unused:
        del scope.initializers[name]
        if scope.added.pop(name, None) is None:
            scope.dropped.add(name)
    if unused:
        scope.defined.difference_update(unused)
        scope.inputs = tuple(name for name in scope.inputs if name not in scope.dropped)
        scope.is_rewritten = True
    return [Cleaned("initializers", name, (name,), scope.title) for name in unused]
