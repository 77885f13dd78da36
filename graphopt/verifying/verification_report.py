"""What comparing two models by numbers showed, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphopt.verifying.comparison import Difference


@dataclass(frozen=True, slots=True)
class ValueComparison:
    """One value that both models have."""

    name: str
    made_by: str
    """The node of the fused model that makes it."""
    difference: Difference
    inherited: bool = False
    """Whether it is out of tolerance only because its node's inputs were rounded otherwise, see `node_check`."""

    @property
    def ok(self) -> bool:
        """Whether the node that makes it is right."""
        return self.difference.ok or self.inherited


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What running both models showed."""

    ok: bool
    values: tuple[ValueComparison, ...]
    """In the order in which the fused model makes them, graph outputs among them."""
    feeds: Mapping[str, tuple[int, ...]]
    """The shapes that were fed, by input."""
    assumed: Mapping[str, tuple[int, ...]]
    """Of these, the ones that a default was chosen for."""
    seed: int
    onnxruntime_runs_fused: bool | None
    """Whether onnxruntime gives the same outputs for the fused model; None where it cannot run it, for it carries no
    functions."""

    @property
    def first_mismatch(self) -> ValueComparison | None:
        """The first value that differs: where the trouble begins."""
        return next((value for value in self.values if not value.ok), None)

    @property
    def mismatches(self) -> list[ValueComparison]:
        """Every value that differs."""
        return [value for value in self.values if not value.ok]

    def as_json(self) -> dict[str, Any]:
        """The report's part in the JSON report."""
        first = self.first_mismatch
        return {
            "ok": self.ok,
            "max_abs_error": self.max_abs_error,
            "max_rel_error": self.max_rel_error,
            "values": len(self.values),
            "inherited": sum(value.inherited for value in self.values),
            "mismatches": len(self.mismatches),
            "first_mismatch": None if first is None else {"value": first.name, "node": first.made_by},
            "onnxruntime_runs_fused": self.onnxruntime_runs_fused,
            "feeds": {name: list(shape) for name, shape in self.feeds.items()},
            "assumed": {name: list(shape) for name, shape in self.assumed.items()},
            "seed": self.seed,
        }

    @property
    def max_abs_error(self) -> float:
        """The largest absolute error of all values."""
        return max((value.difference.max_abs_error for value in self.values), default=0.0)

    @property
    def max_rel_error(self) -> float:
        """The largest relative error of all values."""
        return max((value.difference.max_rel_error for value in self.values), default=0.0)
