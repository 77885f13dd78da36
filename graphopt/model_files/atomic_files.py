"""New files that appear complete and together, or not at all.

Everything is written under a temporary name in its final folder and renamed when all of it is on the disk. Whatever
stops the writing, an error, Ctrl-C or a killed process, files that existed keep their content; all but the kill also
leave nothing behind.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from graphopt.errors import SaveError


def check_destination(output: str | os.PathLike[str]) -> Path:
    """The path that a file can be written to, links resolved; looked at before the work starts, nothing is written.

    Raises:
        SaveError: its folder is not there or not writable, or something other than a plain file has its name.
    """
    name = os.fspath(output)
    if not name or "\0" in name:
        raise SaveError(f"{name!r} is no file name; name the file to write.")
    path = Path(os.path.realpath(name))
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG
    except OSError as error:
        raise SaveError(f"{name}: cannot be written: {error.strerror}.") from error
    if stat.S_ISDIR(mode):
        raise SaveError(f"{name} is a folder; name a file in it.")
    if not stat.S_ISREG(mode):
        raise SaveError(f"{name} is not a plain file; name another, or '-' for standard output.")
    if not path.parent.is_dir():
        raise SaveError(f"{name}: there is no folder {path.parent}; make it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise SaveError(f"{name}: the folder {path.parent} is not writable; choose another.")
    return path


class NewFiles:
    """Files that are being written. Leaving the `with` block without `commit` removes every trace of them."""

    def __init__(self) -> None:
        self._temporary: dict[Path, Path] = {}
        self._open: list[BinaryIO] = []
        self._made: list[Path] = []

    def __enter__(self) -> NewFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._open:
            with suppress(OSError):  # a full disk makes closing fail too; the file goes anyway
                file.close()
        for temporary in self._temporary.values():
            temporary.unlink(missing_ok=True)
        for path in reversed(self._made):
            path.rmdir() if path.is_dir() else path.unlink()

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, as far as they are not there."""
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir()
            self._made.append(path)

    def open(self, path: Path) -> BinaryIO:
        """A new file to write to, which will be `path` after `commit`."""
        temporary = self._name_for(path)
        # Not tempfile's: its files can be read by their owner only, and a rename keeps that.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        file = os.fdopen(descriptor, "wb")
        self._open.append(file)
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        return file

    def link(self, source: Path, path: Path) -> None:
        """Another name of the file `source`, which will be `path` after `commit`."""
        os.link(source, self._name_for(path))

    def commit(self) -> None:
        """Give all files their names, in the order in which they were opened."""
        for file in self._open:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        self._open.clear()
        while self._temporary:
            path = next(iter(self._temporary))
            is_new = not path.exists()
            os.replace(self._temporary[path], path)
            del self._temporary[path]
            if is_new:
                self._made.append(path)
        self._made.clear()

    def _name_for(self, path: Path) -> Path:
        # Short, so that a long file name does not become too long.
        temporary = path.parent / f".graphopt-{secrets.token_hex(6)}"
        self._temporary[path] = temporary
        return temporary


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that it appears complete or not at all.

    Raises:
        SaveError: it cannot be written.
    """
    target = check_destination(path)
    try:
        with NewFiles() as files:
            files.open(target).write(text.encode())
            files.commit()
    except OSError as error:
        raise SaveError(f"{os.fspath(path)}: cannot be written: {error.strerror}.") from error
