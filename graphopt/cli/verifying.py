"""The command that compares numbers: verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli.app import app
from graphopt.cli.options import (
    AbsoluteOption,
    FastOption,
    InputOption,
    QuietOption,
    RelativeOption,
    ReportOption,
    SeedOption,
    ShapeOption,
)

if TYPE_CHECKING:
    from graphopt.model_files.model_io import LoadedModel
    from graphopt.verifying.verification_report import VerificationReport


@app.command()
def verify(
    original: Annotated[str, typer.Argument(metavar="ORIGINAL", help="The model before; onnxruntime runs it.")],
    fused: Annotated[str, typer.Argument(metavar="FUSED", help="The model after; ngine_ref runs it.")],
    shape: ShapeOption = None,
    input_file: InputOption = None,
    seed: SeedOption = 0,
    rtol: RelativeOption = None,
    atol: AbsoluteOption = None,
    fast: FastOption = False,
    report: ReportOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run two models on the same inputs and compare every value that both have."""
    import json

    from graphopt.errors import VerificationError
    from graphopt.model_files import model_io
    from graphopt.model_files.atomic_files import check_destination, write_text
    from graphopt.report import console, verification_table

    if report is not None:
        check_destination(report)
    before, after = model_io.load(original), model_io.load(fused)
    outcome = verify_loaded(before, after, shape, input_file, seed, rtol, atol, fast=fast, quiet=quiet)
    console(quiet=quiet).print(verification_table(outcome))
    if report is not None:
        write_text(report, json.dumps({"schema": 1, "verification": outcome.as_json()}, indent=2) + "\n")
    if not outcome.ok:
        raise VerificationError(f"{fused} gives other numbers than {original}.")


def verify_loaded(
    original: LoadedModel,
    fused: LoadedModel,
    shapes: list[str] | None,
    input_files: list[str] | None,
    seed: int,
    rtol: float | None,
    atol: float | None,
    *,
    fast: bool,
    quiet: bool,
) -> VerificationReport:
    """Verify with the options of the command line, a progress bar on stderr."""
    from rich.progress import Progress

    from graphopt.cli.option_values import parse_inputs, parse_shapes
    from graphopt.report import console
    from graphopt.verifying.verification import verify as verify_models

    out = console(stderr=True, quiet=quiet)
    with Progress(console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("Comparing values", total=None)
        return verify_models(
            original,
            fused,
            shapes=parse_shapes(shapes or []),
            inputs=parse_inputs(input_files or []),
            seed=seed,
            rtol=rtol,
            atol=atol,
            fast=fast,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
