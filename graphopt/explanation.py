"""Why each candidate was or was not fused: the same run as a fusion, watched at every decision."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from graphopt.cleanups.names import CLEANUPS
from graphopt.errors import UsageError
from graphopt.folding.batchnorm_candidates import CONDITIONS, FINITE
from graphopt.folding.batchnorm_folding import RULE as FOLDING
from graphopt.folding.batchnorm_folding import Folding, fold_batchnorms
from graphopt.fusion import Rules, fuse
from graphopt.fusion_result import FusionResult
from graphopt.graph.dataflow import DataflowGraph
from graphopt.ledger import Refusal
from graphopt.matching.eligibility import REQUIREMENTS, Candidate, Order
from graphopt.matching.match import Match, Mismatch
from graphopt.matching.matcher import match
from graphopt.model_files import model_io
from graphopt.model_files.model_io import LoadedModel, Model
from graphopt.rule import PatternNode, Rule
from graphopt.rule_files import DEFAULT_SET
from graphopt.rule_files.rule_set import RuleSet, load_rules
from graphopt.targets.target import Target


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition, and whether it holds for a candidate."""

    number: int
    name: str
    holds: bool | None
    """None where the pattern was not matched far enough to ask."""
    sentence: str = ""
    """What is wrong, where it does not hold."""
    at: str = ""
    """The node or value at fault."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of one node as the anchor of one fused operator."""

    rule: str
    anchor: str
    """The node, as `Concat 'name'`."""
    outcome: str
    """"fused", "refused", "absorbed", "cleaned up" or "no match"."""
    verdicts: tuple[Verdict, ...]
    sentence: str = ""
    """Why there is no match, or what the fused node is called."""
    scope: str = ""


class _Watcher:
    """Notes every decision about the anchors that somebody asks for."""

    def __init__(self, node: str | None) -> None:
        self.node = node
        self.explanations: list[Explanation] = []

    def __call__(
        self,
        rules: Sequence[Rule],
        view: DataflowGraph,
        anchor: int,
        decision: Match | Refusal | str | None,
        order: Order,
    ) -> None:
        node = view.nodes[anchor]
        if self.node is None:
            if decision is None:
                return
        elif self.node != node.name and self.node not in node.outputs:
            return
        best = _furthest(rules, view, anchor, order)
        verdicts, no_match = best
        if isinstance(decision, str):
            outcome, sentence = "absorbed", f"an earlier fusion took it: {decision!r}"
        elif isinstance(decision, Match):
            outcome, sentence = "fused", ""
        elif isinstance(decision, Refusal):
            outcome, sentence = "refused", decision.reason
        else:
            outcome, sentence = "no match", no_match
        self.explanations.append(
            Explanation(rules[0].op_type, node.title, outcome, tuple(verdicts), sentence, view.scope.title)
        )


def explain(
    model: Model,
    node: str | None = None,
    *,
    rules: Rules = DEFAULT_SET,
    skip_rules: Iterable[str] = (),
    share_prefix: bool = True,
    order: Order = "sink",
    cleanups: Iterable[str] | None = None,
    fold_batchnorm: bool = False,
    target: str | os.PathLike[str] | Target | None = None,
) -> tuple[list[Explanation], FusionResult]:
    """Every decision of a fusion, or those about one node, with each condition's verdict.

    Args:
        model, rules, skip_rules, share_prefix, order, cleanups, target: as of `fuse`.
        node: a node's name, or the name of a value it makes; None for every candidate.
        fold_batchnorm: as of `fuse`, but nothing is run and compared: nothing is kept.

    Raises:
        UsageError: the model has no such node.
        As `fuse`.
    """
    watcher = _Watcher(node)
    if fold_batchnorm:
        loaded = model if isinstance(model, LoadedModel) else model_io.load(model)
        folding = fold_batchnorms(loaded, rules if isinstance(rules, RuleSet) else load_rules(rules, skip=skip_rules))
        watcher.explanations += _foldings(folding, node)
        model = replace(loaded, model=folding.model)
    result = fuse(
        model,
        rules=rules,
        skip_rules=skip_rules,
        share_prefix=share_prefix,
        order=order,
        cleanups=cleanups,
        target=target,
        observer=watcher,
    )
    if node is not None and not watcher.explanations:
        watcher.explanations += _as_part(node, result)
    return watcher.explanations, result


def _foldings(folding: Folding, node: str | None) -> Iterator[Explanation]:
    """What became of each BatchNormalization, or of the one that is asked for."""
    names = [*(name for name, _ in CONDITIONS), FINITE[1]]
    for fusion in folding.fusions:
        if node is None or node in (*fusion.replaces, *fusion.outputs):
            verdicts = tuple(Verdict(number, name, True) for number, name in enumerate(names, start=1))
            sentence = f"it is folded into {fusion.node!r}"
            yield Explanation(FOLDING, fusion.replaces[-1], "fused", verdicts, sentence, fusion.scope)
    for refusal in folding.refusals:
        if node in (None, refusal.anchor):
            yield Explanation(FOLDING, refusal.anchor, "refused", _up_to(refusal, names), refusal.reason, refusal.scope)


def _up_to(refusal: Refusal, names: Sequence[str]) -> tuple[Verdict, ...]:
    """The verdicts of conditions that were asked one after the other, until one did not hold."""
    return tuple(
        Verdict(number, name, True if number < refusal.condition else None)
        if number != refusal.condition
        else Verdict(number, name, False, refusal.reason, refusal.at)
        for number, name in enumerate(names, start=1)
    )


def _as_part(node: str, result: FusionResult) -> list[Explanation]:
    """What became of a node that is no anchor: part of a fused node, or nothing."""
    for fusion in reversed(result.report.fusions):
        if node in fusion.replaces or node == fusion.node:
            sentence = f"it is part of {fusion.rule} {fusion.node!r}"
            return [Explanation(fusion.rule, node, "fused", (), sentence, fusion.scope)]
    for item in result.report.cleaned:
        if node == item.node or node in item.values:
            return [Explanation(item.cleanup, item.node, "cleaned up", (), CLEANUPS[item.cleanup], item.scope)]
    for proto in result.model.graph.node:
        if node == proto.name or node in proto.output:
            sentence = f"no rule is anchored at {proto.op_type}"
            return [Explanation("", f"{proto.op_type} {node!r}", "no match", (), sentence)]
    raise UsageError(f"{result.report.model} has no node or value {node!r}; `graphopt explain MODEL` lists candidates.")


def _furthest(rules: Sequence[Rule], view: DataflowGraph, anchor: int, order: Order) -> tuple[list[Verdict], str]:
    """The verdicts of the rule and operand order that got furthest, and the reason where not even the shape fits."""
    best: list[Verdict] = []
    best_score = -1
    missing: list[Mismatch] = []
    for rule in rules:
        for found in match(rule, view, anchor):
            if isinstance(found, Mismatch):
                missing.append(found)
            verdicts = _verdicts(found, view, order)
            score = sum(verdict.holds is True for verdict in verdicts) + isinstance(found, Match) * len(verdicts)
            if score > best_score:
                best, best_score = verdicts, score
    if not missing:
        return best, ""
    sentence = missing[0].sentence(list(dict.fromkeys(other.failed.op_type for other in missing)))
    failed = {other.failed.number for other in missing}
    if len(missing) > 1:  # several rules, each with another operator at the same place
        best = [replace(v, sentence=sentence) if v.number in failed and v.holds is False else v for v in best]
    return best, sentence


def _verdicts(found: Match | Mismatch, view: DataflowGraph, order: Order) -> list[Verdict]:
    nodes = found.nodes if isinstance(found, Match) else ()
    candidate = Candidate(view, found.anchor, found.values, found.variadic, order, nodes)
    verdicts: list[Verdict] = []
    for item in found.rule.numbered:
        if isinstance(item, PatternNode):
            if isinstance(found, Match):
                verdicts.append(Verdict(item.number, item.name, True))
            elif found.failed is item:
                verdicts.append(Verdict(item.number, item.name, False, found.sentence([item.op_type]), found.fault.at))
            else:
                verdicts.append(Verdict(item.number, item.name, None))
        elif item.number:
            requirement = REQUIREMENTS[item.kind]
            if isinstance(found, Match) or requirement.partial:
                fault = requirement.check(candidate, item)
                reason, at = fault or ("", "")
                verdicts.append(Verdict(item.number, item.name, fault is None, reason, at))
            else:
                verdicts.append(Verdict(item.number, item.name, None))
    return verdicts
