"""What is known of a node's behaviour: whether it does the same each time, and whether it does more than compute."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from onnx import defs

from graphopt.graph.scope import Node
from graphopt.rewriting.fused_node import FusedNode

_RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators that draw random numbers. A Dropout may; one that never does is not worth telling apart here."""


def is_deterministic(node: Node) -> bool:
    """Whether the same inputs give the same outputs each time, whatever these are called."""
    if isinstance(node, FusedNode):
        return all(inner.op_type not in _RANDOM for inner in node.body.function.node)
    return node.domain == "" and not node.bodies and node.op_type not in _RANDOM and _is_known("", node.op_type)


def may_have_effects(node: Node) -> bool:
    """Whether a node may do more than make its outputs: nobody knows its operator, or it moves a random sequence on."""
    return any(not _only_computes(inner) for inner in _with_inner_nodes(node))


def _only_computes(node: Node) -> bool:
    if isinstance(node, FusedNode):
        return is_deterministic(node)
    return node.op_type not in _RANDOM and _is_known(node.domain, node.op_type)


def _with_inner_nodes(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending += [inner for body in current.bodies for inner in body.nodes]


@lru_cache(maxsize=4096)
def _is_known(domain: str, op_type: str) -> bool:
    return bool(defs.has(op_type, domain))
