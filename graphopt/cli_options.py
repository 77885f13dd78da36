"""The arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class OrderOption(StrEnum):
    """What the adjacency condition goes by."""

    sink = "sink"
    file = "file"


ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="An ONNX file, or demo:NAME (see `demo`).")]
RulesOption = Annotated[
    list[str] | None,
    typer.Option("--rules", metavar="PATH|SET", help="A shipped set's name, a rule file or a folder. (default: ngine)"),
]
SkipOption = Annotated[
    list[str] | None, typer.Option("--skip-rules", metavar="NAME", help="A fused operator to leave out.")
]
NoShareOption = Annotated[
    bool, typer.Option("--no-share-prefix", help="Do not let a longer Concat start from a shorter one.")
]
CleanupOption = Annotated[
    list[str] | None,
    typer.Option("--cleanup", metavar="NAME,...", help="Cleanups to run before the rules. (default: the set's own)"),
]
NoCleanupOption = Annotated[bool, typer.Option("--no-cleanup", help="Run no cleanup.")]
FoldOption = Annotated[
    bool,
    typer.Option(
        "--fold-batchnorm",
        help="Fold BatchNormalizations into the weights before them; changes rounding, so the result is verified.",
    ),
]
OrderArgument = Annotated[
    OrderOption,
    typer.Option("--order", help="'Immediately before' in the engine's own order (sink) or in that of the file."),
]

ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME:1,3,64,64", help="The shape of an input that the model leaves open."),
]
InputOption = Annotated[
    list[str] | None, typer.Option("--input", metavar="NAME:FILE", help="An input's content, a .npy or .pb file.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="What random inputs start from.")]
RelativeOption = Annotated[float | None, typer.Option("--rtol", help="In place of the element type's tolerance.")]
AbsoluteOption = Annotated[float | None, typer.Option("--atol", help="In place of the element type's tolerance.")]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME|FILE", help="An engine; a fusion that it has no kernel for is refused."),
]
FastOption = Annotated[
    bool, typer.Option("--fast", help="Verify ngine_ref's fast paths too, not only its readable kernels.")
]
