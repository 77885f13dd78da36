"""One decision for one anchor: which of an operator's rules applies, or which condition says no.

Pure: a decision changes nothing, it is a value.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.graph.dataflow import DataflowGraph
from graphopt.ledger import Refusal
from graphopt.matching.eligibility import REQUIREMENTS, Candidate, Order, checks, preference
from graphopt.matching.match import Match, Mismatch
from graphopt.matching.matcher import likely_rules, match, search
from graphopt.matching.quick_match import quick_match
from graphopt.rule import Condition, PatternNode, Rule


def decide(rules: Sequence[Rule], view: DataflowGraph, anchor: int, order: Order) -> Match | Refusal | None:
    """What becomes of an anchor: a match that passes every condition, the refusal of the one that got furthest,
    or None where the anchor does not have the shape of any of the rules.

    `rules` are the rules of one fused operator.
    """
    refusals: list[Refusal] = []
    missing: list[Mismatch] = []
    likely = likely_rules(rules, view, anchor)
    for rule in likely:
        quick = quick_match(rule, view, anchor)
        matches = [] if quick is None else [quick]
        for found in () if quick is not None else search(rule, view, anchor):
            if isinstance(found, Match):
                matches.append(found)
            elif found.failed.number:
                missing.append(found)
        if len(matches) > 1:
            matches.sort(key=lambda found: preference(_candidate(found, view, order), found.rule.conditions))
        for found in matches:
            refusal = check(found, view, order)
            if refusal is None:
                return found
            refusals.append(refusal)
    for rule in rules:
        if rule.has_labelled_nodes and rule not in likely:  # without labels, a mismatch is no refusal
            missing += [m for m in match(rule, view, anchor) if isinstance(m, Mismatch) and m.failed.number]
    if missing:
        refusals.append(_refuse_mismatches(missing, view, order))
    return max(refusals, key=lambda refusal: refusal.condition, default=None)


def check(found: Match, view: DataflowGraph, order: Order) -> Refusal | None:
    """The first condition of its rule that a match fails, None where it passes them all."""
    candidate = _candidate(found, view, order)
    for holds, condition in checks(found.rule):
        fault = holds(candidate, condition)
        if fault is not None:
            return _refusal(found.rule, view, anchor=found.anchor, condition=condition, fault=fault)
    return None


def failures(found: Match, view: DataflowGraph, order: Order, read_often: str = "") -> list[Condition]:
    """Every condition of its rule that a match fails.

    That `read_often` has several readers the caller knows: its sole-reader condition fails, and no sentence about all
    those readers is made.
    """
    candidate = _candidate(found, view, order)
    return [
        condition
        for condition in found.rule.conditions
        if (condition.kind == "sole_reader" and candidate.value(condition.values[0]) == read_often)
        or REQUIREMENTS[condition.kind].check(candidate, condition) is not None
    ]


def verdicts(found: Match | Mismatch, view: DataflowGraph, order: Order) -> list[tuple[Condition | PatternNode, str]]:
    """Every numbered condition of a rule beside what is wrong with it, '' where it holds, for `explain`.

    Conditions that need the whole pattern are left out where the pattern is not matched to its end.
    """
    candidate = _candidate(found, view, order)
    listed: list[tuple[Condition | PatternNode, str]] = []
    for item in found.rule.numbered:
        if isinstance(item, PatternNode):
            failed = isinstance(found, Mismatch) and found.failed is item
            listed.append((item, found.sentence([item.op_type]) if isinstance(found, Mismatch) and failed else ""))
        elif isinstance(found, Match) or REQUIREMENTS[item.kind].partial:
            fault = REQUIREMENTS[item.kind].check(candidate, item)
            listed.append((item, fault[0] if fault else ""))
    return listed


def _refuse_mismatches(missing: Sequence[Mismatch], view: DataflowGraph, order: Order) -> Refusal:
    """Patterns that fail at a labelled node: refused by that, or by a condition with a smaller number.

    Where several rules would have had different operators at that place, the sentence names them all.
    """
    found = max(missing, key=lambda mismatch: mismatch.failed.number)
    candidate = _candidate(found, view, order)
    for condition in found.rule.conditions:
        if condition.number < found.failed.number and REQUIREMENTS[condition.kind].partial:
            fault = REQUIREMENTS[condition.kind].check(candidate, condition)
            if fault is not None:
                return _refusal(found.rule, view, anchor=found.anchor, condition=condition, fault=fault)
    operators = list(dict.fromkeys(other.failed.op_type for other in missing))
    fault = found.sentence(operators), found.fault.at
    return _refusal(found.rule, view, anchor=found.anchor, condition=found.failed, fault=fault)


def _candidate(found: Match | Mismatch, view: DataflowGraph, order: Order) -> Candidate:
    return Candidate(view, found.anchor, found.values, found.variadic, order, found.nodes)


def _refusal(
    rule: Rule, view: DataflowGraph, *, anchor: int, condition: Condition | PatternNode, fault: tuple[str, str]
) -> Refusal:
    reason, at = fault
    label = view.nodes[anchor].label
    return Refusal(rule.op_type, label, condition.number, condition.name, reason, at, view.scope.title)
