"""The names of the cleanups, with a sentence each; light, so that the command line can list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphopt.errors import UsageError

CLEANUPS: Mapping[str, str] = {
    "identity": "An Identity is its input.",
    "dropout": "A Dropout at inference is its input.",
    "concat": "A Concat of one input is that input.",
    "cast": "A Cast to the type that its input has is its input.",
    "reshape": "A Reshape to the shape that its input has is its input.",
    "transpose": "Two Transposes that undo each other are their input, and so is one that moves no axis.",
    "pad": "A Pad of zeros is its input.",
    "constant": "What a Constant node holds becomes an initializer.",
    "duplicate": "Of several nodes that compute the same, one is enough.",
    "dead": "A node whose outputs nobody reads goes.",
    "initializers": "An initializer that nobody reads goes.",
}
"""Every cleanup, by name, in the order reports list them."""
ONLY_AFTER_FUSION = ("duplicate",)
"""The cleanups that wait for the rules: of two equal convolutions that are each read once, one would be read twice."""
AFTER_FUSION = (*ONLY_AFTER_FUSION, "dead", "initializers")
"""The cleanups that run after the rules, some of them once more, for what these leave behind."""


def known_cleanups(names: Iterable[str]) -> tuple[str, ...]:
    """The cleanups of these names (one alone, or several), each once.

    Raises:
        UsageError: there is none of that name.
    """
    chosen = [names] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in CLEANUPS:
            raise UsageError(f"There is no cleanup {name!r}; the cleanups are {', '.join(CLEANUPS)}.")
    return tuple(name for name in CLEANUPS if name in chosen)
