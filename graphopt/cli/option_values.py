"""The values of options that are more than a word: NAME:1,3,64,64, NAME:FILE and NAME,NAME."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import UsageError
from graphopt.verifying.feeds import Array, read_input


def parse_cleanups(texts: Sequence[str] | None, *, none: bool) -> list[str] | None:
    """Names of cleanups, from texts like `identity,dead`; None where nobody says.

    Raises:
        UsageError: some are asked for, and none.
    """
    if none and texts:
        raise UsageError("--cleanup and --no-cleanup exclude each other.")
    if texts is None or none:
        return [] if none else None
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input, from texts like `x:1,3,64,64` (or `x:1x3x64x64`).

    Raises:
        UsageError: a text has another form.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, colon, dims = text.rpartition(":")
        parts = dims.replace("x", ",").split(",") if dims else []
        if not colon or not name or not all(part.strip().isdecimal() for part in parts):
            raise UsageError(f"--shape {text!r} is not of the form NAME:1,3,64,64.")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def parse_inputs(texts: Sequence[str]) -> dict[str, Array]:
    """Contents by input, from texts like `x:picture.npy`.

    Raises:
        UsageError: a text has another form, or its file cannot be read.
    """
    arrays: dict[str, Array] = {}
    for text in texts:
        name, colon, path = text.partition(":")
        if not colon or not name or not path:
            raise UsageError(f"--input {text!r} is not of the form NAME:FILE.")
        arrays[name] = read_input(path, name)
    return arrays
