"""The command line. Heavy modules are imported by the commands that use them, so that `--help` is instant.

Exit status: 0 done, 1 a check failed, 2 the input or the call is wrong.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from graphopt.cli_options import (
    AbsoluteOption,
    CleanupOption,
    FastOption,
    FoldOption,
    InputOption,
    ModelArgument,
    NoCleanupOption,
    NoShareOption,
    OrderArgument,
    OrderOption,
    RelativeOption,
    RulesOption,
    SeedOption,
    ShapeOption,
    SkipOption,
    TargetOption,
)

if TYPE_CHECKING:
    from graphopt.fusion import FusionResult
    from graphopt.model_io import LoadedModel
    from graphopt.verification import VerificationReport

app = typer.Typer(
    name="graphopt",
    help="Fuses the operators of ONNX models by rules, tells what was fused and what not and why, and proves that "
    "nothing changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def fuse(
    model: ModelArgument,
    output: Annotated[
        str | None,
        typer.Argument(metavar="OUTPUT", help="Where to write; - is stdout. (default: MODEL with .fused.onnx)"),
    ] = None,
    rules: RulesOption = None,
    skip_rules: SkipOption = None,
    no_share_prefix: NoShareOption = False,
    order: OrderArgument = OrderOption.sink,
    cleanup: CleanupOption = None,
    no_cleanup: NoCleanupOption = False,
    fold_batchnorm: FoldOption = False,
    target_name: TargetOption = None,
    no_functions: Annotated[
        bool, typer.Option("--no-functions", help="Bare calls, for engines that have a kernel for each.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write no model, only say what would be done.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run original and result, and compare every value, before writing.")
    ] = False,
    shape: ShapeOption = None,
    input_file: InputOption = None,
    seed: SeedOption = 0,
    rtol: RelativeOption = None,
    atol: AbsoluteOption = None,
    fast: FastOption = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.json", help="Write the report as JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Fuse a model's operators, prove the result, and write it."""
    from graphopt import model_io
    from graphopt.atomic_files import check_destination, write_text
    from graphopt.errors import VerificationError
    from graphopt.fusion import fuse as fuse_model
    from graphopt.option_values import parse_cleanups
    from graphopt.report import console, fusion_tables, to_json, verification_table
    from graphopt.target import load_target

    loaded = model_io.load(model)
    target = None if dry_run else output or default_output(model)
    if target is not None:
        model_io.check_save(loaded.model, target, source=loaded)
    if report is not None:
        check_destination(report)
    out = console(stderr=target == "-", quiet=quiet)

    def compared(original: LoadedModel, fused: LoadedModel) -> VerificationReport:
        return verify_loaded(original, fused, shape, input_file, seed, rtol, atol, fast=fast, quiet=quiet)

    try:
        result = fuse_model(
            loaded,
            rules=rules or "ngine",
            skip_rules=skip_rules or (),
            share_prefix=not no_share_prefix,
            order=order.value,
            cleanups=parse_cleanups(cleanup, none=no_cleanup),
            fold_batchnorm=fold_batchnorm,
            functions=not no_functions,
            target=load_target(target_name) if target_name is not None else None,
            verifier=compared,
        )
    except VerificationError as error:
        if error.result is None:
            raise
        result = error.result  # to be shown first, and refused below
    out.print(fusion_tables(result.report, out.width))
    verification = result.verification
    if verify and verification is None:
        verification = compared(loaded, replace(loaded, model=result.model))
    if verification is not None:
        out.print()
        out.print(verification_table(verification))
    if report is not None:
        content = None if verification is None else verification.as_json()
        write_text(report, to_json(result.report, output=target, verification=content))
    if verification is not None and not verification.ok:
        raise VerificationError(f"{model}: the fused model gives other numbers than the original; nothing was written.")
    if target is not None:
        model_io.save(result.model, target, source=loaded)
    if target is not None and target != "-":
        out.print(f"Written to {target} ({os.path.getsize(target):,} bytes).", soft_wrap=True)


def default_output(model: str) -> str:
    """Where a fused model goes when nobody says: beside the original, a demo model into the current folder."""
    name = model.removeprefix("demo:") if model.startswith("demo:") else model
    return f"{name.removesuffix('.onnx')}.fused.onnx"


@app.command()
def explain(
    model: ModelArgument,
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="A node's name, or that of a value it makes.")
    ] = None,
    rules: RulesOption = None,
    skip_rules: SkipOption = None,
    no_share_prefix: NoShareOption = False,
    order: OrderArgument = OrderOption.sink,
    cleanup: CleanupOption = None,
    no_cleanup: NoCleanupOption = False,
) -> None:
    """Say of each candidate, or of one node, why it was or was not fused."""
    from graphopt.explanation import explain as explain_model
    from graphopt.option_values import parse_cleanups
    from graphopt.report import console, explanation_tables

    explanations, _ = explain_model(
        model,
        node,
        rules=rules or "ngine",
        skip_rules=skip_rules or (),
        share_prefix=not no_share_prefix,
        order=order.value,
        cleanups=parse_cleanups(cleanup, none=no_cleanup),
    )
    out = console()
    if explanations:
        out.print(explanation_tables(explanations, detailed=node is not None))
    else:
        out.print(f"{model} has no candidate for any of the rules.")


@app.command()
def unfuse(
    model: ModelArgument,
    output: Annotated[
        str | None,
        typer.Argument(metavar="OUTPUT", help="Where to write; - is stdout. (default: MODEL with .unfused.onnx)"),
    ] = None,
    rules: RulesOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Put the standard operators back, with their names."""
    from graphopt import model_io
    from graphopt.inlining import unfuse as unfuse_model
    from graphopt.report import console

    loaded = model_io.load(model)
    name = model.removeprefix("demo:").removesuffix(".onnx").removesuffix(".fused")
    target = output or f"{name}.unfused.onnx"
    model_io.check_save(loaded.model, target, source=loaded)
    result = unfuse_model(loaded, rules=rules or "ngine")
    model_io.save(result, target, source=loaded)
    out = console(stderr=target == "-", quiet=quiet)
    before, after = len(loaded.model.graph.node), len(result.graph.node)
    out.print(f"{before:,} nodes became {after:,}; proven to be the same expressions of the inputs.")
    if target != "-":
        out.print(f"Written to {target}.", soft_wrap=True)


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
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.json", help="Write the outcome as JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Run two models on the same inputs and compare every value that both have."""
    import json

    from graphopt import model_io
    from graphopt.atomic_files import check_destination, write_text
    from graphopt.errors import VerificationError
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

    from graphopt.option_values import parse_inputs, parse_shapes
    from graphopt.report import console
    from graphopt.verification import verify as verify_models

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


@app.command()
def check(
    model: ModelArgument,
    target_name: Annotated[str, typer.Option("--target", metavar="NAME|FILE", help="An engine: a name or a file.")],
) -> None:
    """List every node that an engine cannot run, or would run differently, worst first."""
    from graphopt import model_io
    from graphopt.report import check_table, console
    from graphopt.target import load_target
    from graphopt.target_check import check as check_model

    target = load_target(target_name)
    problems = check_model(model_io.load(model).model, target)
    console().print(check_table(problems, target.name))
    if problems:
        raise typer.Exit(1)


@app.command(name="rules")
def list_rules(rules: RulesOption = None) -> None:
    """List the rules with their conditions."""
    from graphopt.report import console, rules_table
    from graphopt.rule_set import load_rules

    console().print(rules_table(load_rules(rules or "ngine").rules))


@app.command()
def demo() -> None:
    """Fuse the three demo models and show what becomes of them."""
    from graphopt.demo_models import DEMO_MODELS
    from graphopt.fusion import fuse as fuse_model
    from graphopt.report import console, demo_table

    out = console()
    with out.status("Building the demo models ..."):
        results: dict[str, FusionResult] = {name: fuse_model(f"demo:{name}") for name in DEMO_MODELS}
    out.print(demo_table({name: result.report for name, result in results.items()}))


def _version(wanted: bool) -> None:
    if wanted:
        from graphopt import __version__

        typer.echo(f"graphopt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


_INTERRUPTED = 130
"""The exit status of a process that Ctrl-C ended."""


def main() -> NoReturn:
    """Run the command line; an error is one sentence on stderr."""
    from graphopt.errors import GraphoptError

    try:
        status = app(standalone_mode=False)
        if status == _INTERRUPTED:  # what typer returns for Ctrl-C
            _fail("Interrupted; nothing was written.", _INTERRUPTED)
    except GraphoptError as error:
        status = _fail(str(error), error.exit_status)
    except typer.TyperException as error:
        status = _fail(error.format_message().removesuffix(".") + ".", 2)
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        status = 0  # whoever read stdout has gone, which is no failure; typer has seen to the streams
    raise SystemExit(status if isinstance(status, int) else 0)


def _fail(sentence: str, status: int) -> int:
    print(f"Error: {sentence}", file=sys.stderr)
    return status
