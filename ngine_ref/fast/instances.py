"""Buffers and instructions for one run at a time, as many sets as runs go on at once.

    run A  takes instance 0        gives it back ---> idle: 0        run C takes 0
    run B  takes instance 1, made because 0 is taken --> idle: 0, 1

Idle instances wait for the next run, because making one takes as long as a run. All of the process share one budget
of memory for that; what was idle longest goes first. So a session that has seen pictures of many sizes, or many runs
at once, does not hold the buffers of all of them.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

IDLE_BYTES = 512 << 20
"""What idle instances may take together."""


class Sized(Protocol):
    """What has buffers."""

    @property
    def bytes(self) -> int:
        """How much memory they take."""


Instance = TypeVar("Instance", bound=Sized)

_lock = threading.Lock()
_tickets = itertools.count()
_idle: OrderedDict[int, tuple[weakref.ref[Instances[Any]], int]] = OrderedDict()
"""Owner and size of every idle instance by its ticket, the one that has waited longest first."""


class Instances(Generic[Instance]):
    """Makes an instance when none is idle, and keeps it for the next run."""

    def __init__(self, make: Callable[[], Instance]) -> None:
        self._make = make
        self._own: dict[int, Instance] = {}

    def __len__(self) -> int:
        """How many are idle."""
        return len(self._own)

    @contextmanager
    def one(self) -> Iterator[Instance]:
        """An instance nobody else has. One that saw an error is not kept: others may still be writing to it."""
        with _lock:
            ticket, instance = self._own.popitem() if self._own else (None, None)
            if ticket is not None:
                del _idle[ticket]
        if instance is None:
            instance = self._make()
        yield instance
        with _lock:
            ticket = next(_tickets)
            self._own[ticket] = instance
            _idle[ticket] = weakref.ref(self), instance.bytes
            _keep_within_budget()


def _keep_within_budget() -> None:
    for ticket in [ticket for ticket, (owner, _) in _idle.items() if owner() is None]:
        del _idle[ticket]
    while len(_idle) > 1 and sum(size for _, size in _idle.values()) > IDLE_BYTES:
        ticket, (reference, _) = _idle.popitem(last=False)
        owner = reference()
        if owner is not None:
            owner._own.pop(ticket)
