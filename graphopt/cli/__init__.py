"""The command line, `graphopt`: a module for each group of commands."""

from graphopt.cli import fusing as fusing
from graphopt.cli import listing as listing
from graphopt.cli import verifying as verifying
from graphopt.cli.app import app, main

__all__ = ["app", "main"]
