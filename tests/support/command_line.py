"""The command line as another process runs it, from the code under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import graphopt

_RUN = "from graphopt.cli import main; main()"


def command(*arguments: str | Path) -> list[str]:
    """What to start for `graphopt ARGUMENTS`."""
    return [sys.executable, "-c", _RUN, *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, with the package importable from any folder."""
    return {**os.environ, "PYTHONPATH": str(Path(graphopt.__file__).parent.parent), **variables}


def graphopt_command(
    *arguments: str | Path, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """`graphopt ARGUMENTS` in a folder: exit status and what was printed, as bytes."""
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(**variables), capture_output=True, check=False, timeout=120
    )
