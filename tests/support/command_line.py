"""The command line, in another process and in this one, and what every refusal has in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import graphopt

TEXT = "c = Conv (x, w, b)  t = LeakyRelu (c)  y = Concat <axis: int = 1> (x, t)"
"""A model of which everything is fused into one node."""

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


@dataclass(frozen=True)
class Outcome:
    """What a call of the command line came to."""

    status: object
    out: bytes
    err: bytes

    @property
    def words(self) -> str:
        """What stands on stderr."""
        return self.err.decode()


Run = Callable[..., Outcome]


def files(folder: Path) -> dict[str, bytes]:
    """The files of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def assert_refused(run: Run, folder: Path, *arguments: str, status: int = 2) -> str:
    """The call ends with one sentence on stderr and nothing else, and every file is as it was; the sentence."""
    before = files(folder)
    outcome = run(*arguments)
    assert outcome.status == status
    assert outcome.out == b""
    assert outcome.words.startswith("Error: ")
    assert outcome.words.endswith(".\n")
    assert outcome.words.count("\n") == 1
    assert "Traceback" not in outcome.words
    assert files(folder) == before
    return outcome.words.removeprefix("Error: ").rstrip("\n")
