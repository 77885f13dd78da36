"""The command that compares numbers: verify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from graphopt.cli.writing import check_report

if TYPE_CHECKING:
    from graphopt.model_files.model_io import LoadedModel
    from graphopt.verifying.feeds import Array
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
    from graphopt.model_files.atomic_files import write_text
    from graphopt.report import JSON_SCHEMA, console, verification_table

    comparison = Comparison.of(shape, input_file, seed, rtol, atol, fast=fast)
    before, after = model_io.load(original), model_io.load(fused)
    if report is not None:
        check_report(report, [before, after])
    outcome = verify_loaded(before, after, comparison, quiet=quiet)
    console(quiet=quiet).print(verification_table(outcome))
    if report is not None:
        write_text(report, json.dumps({"schema": JSON_SCHEMA, "verification": outcome.as_json()}, indent=2) + "\n")
    if not outcome.ok:
        raise VerificationError(f"{fused} gives other numbers than {original}.")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is fed and what is tolerated, as `graphopt.verify` takes it."""

    shapes: Mapping[str, tuple[int, ...]]
    inputs: Mapping[str, Array]
    seed: int
    rtol: float | None
    atol: float | None
    fast: bool

    @classmethod
    def of(
        cls,
        shapes: list[str] | None,
        input_files: list[str] | None,
        seed: int,
        rtol: float | None,
        atol: float | None,
        *,
        fast: bool,
    ) -> Comparison:
        """From the options of the command line.

        Raises:
            UsageError: one has another form, or its file cannot be read.
        """
        from graphopt.cli.option_values import parse_inputs, parse_shapes

        return cls(parse_shapes(shapes or []), parse_inputs(input_files or []), seed, rtol, atol, fast)

    def check_unused(self) -> None:
        """Refuse options that say how to compare where nothing is compared.

        Raises:
            UsageError: there is one.
        """
        from graphopt.errors import UsageError

        given = {
            "--shape": self.shapes,
            "--input": self.inputs,
            "--seed": self.seed,
            "--rtol": self.rtol is not None,
            "--atol": self.atol is not None,
            "--fast": self.fast,
        }
        for option, value in given.items():
            if value:
                raise UsageError(f"{option} says how to verify, and nothing is verified; add --verify.")


def verify_loaded(
    original: LoadedModel, fused: LoadedModel, comparison: Comparison, *, quiet: bool
) -> VerificationReport:
    """Verify with the options of the command line, a progress bar on stderr."""
    from rich.progress import Progress

    from graphopt.report import console
    from graphopt.verifying.verification import verify as verify_models

    out = console(stderr=True, quiet=quiet)
    with Progress(console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("Comparing values", total=None)
        return verify_models(
            original,
            fused,
            shapes=comparison.shapes,
            inputs=comparison.inputs,
            seed=comparison.seed,
            rtol=comparison.rtol,
            atol=comparison.atol,
            fast=comparison.fast,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
