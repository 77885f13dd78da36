"""What one benchmark measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

OURS = "graphopt"
OVER_LIMIT = "over the limit"


@dataclass
class Result:
    """What was measured of one tool on one graph, in process or as a command line."""

    graph: str
    tool: str
    command_line: bool
    nodes: int
    nodes_after: int | None = None
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Processor time, of all threads; on a busy machine it is the steadier of the two."""
    peak_megabytes: float = 0.0
    failure: str | None = None

    def median(self, *, cpu: bool) -> float | None:
        """Seconds; None where the tool failed."""
        measured = self.cpu_seconds if cpu else self.seconds
        return statistics.median(measured) if measured and not self.failure else None


def by_key(results: Iterable[Result]) -> dict[tuple[str, bool, str], Result]:
    """The results by graph, whether it is a command line, and tool."""
    return {(result.graph, result.command_line, result.tool): result for result in results}
