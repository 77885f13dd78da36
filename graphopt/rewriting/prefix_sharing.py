"""Concat prefix sharing: let a longer Concat start from a shorter one that is already there.

`Concat(x, x1, x2)` equals `Concat(Concat(x, x1), x2)` bit for bit. In a dense block it leaves every feature with one
reader, so that each Concat can take in its convolution. Done where it pays, and nowhere else: the shorter Concat
must fail the sole-reader condition alone, and every other reader of its tail must be a Concat it can serve.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.graph.dataflow import DataflowGraph, sort_nodes
from graphopt.graph.scope import Node, Scope
from graphopt.matching.decision import failures
from graphopt.matching.eligibility import Order, normal_axis
from graphopt.matching.match import Match
from graphopt.matching.matcher import likely_rules, match
from graphopt.rule import Rule


def share_prefixes(scope: Scope, rules: Sequence[Rule], order: Order) -> int:
    """Rewrite the Concats of one scope that can start from a shorter one; returns how many were.

    Args:
        scope: the scope to rewrite.
        rules: the rules of a fused operator whose anchor is a Concat with a variadic head.
        order: what the adjacency condition goes by.
    """
    view = DataflowGraph.of(scope)
    shared: set[int] = set()
    inputs: dict[int, tuple[str, ...]] = {}
    for index in view.with_operator("", "Concat"):
        tail = next(reversed(view.nodes[index].inputs), "")
        if view.read_count(tail) > 1 and _only_lacks_sole_reader(rules, view, index, tail, order):
            head = inputs.get(index, view.nodes[index].inputs)
            longer = _longer_concats(view, index, tail, head, inputs)
            for other in longer or ():
                inputs[other] = (
                    view.nodes[index].outputs[0],
                    *inputs.get(other, view.nodes[other].inputs)[len(head) :],
                )
                shared.add(other)
    if inputs:
        scope.nodes = [
            _with_inputs(node, inputs[index]) if index in inputs else node for index, node in enumerate(scope.nodes)
        ]
        scope.is_rewritten = True
        sort_nodes(scope)  # a shorter Concat may have stood behind a longer one
    return len(shared)


def _only_lacks_sole_reader(rules: Sequence[Rule], view: DataflowGraph, index: int, tail: str, order: Order) -> bool:
    for rule in likely_rules(rules, view, index):
        for found in match(rule, view, index):
            if isinstance(found, Match):
                failed = failures(found, view, order, read_often=tail)
                if [condition.kind for condition in failed] == ["sole_reader"]:
                    return True
    return False


def _longer_concats(
    view: DataflowGraph, index: int, tail: str, head: tuple[str, ...], inputs: dict[int, tuple[str, ...]]
) -> list[int] | None:
    """The Concats that begin with `head`, the inputs of Concat `index`; None if `tail` has any other reader."""
    if view.captures(tail) or tail in view.outputs:
        return None
    axis = normal_axis(view, view.nodes[index])
    longer: list[int] = []
    for reader in view.readers(tail):
        if reader == index:
            continue
        node = view.nodes[reader]
        own = inputs.get(reader, node.inputs)
        if (
            (node.domain, node.op_type) != ("", "Concat")
            or len(own) <= len(head)
            or own[: len(head)] != head
            or own.count(tail) != 1
            or normal_axis(view, node) != axis
        ):
            return None
        longer.append(reader)
    return longer


def _with_inputs(node: Node, inputs: tuple[str, ...]) -> Node:
    changed = node.with_names(inputs, node.outputs)
    changed.original_inputs = node.original_inputs or node.inputs
    return changed
