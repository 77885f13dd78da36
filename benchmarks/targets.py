"""What rewriting is to reach, beside what was measured: `python benchmarks/rewrite.py --targets`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from results import OURS, OVER_LIMIT, Result, by_key
from rich.table import Table

PEER = "onnxsim"
GRAPHS_NEEDED = ("rrdbnet-1k", "rrdbnet-9k", "rrdbnet-94k", "rrdbnet-300k", "external-12g")
HELP = "help"
"""What the measurement of `graphopt --help` goes by in place of a graph's name."""


class Measured:
    """The numbers that targets speak of; each is None where it was not measured."""

    def __init__(self, results: Iterable[Result], limit: float, *, cpu: bool) -> None:
        self._results = by_key(results)
        self._limit, self._cpu = limit, cpu

    def seconds(self, graph: str, *, command_line: bool = False, tool: str = OURS) -> float | None:
        """The median; for a tool that was stopped the limit, since it would have taken longer."""
        result = self._results.get((graph, command_line, tool))
        if result is None:
            return None
        return self._limit if result.failure == OVER_LIMIT else result.median(cpu=self._cpu)

    def of_peer(self, graph: str, *, command_line: bool = False) -> float | None:
        """Our time as a part of the peer's."""
        ours = self.seconds(graph, command_line=command_line)
        return _divided(ours, self.seconds(graph, command_line=command_line, tool=PEER))

    def growth(self, small: str, large: str, *, each_node: bool = False) -> float | None:
        """How many times the time the larger graph takes, or each node of it."""
        times = _divided(self.seconds(large), self.seconds(small))
        if times is None or not each_node:
            return times
        return times * self._results[small, False, OURS].nodes / self._results[large, False, OURS].nodes

    def peak(self, graph: str, *, command_line: bool = False) -> float | None:
        """Our peak memory in MB."""
        result = self._results.get((graph, command_line, OURS))
        return None if result is None or result.failure else result.peak_megabytes


def _divided(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to reach: the smaller, the better."""

    what: str
    must: float
    aim: float | None
    value: Callable[[Measured], float | None]
    shown: str = "{:.3f}"


TARGETS = (
    Target("RRDBNet-23 in process, of onnxsim's time", 0.20, 0.15, lambda m: m.of_peer("rrdbnet-1k")),
    Target("9k nodes, of onnxsim's time", 0.15, 0.10, lambda m: m.of_peer("rrdbnet-9k")),
    Target("growth from 9k to 94k nodes", 12, 10, lambda m: m.growth("rrdbnet-9k", "rrdbnet-94k"), "{:.1f}"),
    Target("94k nodes, of onnxsim's time", 0.05, 0.03, lambda m: m.of_peer("rrdbnet-94k")),
    Target("94k nodes, peak memory in MB", 1100, 800, lambda m: m.peak("rrdbnet-94k"), "{:.0f}"),
    Target(
        "300k nodes, time a node, of that at 94k",
        1.2,
        None,
        lambda m: m.growth("rrdbnet-94k", "rrdbnet-300k", each_node=True),
        "{:.2f}",
    ),
    Target("command line on RRDBNet-23, of onnxsim's", 0.6, 0.4, lambda m: m.of_peer("rrdbnet-1k", command_line=True)),
    Target("12 GiB external, seconds", 3, None, lambda m: m.seconds("external-12g", command_line=True), "{:.2f}"),
    Target(
        "12 GiB external, peak memory in MB", 400, None, lambda m: m.peak("external-12g", command_line=True), "{:.0f}"
    ),
    Target("graphopt --help, seconds", 0.3, None, lambda m: m.seconds(HELP, command_line=True), "{:.2f}"),
)


def rows(measured: Measured) -> list[dict[str, Any]]:
    """Every target with its measured value, for the JSON."""
    return [
        {"what": target.what, "must": target.must, "aim": target.aim, "measured": target.value(measured)}
        for target in TARGETS
    ]


def targets_table(measured: Measured) -> Table:
    """Every target beside what was measured."""
    shown = Table(title="targets")
    shown.add_column("what")
    for heading in ("at most", "aim", "measured", ""):
        shown.add_column(heading, justify="right")
    for target in TARGETS:
        value = target.value(measured)
        aim = "" if target.aim is None else f"{target.aim:g}"
        text = "not measured" if value is None else target.shown.format(value)
        shown.add_row(target.what, f"{target.must:g}", aim, text, _verdict(target, value))
    return shown


def _verdict(target: Target, value: float | None) -> str:
    if value is None:
        return ""
    if value > target.must:
        return "[red]missed[/red]"
    return "[green]aim reached[/green]" if target.aim is None or value <= target.aim else "[green]reached[/green]"
