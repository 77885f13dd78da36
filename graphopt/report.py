"""A report as rich tables for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from graphopt.explanation import Explanation, Verdict
from graphopt.folding.batchnorm_folding import RULE as FOLDING
from graphopt.ledger import Refusal, Report
from graphopt.matching.eligibility import sentence
from graphopt.rule import Condition, PatternNode, Rule
from graphopt.targets.target_check import CANNOT_RUN, Problem
from graphopt.wording import listed

if TYPE_CHECKING:
    from graphopt.verifying.verification_report import VerificationReport

JSON_SCHEMA = 1
"""The version of the JSON report: keys may be added, never renamed."""

MOST_RULES = 8
"""With more rules than this, those that found no candidate share a line."""

_MARKS = {True: Text("✓", "green"), False: Text("✗", "red"), None: Text("–", "dim")}
_OUTCOMES = {"fused": "green", "refused": "yellow", "absorbed": "cyan", "cleaned up": "cyan", "no match": "dim"}


def to_json(report: Report, *, output: str | None = None, verification: Mapping[str, Any] | None = None) -> str:
    """The report as JSON text, with the keys of schema 1."""
    content = {
        "schema": JSON_SCHEMA,
        "model": report.model,
        "output": output,
        "nodes": {"before": report.nodes_before, "after": report.nodes_after},
        "ops": {"before": dict(report.ops_before), "after": dict(report.ops_after)},
        "counts": dict(report.counts),
        "shared_prefixes": report.shared_prefixes,
        "cleanups": dict(report.cleanups),
        "functions": report.functions,
        "rules_digest": report.rules_digest,
        "fusions": [fusion._asdict() for fusion in report.fusions],
        "refusals": [asdict(refusal) for refusal in report.refusals],
        "absorptions": [asdict(absorption) for absorption in report.absorptions],
        "certificate": asdict(report.certificate),
        "changes_values": report.changes_values,
        "verification": verification,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def fusion_tables(report: Report, width: int) -> RenderableType:
    """What a fusion did: rules, operators, and a sentence each for what was shared and proven."""
    tables = [_rules_table(report), _operators_table(report)]
    if width >= 110:
        side_by_side = Table.grid(padding=(0, 4))
        side_by_side.add_row(*tables)
        body: list[RenderableType] = [side_by_side]
    else:
        body = [tables[0], Text(), tables[1]]
    return Group(*body, Text(), *_sentences(report))


def _rules_table(report: Report) -> Table:
    table = _table("Rule", "Fused", "Refused", "Why not")
    refused: dict[str, list[Refusal]] = {}
    for refusal in report.refusals:
        refused.setdefault(refusal.rule, []).append(refusal)
    idle = [rule for rule, count in report.counts.items() if not count and rule not in refused]
    hidden = idle if len(report.counts) > MOST_RULES else []
    for rule, count in report.counts.items():
        if rule in hidden:
            continue
        refusals = refused.get(rule, [])
        table.add_row(
            Text(rule, "bold" if count else "dim"), _number(count), _number(len(refusals)), _reasons(refusals)
        )
    if hidden:
        table.add_row(Text(f"{len(hidden)} others", "dim"), _number(0), _number(0), "")
    return table


def _reasons(refusals: Sequence[Refusal]) -> Text:
    common = Counter((refusal.condition, refusal.name) for refusal in refusals).most_common()
    parts = [f"{count} × {name}{f' ({number})' if number else ''}" for (number, name), count in common[:3]]
    if len(common) > 3:
        parts.append(f"{sum(count for _, count in common[3:])} × other")
    return Text("\n".join(parts), "yellow")


def _operators_table(report: Report) -> Table:
    table = _table("Operator", "Before", "After", text_columns=1)
    names = sorted(
        {*report.ops_before, *report.ops_after},
        key=lambda name: (-report.ops_before.get(name, 0), -report.ops_after.get(name, 0), name),
    )
    shown = names if len(names) <= 16 else names[:15]
    for name in shown:
        _operator_row(table, name, report.ops_before.get(name, 0), report.ops_after.get(name, 0))
    rest = names[len(shown) :]
    if rest:
        before, after = (sum(ops.get(name, 0) for name in rest) for ops in (report.ops_before, report.ops_after))
        _operator_row(table, f"{len(rest)} others", before, after)
    table.add_section()
    _operator_row(table, "all nodes", report.nodes_before, report.nodes_after)
    return table


def _operator_row(table: Table, name: str, before: int, after: int) -> None:
    style = "green" if after > before else "dim" if after == before else ""
    table.add_row(Text(name, style), _number(before), _number(after))


def _sentences(report: Report) -> Iterable[Text]:
    before, after = report.nodes_before, report.nodes_after
    saved = f", {100 * (before - after) / before:.0f} % fewer" if after < before else ", as before"
    yield Text(f"{before:,} nodes became {after:,}{saved}.")
    if report.shared_prefixes:
        noun = "Concat starts" if report.shared_prefixes == 1 else "Concats start"
        yield Text(f"{report.shared_prefixes:,} {noun} from a shorter one that was already there.")
    if any(report.cleanups.values()):
        removed = ", ".join(f"{count:,} {name}" for name, count in report.cleanups.items() if count)
        yield Text(f"Cleaned up: {removed}.")
    if after == before and not report.fusions and not report.cleaned:
        yield Text("Nothing was fused; the model is unchanged.")
    else:
        yield from _proof(report)
        if not report.functions:
            yield Text("The fused operators have no bodies in the model: it runs only where kernels exist for them.")
    if report.refusals:
        count = len(report.refusals)
        noun = "candidate was" if count == 1 else "candidates were"
        yield Text(f"{count:,} {noun} refused; `graphopt explain` with these options says why.", "yellow")


def _proof(report: Report) -> Iterable[Text]:
    folded, outputs = report.counts.get(FOLDING, 0), report.certificate.outputs
    if report.changes_values:
        noun = "BatchNormalization was" if folded == 1 else "BatchNormalizations were"
        yield Text(
            f"{folded:,} {noun} folded into weights, which changes how numbers are rounded: that is verified by "
            "running both models, it cannot be proven.",
            "yellow",
        )
    noun = "output is the same expression" if outputs == 1 else "outputs are the same expressions"
    since = "in the folded model" if report.changes_values else "before"
    yield Text(f"Proven: {outputs} {noun} of the inputs as {since}.", "green")


def explanation_tables(explanations: Sequence[Explanation], *, detailed: bool) -> RenderableType:
    """Why candidates were or were not fused: each with its conditions, or a line for each."""
    if detailed:
        return Group(*(_detailed(explanation) for explanation in explanations))
    table = _table("Rule", "Node", "Outcome", "Why", text_columns=4)
    for item in explanations:
        node = f"{item.anchor} in {item.scope}" if item.scope else item.anchor
        failed = next((verdict for verdict in item.verdicts if verdict.holds is False), None)
        why = f"({failed.number}) {failed.name}: {item.sentence}" if failed else item.sentence
        table.add_row(item.rule, node, Text(item.outcome, _OUTCOMES[item.outcome]), why)
    return table


def _detailed(item: Explanation) -> RenderableType:
    where = f" in {item.scope}" if item.scope else ""
    heading = Text.assemble((item.anchor, "bold"), where, " as ", (item.rule or "anything", "bold"), ": ")
    heading.append(item.outcome, _OUTCOMES[item.outcome])
    if item.sentence and item.outcome != "refused":
        heading.append(f", {item.sentence}")
    rows = Table.grid(padding=(0, 1))
    for verdict in item.verdicts:
        rows.add_row(Text(str(verdict.number), "dim"), _MARKS[verdict.holds], verdict.name, _because(verdict))
    return Group(heading, Padding(rows, (0, 0, 1, 2)))


def _because(verdict: Verdict) -> Text:
    if verdict.holds is None:
        return Text("not asked: the pattern ends before", "dim")
    return Text(verdict.sentence, "yellow")


def rules_table(rules: Iterable[Rule]) -> RenderableType:
    """The rules with what they stand for and what they require; those that one text makes for many producers in one."""
    table = _table("Rule", "Stands for", "Requires", text_columns=3)
    for _, alike in groupby(rules, key=lambda rule: (rule.key, rule.source, rule.line)):
        rule, *others = group = list(alike)
        operators = [list(dict.fromkeys(made)) for made in zip(*map(_operators_of, group), strict=True)]
        stands_for = " → ".join(names[0] if len(names) == 1 else "any producer" for names in operators)
        made_by = {node.number: listed(names, "or") for node, names in zip(rule.body, operators, strict=True)}
        requires = "\n".join(_requirement(item, made_by) for item in rule.numbered if item.number)
        title = rule.op_type if others else rule.title
        table.add_row(Text(title.replace("[", "\n["), "bold"), stands_for, requires)
        table.add_section()
    return table


def _operators_of(rule: Rule) -> list[str]:
    return [node.op_type for node in rule.body]


def _requirement(item: Condition | PatternNode, made_by: Mapping[int, str]) -> str:
    if isinstance(item, Condition):
        return f"{item.number} {item.name}: {sentence(item)}"
    return f"{item.number} {item.name}: {item.outputs[0]} is made by {made_by[item.number]}"


def verification_table(report: VerificationReport) -> RenderableType:
    """The values that come closest to what is tolerated, or past it, what was fed, and the outcome in a sentence."""
    table = _table("Value", "Operator", "Abs error", "Rel error", "Of tolerance", "At", text_columns=2)
    worst = sorted(report.values, key=lambda value: (value.ok, -value.difference.of_tolerance))[:5]
    for value in worst:
        found = value.difference
        place = found.reason or ",".join(map(str, found.at))
        style = "" if value.ok else "red"
        table.add_row(
            Text(value.name, style),
            value.made_by.split(" ")[0],
            f"{found.max_abs_error:.1e}",
            f"{found.max_rel_error:.1e}",
            f"{found.of_tolerance:.2g}",
            place,
        )
    return Group(table, Text(), *_verification_sentences(report))


def _verification_sentences(report: VerificationReport) -> Iterable[Text]:
    for name, shape in report.feeds.items():
        chosen = "; the model leaves this open, --shape chooses another" if name in report.assumed else ""
        yield Text(f"Fed {name} of shape {'x'.join(map(str, shape)) or 'scalar'} (seed {report.seed}{chosen}).")
    first = report.first_mismatch
    if first is not None:
        count = len(report.mismatches)
        yield Text(
            f"{count} of {len(report.values)} values differ; the first is {first.name!r}, made by {first.made_by}.",
            "red",
        )
    else:
        yield Text(
            f"{len(report.values)} values agree with onnxruntime on the original: max abs error "
            f"{report.max_abs_error:.1e}.",
            "green",
        )
        inherited = sum(value.inherited for value in report.values)
        if inherited:
            yield Text(
                f"{inherited} of them when their node is given onnxruntime's own inputs: rounding had grown on the way."
            )
    if report.onnxruntime_runs_fused is False:
        yield Text("onnxruntime gives other outputs for the fused model.", "red")
    elif report.onnxruntime_runs_fused:
        yield Text("onnxruntime itself gives the same outputs for the fused model.", "green")


def check_table(problems: Sequence[Problem], target: str) -> RenderableType:
    """The nodes that a target cannot run, or runs differently, and how many there are."""
    if not problems:
        return Text(f"The target {target} runs every node as ONNX defines it.", "green")
    table = _table("", "Operator", "Node", "Why", text_columns=4)
    for problem in problems:
        style = "red" if problem.severity == CANNOT_RUN else "yellow"
        node = f"{problem.node} in {problem.scope}" if problem.scope else problem.node
        table.add_row(Text(problem.severity, style), problem.operator, node, problem.reason)
    counts = Counter(problem.severity for problem in problems)
    outcome = [f"{count:,} × {severity}" for severity, count in counts.items()]
    return Group(table, Text(), Text(f"The target {target}: {', '.join(outcome)}."))


def demo_table(reports: Mapping[str, Report]) -> RenderableType:
    """A column for each model, and a sentence on the proofs."""
    table = _table("", *reports, text_columns=1)
    table.add_row("nodes before", *(_number(report.nodes_before) for report in reports.values()))
    for rule in next(iter(reports.values())).counts:
        table.add_row(Text(rule, "bold"), *(_number(report.counts[rule]) for report in reports.values()))
    table.add_row("nodes after", *(_number(report.nodes_after) for report in reports.values()))
    outputs = sum(report.certificate.outputs for report in reports.values())
    proven = Text(f"Proven for all {outputs} outputs: the same expressions of the inputs as before.", "green")
    return Group(table, Text(), proven, Text("Try one: graphopt fuse demo:realesrgan-x4plus", "dim"))


def _table(*columns: str, text_columns: int | None = None) -> Table:
    """A table whose first column, and last if it is a fourth, hold text; numbers stand right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        is_text = place in (0, 3) if text_columns is None else place < text_columns
        table.add_column(name, justify="left" if is_text else "right", overflow="fold")
    return table


def _number(count: int) -> Text:
    return Text(f"{count:,}", "" if count else "dim")


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that has colour only where a person looks at it."""
    return Console(stderr=stderr, quiet=quiet, highlight=False, soft_wrap=False)
