"""What running is to reach, beside what was measured: `python benchmarks/execute.py --targets [MODEL...]`.

Models that are given take the place of the demo models by the name of their file; some are only measured if they are
given. Every ratio is the median over turns that the engines take in one process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from rich.table import Table

from graphopt.demo_models import build, rrdbnet


class Case(NamedTuple):
    """One measurement."""

    role: str
    size: tuple[int, int]
    batch: int = 1


Results = dict[Case, dict[str, Any]]

X4PLUS, ANIME, VIDEO = "realesrgan-x4plus", "realesrgan-x4plus-anime", "realesr-animevideov3-x4"
GENERAL, SPAN, SMALL = "realesr-general-x4v3", "span-x4", "rrdbnet of 6 blocks"
DETECTION, DENSENET = "PP-OCR det", "DenseNet-121"
# By what is in a file's name; the first that fits counts.
_NAMES = {
    "x4plus-anime": ANIME,
    "animevideo": VIDEO,
    "x4plus": X4PLUS,
    "general": GENERAL,
    "span": SPAN,
    "det": DETECTION,
    "densenet": DENSENET,
}
_LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

SMALLER, LARGER = Case(X4PLUS, (64, 64)), Case(X4PLUS, (128, 128))
"""The sizes between which time grows; unfused runs are measured at both."""
ODD, BATCH = Case(X4PLUS, (61, 83)), Case(X4PLUS, (64, 64), 2)
SIZES = {
    ANIME: [(64, 64), (128, 128)],
    VIDEO: [(64, 64), (128, 128)],
    GENERAL: [(64, 64), (128, 128)],
    SPAN: [(64, 64), (128, 128)],
    DETECTION: [(320, 320), (640, 480)],
    DENSENET: [(224, 224)],
}


def role_of(file: Path) -> str | None:
    """Which of the models that targets speak of a file holds."""
    return next((role for part, role in _NAMES.items() if part in file.stem.lower()), None)


def model_of(role: str, given: Mapping[str, Path]) -> onnx.ModelProto | None:
    """The given model, else the demo of that name, else None."""
    if role in given:
        return onnx.load(given[role])
    if role == SMALL:
        return rrdbnet(blocks=6)
    if role == DENSENET:
        return onnx.load(_LIGHT / "light_densenet121.onnx")
    return build(role) if role in (X4PLUS, GENERAL, SPAN) else None


def cases(given: Mapping[str, Path]) -> dict[Case, list[str]]:
    """What to measure, and which engines besides onnxruntime and the fused model take turns."""
    wanted: dict[Case, list[str]] = {SMALLER: ["unfused"], LARGER: ["unfused"], ODD: [], BATCH: []}
    for role, sizes in SIZES.items():
        wanted |= {Case(role, size): [] for size in sizes}
    wanted[Case(ANIME if ANIME in given else SMALL, (32, 32))] = ["reference"]
    return wanted


def ratio(result: Mapping[str, Any] | None, engine: str, of: str = "onnxruntime") -> float | None:
    """The median of one engine's time as a multiple of another's."""
    if result is None or engine not in result["turns"]:
        return None
    turns = result["turns"]
    return statistics.median(one / other for one, other in zip(turns[engine], turns[of], strict=True))


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to reach; without numbers it is only measured."""

    what: str
    value: Callable[[Results], float | None]
    must: float | None = None
    aim: float | None = None
    at_least: bool = False
    """Whether more is better."""
    shown: str = "{:.2f}"

    def verdict(self, value: float | None) -> str:
        """What to say of a measured value."""
        if value is None or self.must is None:
            return ""
        if self._missed(value, self.must):
            return "[red]missed[/red]"
        more = self.aim is not None and not self._missed(value, self.aim)
        return "[green]aim reached[/green]" if more else "[green]reached[/green]"

    def _missed(self, value: float, limit: float) -> bool:
        return value < limit if self.at_least else value > limit


def _speed(case: Case, must: float | None = None, aim: float | None = None, what: str = "") -> Target:
    """A target for the fused model's time, of onnxruntime's."""
    height, width = case.size
    what = what or f"{case.role}, {height}x{width}" + (f", batch {case.batch}" if case.batch > 1 else "")
    return Target(f"{what}", lambda r: ratio(r.get(case), "fused"), must, aim)


def _beside_reference(results: Results) -> float | None:
    found = (ratio(result, "reference", "fused") for result in results.values())
    return next((value for value in found if value is not None), None)


def _memory(results: Results) -> float | None:
    memory = results[LARGER].get("memory")
    return None if memory is None else memory["fused"] / memory["onnxruntime"]


def _max_error(results: Results, role: str = "") -> float | None:
    """Of one model, or of all."""
    errors = [result["max_error"]["fused"] for case, result in results.items() if role in ("", case.role)]
    return max(errors, default=None)


def _relative_error(results: Results) -> float | None:
    """Of all models, as a part of the largest number that the model returns, or of 1."""
    return max((r["max_error"]["fused"] / max(1.0, r["largest"]) for r in results.values()), default=None)


_ONLY_MEASURED = (DETECTION, DENSENET)
TARGETS = (
    _speed(SMALLER, 0.7, 0.45),
    _speed(LARGER, 0.7, 0.45),
    _speed(ODD, 1.0, 0.6),
    _speed(BATCH, 1.0, 0.6),
    *(_speed(Case(ANIME, size), 0.7, 0.45) for size in SIZES[ANIME]),
    _speed(Case(VIDEO, (128, 128)), 1.1, 0.7),
    _speed(Case(GENERAL, (128, 128)), 1.3, 0.8),
    _speed(Case(SPAN, (128, 128)), 1.3, 0.8),
    *(_speed(Case(role, size)) for role in (VIDEO, GENERAL, SPAN) for size in SIZES[role][:1]),
    *(_speed(Case(role, size)) for role in _ONLY_MEASURED for size in SIZES[role]),
    *(
        Target(
            f"{X4PLUS}, {case.size[0]}x{case.size[1]}, times faster fused than unfused",
            lambda r, case=case: ratio(r.get(case), "unfused", "fused"),
            1.5,
            2.5,
            at_least=True,
        )
        for case in (SMALLER, LARGER)
    ),
    *(
        Target(
            f"{X4PLUS}, {case.size[0]}x{case.size[1]}, unfused",
            lambda r, case=case: ratio(r.get(case), "unfused"),
            1.7,
        )
        for case in (SMALLER, LARGER)
    ),
    Target(
        "RRDBNet-6, 32x32, times faster than ReferenceEvaluator",
        _beside_reference,
        20,
        50,
        at_least=True,
        shown="{:.0f}",
    ),
    Target(f"{X4PLUS}, 128x128, peak memory over loaded", _memory, 0.9, 0.5),
    Target(f"{X4PLUS}, largest error against onnxruntime", lambda r: _max_error(r, X4PLUS), 1e-4, 1e-5, shown="{:.1e}"),
    Target("all models, largest error against onnxruntime", _max_error, 1e-4, 1e-5, shown="{:.1e}"),
    Target("the same, as a part of the largest output or of 1", _relative_error, shown="{:.1e}"),
    Target(
        f"{X4PLUS}, 128x128, of its own time at 64x64",
        lambda r: r[SMALLER].get("growth"),
        4.6,
        4.0,
    ),
)


def rows(results: Results) -> list[dict[str, Any]]:
    """Every target with its measured value, for the JSON."""
    return [
        {
            "what": target.what,
            "must": target.must,
            "aim": target.aim,
            "at_least": target.at_least,
            "measured": target.value(results),
        }
        for target in TARGETS
    ]


def targets_table(results: Results) -> Table:
    """Every target beside what was measured."""
    shown = Table(title="targets; times are multiples of onnxruntime's where nothing else is said")
    shown.add_column("what")
    for heading in ("must be", "aim", "measured", ""):
        shown.add_column(heading, justify="right")
    for target in TARGETS:
        value = target.value(results)
        sign = "≥" if target.at_least else "≤"
        limits = ["" if limit is None else f"{sign} {limit:g}" for limit in (target.must, target.aim)]
        text = "not measured" if value is None else target.shown.format(value)
        shown.add_row(target.what, *limits, text, target.verdict(value))
    return shown
