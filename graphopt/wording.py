"""The small words of messages: lists and counts."""

from __future__ import annotations

from collections.abc import Iterable


def listed(values: Iterable[object], last: str) -> str:
    """The values as English lists them, `last` before the last one: "a", "a or b", "a, b or c"; "" for none."""
    *others, final = [str(value) for value in values] or [""]
    return f"{', '.join(others)} {last} {final}" if others else final


def counted(count: int, noun: str) -> str:
    """How many there are of what the noun names: "1 input", "2 inputs"."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
