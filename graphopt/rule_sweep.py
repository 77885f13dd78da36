"""One operator's rules over one scope: every match is found on one view, and those that are disjoint are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.scope import Node, Scope
from graphopt.ledger import Absorption, Fusion, Ledger, Refusal
from graphopt.matching.decision import decide
from graphopt.matching.eligibility import Order
from graphopt.matching.match import Match
from graphopt.rewriting.fused_node import FusedNode
from graphopt.rewriting.outlining import Outliner
from graphopt.rule import Rule
from graphopt.targets.target import Target
from graphopt.targets.target_check import refuses

Observer = Callable[[Sequence[Rule], DataflowGraph, int, Match | Refusal | str | None, Order], None]
"""Is told a decision: the rules, the view, the anchor, what was decided (the name of the fused node that had taken
the anchor, for an absorption), and the order."""


def sweep(
    rules: Sequence[Rule],
    scope: Scope,
    order: Order,
    ledger: Ledger,
    outliner: Outliner,
    target: Target | None = None,
    observer: Observer | None = None,
) -> None:
    """One pass of one operator's rules over a scope: find all matches, then apply those that are disjoint together."""
    view = DataflowGraph.of(scope)
    nodes = view.nodes
    calls: dict[int, FusedNode] = {}
    owners: dict[int, FusedNode] = {}
    for anchor in anchors(rules, view):
        decision = decide(rules, view, anchor, order)
        if target is not None and isinstance(decision, Match):
            decision = _judged_by(target, decision, view)
        taken = decision.nodes if isinstance(decision, Match) else (anchor,)
        owner = None
        if not owners.keys().isdisjoint(taken):
            owner = next(owners[place] for place in taken if place in owners)
        if observer is not None:
            observer(rules, view, anchor, decision if owner is None else owner.label, order)
        if owner is not None:
            ledger.absorptions.append(Absorption(rules[0].op_type, view.nodes[anchor].label, owner.label, scope.title))
        elif isinstance(decision, Refusal):
            ledger.refusals.append(decision)
        elif isinstance(decision, Match):
            call = outliner.outline(decision, view)
            calls[anchor] = call
            replaced = decision.nodes + decision.identities
            owners.update(dict.fromkeys(replaced, call))
            replaces = tuple([nodes[index].name or nodes[index].label for index in replaced])
            ledger.fusions.append(Fusion(call.op_type, call.label, replaces, call.inputs, call.outputs, scope.title))
    if calls:
        ledger.counts[rules[0].op_type] += len(calls)
        scope.nodes = list(_replaced(scope.nodes, calls, owners))
        scope.is_rewritten = True


def _judged_by(target: Target, match: Match, view: DataflowGraph) -> Match | Refusal:
    reason = refuses(match, view, target)
    if reason is None:
        return match
    label = view.nodes[match.anchor].label
    return Refusal(match.rule.op_type, label, 0, "target", reason, label, view.scope.title)


def anchors(rules: Sequence[Rule], view: DataflowGraph) -> list[int]:
    """The nodes that a rule of the operator could be anchored at, in topological order."""
    operators = dict.fromkeys((rule.anchor.domain, rule.anchor.op_type) for rule in rules)
    found = [index for domain, op_type in operators for index in view.with_operator(domain, op_type)]
    return found if len(operators) == 1 else sorted(found)


def _replaced(nodes: list[Node], calls: dict[int, FusedNode], owners: dict[int, FusedNode]) -> Iterator[Node]:
    """The nodes, with each call in its anchor's place and the other nodes it replaces left out.

    The anchor is the last of them in topological order, so everything the call reads stands before it.
    """
    for index, node in enumerate(nodes):
        if index in calls:
            yield calls[index]
        elif index not in owners:
            yield node
