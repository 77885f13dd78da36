"""Fused nodes without a function in the model: what each means, for the proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from onnx import FunctionProto, ModelProto, NodeProto

from graphopt.errors import UsageError
from graphopt.graph.scope import Scope
from graphopt.rewriting.fused_node import FusedNode

Key = tuple[str, ...]
"""A call by its operator and the values it reads and makes."""
BodyOf = Callable[[NodeProto], FunctionProto | None]


def bodies_of_bare_calls(model: ModelProto, scopes: Sequence[Scope]) -> dict[bytes, FunctionProto]:
    """What the rules say of each fused node that the model has without a function, by the node as it stands."""
    own = _own_functions(model)
    return {
        node.proto.SerializeToString(): node.body.function
        for node in _fused_nodes(scopes)
        if (node.proto.domain, node.op_type) not in own
    }


def bodies_of_written_calls(model: ModelProto, scopes: Sequence[Scope], *, functions: bool) -> dict[Key, FunctionProto]:
    """What each call means that stands in the result otherwise than in the model, and has no function there.

    Args:
        model: the model that the scopes were read from.
        scopes: its scopes, rewritten.
        functions: whether new fused nodes get functions.

    Raises:
        UsageError: the model has a function of its own that a bare call would run.
    """
    own = _own_functions(model)
    bodies: dict[Key, FunctionProto] = {}
    for node in _fused_nodes(scopes):
        if node.is_written:
            is_bare = node.is_changed and (node.proto.domain, node.op_type) not in own
        else:
            is_bare = not functions
            if is_bare and node.body.operator in own:
                raise UsageError(
                    f"The model has a function {'.'.join(node.body.operator)} of its own, which a bare call would run; "
                    f"fuse with functions, or leave the rule {node.op_type} out."
                )
        if is_bare:
            bodies[(node.op_type, *node.inputs, "->", *node.outputs)] = node.body.function
    return bodies


def body_of(bare: Mapping[bytes, FunctionProto], written: Mapping[Key, FunctionProto]) -> BodyOf:
    """What gives each call without a function its body."""

    def find(call: NodeProto) -> FunctionProto | None:
        known = bare.get(call.SerializeToString()) if bare else None
        return known or written.get((call.op_type, *call.input, "->", *call.output))

    return find


def _own_functions(model: ModelProto) -> set[tuple[str, str]]:
    return {(function.domain, function.name) for function in model.functions}


def _fused_nodes(scopes: Sequence[Scope]) -> Iterator[FusedNode]:
    return (node for scope in scopes for node in scope.nodes if isinstance(node, FusedNode))
