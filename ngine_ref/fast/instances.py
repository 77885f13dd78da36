"""Buffers and instructions for one run at a time, as many sets as runs go on at once.

run A --takes--> instance 0 --gives back-->  idle: [instance 0]  --taken by--> run C
run B --takes--> instance 1 (made, because 0 is taken)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Instance = TypeVar("Instance")


class Instances(Generic[Instance]):
    """Makes an instance when none is idle, and keeps it for the next run."""

    def __init__(self, make: Callable[[], Instance]) -> None:
        self._make = make
        self._idle: list[Instance] = []
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[Instance]:
        """An instance nobody else has. One that saw an error is not kept: others may still be writing to it."""
        with self._lock:
            instance = self._idle.pop() if self._idle else None
        if instance is None:
            instance = self._make()
        yield instance
        with self._lock:
            self._idle.append(instance)
