"""The commands that only tell: check, rules, demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli.app import app
from graphopt.cli.options import (
    ModelArgument,
    RulesOption,
)
from graphopt.rule_files import DEFAULT_SET

if TYPE_CHECKING:
    from graphopt.fusion_result import FusionResult


@app.command()
def check(
    model: ModelArgument,
    target_name: Annotated[str, typer.Option("--target", metavar="NAME|FILE", help="An engine: a name or a file.")],
) -> None:
    """List every node that an engine cannot run, or would run differently, worst first."""
    from graphopt.model_files import model_io
    from graphopt.report import check_table, console
    from graphopt.targets.target import load_target
    from graphopt.targets.target_check import check as check_model

    target = load_target(target_name)
    problems = check_model(model_io.load(model).model, target)
    console().print(check_table(problems, target.name))
    if problems:
        raise typer.Exit(1)


@app.command(name="rules")
def list_rules(rules: RulesOption = None) -> None:
    """List the rules with their conditions."""
    from graphopt.report import console, rules_table
    from graphopt.rule_files.rule_set import load_rules

    console().print(rules_table(load_rules(rules or DEFAULT_SET).rules))


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
