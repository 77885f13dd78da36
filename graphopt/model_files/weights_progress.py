"""A progress bar for weights that are copied along with a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from graphopt.model_files import data_files

LARGE = 256 << 20
"""Bytes from which copying takes long enough for a bar."""


@contextmanager
def weights_progress(console: Console) -> Iterator[data_files.Progress]:
    """What `model_io.save` takes as `on_progress`: shows a bar while much is copied, and leaves nothing on the screen.

    Nothing is shown where the console is no terminal.
    """
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("Copying weights"),
        BarColumn(),
        DownloadColumn(binary_units=True),
    )
    columns = (*columns, TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:

        def show(done: int, total: int) -> None:
            if total < LARGE:
                return
            if not bar.tasks:
                bar.add_task("", total=total)
            bar.update(bar.tasks[0].id, completed=done)

        yield show
