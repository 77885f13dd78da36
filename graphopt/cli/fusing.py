"""The commands that rewrite: fuse, explain, unfuse."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli.app import app
from graphopt.cli.options import (
    AbsoluteOption,
    CleanupOption,
    DryRunOption,
    ExternalDataOption,
    FastOption,
    FoldOption,
    InputOption,
    LinkOption,
    ModelArgument,
    NoCleanupOption,
    NoFunctionsOption,
    NoShareOption,
    OrderArgument,
    OrderOption,
    QuietOption,
    RelativeOption,
    ReportOption,
    RulesOption,
    SeedOption,
    ShapeOption,
    SkipOption,
    TargetOption,
    ThresholdOption,
    VerifyOption,
)
from graphopt.cli.verifying import Comparison, verify_loaded
from graphopt.cli.writing import Weights, check_report, save
from graphopt.model_files import DEFAULT_THRESHOLD
from graphopt.rule_files import DEFAULT_SET

if TYPE_CHECKING:
    from graphopt.model_files.model_io import LoadedModel
    from graphopt.verifying.verification_report import VerificationReport


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
    no_functions: NoFunctionsOption = False,
    dry_run: DryRunOption = False,
    verify: VerifyOption = False,
    shape: ShapeOption = None,
    input_file: InputOption = None,
    seed: SeedOption = 0,
    rtol: RelativeOption = None,
    atol: AbsoluteOption = None,
    fast: FastOption = False,
    save_as_external_data: ExternalDataOption = False,
    external_data_threshold: ThresholdOption = DEFAULT_THRESHOLD,
    link_weights: LinkOption = False,
    report: ReportOption = None,
    quiet: QuietOption = False,
) -> None:
    """Fuse a model's operators, prove the result, and write it."""
    from graphopt.cli.option_values import parse_cleanups
    from graphopt.errors import VerificationError
    from graphopt.fusion import fuse as fuse_model
    from graphopt.model_files import model_io
    from graphopt.model_files.atomic_files import write_text
    from graphopt.report import console, fusion_tables, to_json, verification_table

    comparison = Comparison.of(shape, input_file, seed, rtol, atol, fast=fast)
    if not (verify or fold_batchnorm):
        comparison.check_unused()
    loaded = model_io.load(model)
    target = None if dry_run else output or default_output(model)
    if target is not None:
        model_io.check_save(loaded.model, target, source=loaded, save_as_external_data=save_as_external_data)
    if report is not None:
        check_report(report, [loaded], target)
    out = console(stderr=target == "-", quiet=quiet)

    def compared(original: LoadedModel, fused: LoadedModel) -> VerificationReport:
        return verify_loaded(original, fused, comparison, quiet=quiet)

    try:
        result = fuse_model(
            loaded,
            rules=rules or DEFAULT_SET,
            skip_rules=skip_rules or (),
            share_prefix=not no_share_prefix,
            order=order.value,
            cleanups=parse_cleanups(cleanup, none=no_cleanup),
            fold_batchnorm=fold_batchnorm,
            functions=not no_functions,
            target=target_name,
            verifier=compared,
        )
    except VerificationError as error:
        if error.result is None:
            raise
        result = error.result  # to be shown first, and refused below
    verification = result.verification
    if verify and verification is None:
        verification = compared(loaded, replace(loaded, model=result.model))
    is_refused = verification is not None and not verification.ok
    if target is not None and not is_refused:  # before anything is printed: whoever reads that may go at any time
        weights = Weights(save_as_external_data, external_data_threshold, link_weights)
        save(result.model, target, loaded, weights, quiet=quiet)
    if report is not None:
        content = None if verification is None else verification.as_json()
        write_text(report, to_json(result.report, output=target, verification=content))
    out.print(fusion_tables(result.report, out.width))
    if verification is not None:
        out.print()
        out.print(verification_table(verification))
    if is_refused:
        raise VerificationError(f"{model}: the fused model gives other numbers than the original; nothing was written.")
    if target is not None and target != "-":
        out.print(f"Written to {target} ({os.path.getsize(target):,} bytes).", soft_wrap=True)


def default_output(model: str) -> str:
    """Where a fused model goes when nobody says: beside the original, a demo model into the current folder."""
    return f"{model.removeprefix('demo:').removesuffix('.onnx')}.fused.onnx"


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
    fold_batchnorm: FoldOption = False,
    target_name: TargetOption = None,
) -> None:
    """Say of each candidate, or of one node, why it was or was not fused."""
    from graphopt.cli.option_values import parse_cleanups
    from graphopt.explanation import explain as explain_model
    from graphopt.report import console, explanation_tables

    explanations, _ = explain_model(
        model,
        node,
        rules=rules or DEFAULT_SET,
        skip_rules=skip_rules or (),
        share_prefix=not no_share_prefix,
        order=order.value,
        cleanups=parse_cleanups(cleanup, none=no_cleanup),
        fold_batchnorm=fold_batchnorm,
        target=target_name,
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
    save_as_external_data: ExternalDataOption = False,
    external_data_threshold: ThresholdOption = DEFAULT_THRESHOLD,
    link_weights: LinkOption = False,
    quiet: QuietOption = False,
) -> None:
    """Put the standard operators back, with their names."""
    from graphopt.inlining import unfuse as unfuse_model
    from graphopt.model_files import model_io
    from graphopt.report import console

    loaded = model_io.load(model)
    name = model.removeprefix("demo:").removesuffix(".onnx").removesuffix(".fused")
    target = output or f"{name}.unfused.onnx"
    model_io.check_save(loaded.model, target, source=loaded, save_as_external_data=save_as_external_data)
    result = unfuse_model(loaded, rules=rules or DEFAULT_SET)
    weights = Weights(save_as_external_data, external_data_threshold, link_weights)
    save(result, target, loaded, weights, quiet=quiet)
    out = console(stderr=target == "-", quiet=quiet)
    before, after = len(loaded.model.graph.node), len(result.graph.node)
    out.print(f"{before:,} nodes became {after:,}; proven to be the same expressions of the inputs.")
    if target != "-":
        out.print(f"Written to {target}.", soft_wrap=True)
