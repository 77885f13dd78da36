"""The arguments and options that several commands share, and the panels that `--help` shows them in."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class OrderOption(StrEnum):
    """What the adjacency condition goes by."""

    sink = "sink"
    file = "file"


def what_is_fused(name: str, **details: Any) -> Any:
    """An option that decides what is fused."""
    return typer.Option(name, rich_help_panel="What is fused", **details)


def what_is_written(name: str, **details: Any) -> Any:
    """An option that decides what is written, and where."""
    return typer.Option(name, rich_help_panel="What is written", **details)


def verification(name: str, **details: Any) -> Any:
    """An option about comparing numbers."""
    return typer.Option(name, rich_help_panel="Verification", **details)


ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="An ONNX file, or demo:NAME (see `demo`).")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

RulesOption = Annotated[
    list[str] | None,
    what_is_fused(
        "--rules", metavar="PATH|SET", help="A shipped set's name, a rule file or a folder. (default: ngine)"
    ),
]
SkipOption = Annotated[
    list[str] | None, what_is_fused("--skip-rules", metavar="NAME", help="A fused operator to leave out.")
]
NoShareOption = Annotated[
    bool, what_is_fused("--no-share-prefix", help="Do not let a longer Concat start from a shorter one.")
]
OrderArgument = Annotated[
    OrderOption,
    what_is_fused("--order", help="'Immediately before' in the engine's own order (sink) or in that of the file."),
]
TargetOption = Annotated[
    str | None,
    what_is_fused("--target", metavar="NAME|FILE", help="An engine; a fusion that it has no kernel for is refused."),
]
CleanupOption = Annotated[
    list[str] | None,
    what_is_fused("--cleanup", metavar="NAME,...", help="Cleanups to run. (default: the rule set's own)"),
]
NoCleanupOption = Annotated[bool, what_is_fused("--no-cleanup", help="Run no cleanup.")]
FoldOption = Annotated[
    bool,
    what_is_fused(
        "--fold-batchnorm",
        help="Fold BatchNormalizations into the weights before them; changes rounding, so the result is verified.",
    ),
]

NoFunctionsOption = Annotated[
    bool, what_is_written("--no-functions", help="Bare calls, for engines that have a kernel for each.")
]
DryRunOption = Annotated[bool, what_is_written("--dry-run", help="Write no model, only say what would be done.")]
ReportOption = Annotated[
    Path | None, what_is_written("--report", metavar="FILE.json", help="Write the report as JSON.")
]
ExternalDataOption = Annotated[
    bool, what_is_written("--save-as-external-data", help="Put the weights into a file beside the model, OUTPUT.data.")
]
ThresholdOption = Annotated[
    int,
    what_is_written(
        "--external-data-threshold", metavar="BYTES", min=0, help="The size from which a weight goes there."
    ),
]
LinkOption = Annotated[
    bool,
    what_is_written(
        "--link-weights",
        help="Take external weights along as hard links; onnxruntime loads such files, onnx's own loader does not.",
    ),
]

VerifyOption = Annotated[
    bool, verification("--verify", help="Run original and result, and compare every value, before writing.")
]
ShapeOption = Annotated[
    list[str] | None,
    verification("--shape", metavar="NAME:1,3,64,64", help="The shape of an input that the model leaves open."),
]
InputOption = Annotated[
    list[str] | None, verification("--input", metavar="NAME:FILE", help="An input's content, a .npy or .pb file.")
]
SeedOption = Annotated[int, verification("--seed", min=0, help="What random inputs start from.")]
RelativeOption = Annotated[
    float | None, verification("--rtol", min=0.0, help="In place of the element type's relative tolerance.")
]
AbsoluteOption = Annotated[
    float | None, verification("--atol", min=0.0, help="In place of the element type's absolute tolerance.")
]
FastOption = Annotated[
    bool, verification("--fast", help="Verify ngine_ref's fast paths too, not only its readable kernels.")
]
