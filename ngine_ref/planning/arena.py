"""One block of memory for a whole run: where each buffer lies in it, and blocks that runs take turns to use."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngine_ref.registry import Array, aligned_bytes

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that is in use from one step to another."""

    size: int
    """In bytes."""
    first: int
    """The first step that uses it."""
    last: int
    """The last step that uses it."""


def place(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Give each buffer an offset such that buffers in use at the same time do not overlap.

    Largest first, each goes into the smallest gap it fits in between those that are in use at the same time. (That
    is the "greedy by size" method of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
    2020; it is at or near the lower bound on real networks.)

    Returns:
        the offsets, multiples of 64, and the size of the whole.
    """
    count = len(buffers)
    offsets = [0] * count
    starts, ends, firsts, lasts = (np.zeros(count, np.int64) for _ in range(4))
    placed = 0
    total = 0
    for index in sorted(range(count), key=lambda item: (-buffers[item].size, buffers[item].first)):
        buffer = buffers[index]
        size = -(-buffer.size // ALIGNMENT) * ALIGNMENT
        if not size:
            continue
        together = (firsts[:placed] <= buffer.last) & (lasts[:placed] >= buffer.first)
        offset = _best_gap(starts[:placed][together], ends[:placed][together], size)
        offsets[index] = offset
        starts[placed], ends[placed] = offset, offset + size
        firsts[placed], lasts[placed] = buffer.first, buffer.last
        placed += 1
        total = max(total, offset + size)
    return offsets, total


def _best_gap(starts: Array, ends: Array, size: int) -> int:
    """The offset of the smallest gap of at least `size` between the taken intervals; else their common end."""
    if not len(starts):
        return 0
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(ends[order])
    begins = np.concatenate(([0], reached[:-1]))
    gaps = starts[order] - begins
    fitting = np.flatnonzero(gaps >= size)
    if not len(fitting):
        return int(reached[-1])
    return int(begins[fitting[np.argmin(gaps[fitting])]])


@dataclass(slots=True, eq=False)
class Block:
    """Aligned memory that one run uses at a time."""

    memory: Array
    views: weakref.WeakKeyDictionary[Any, Any] = field(default_factory=weakref.WeakKeyDictionary)
    """What a layout has made of this memory, kept because making a thousand views costs time; keyed by the layout."""


class BlockPool:
    """The blocks of a session: a run takes one and brings it back, so runs that go on at the same time share none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Block] = []

    def take(self, size: int) -> Block:
        """A block of at least `size` bytes: the smallest idle one that is large enough, else a new one, for which the
        largest idle one makes room."""
        with self._lock:
            fitting = [block for block in self._idle if block.memory.nbytes >= size]
            if fitting:
                chosen = min(fitting, key=lambda block: block.memory.nbytes)
                self._idle.remove(chosen)
                return chosen
            if self._idle:
                self._idle.remove(max(self._idle, key=lambda block: block.memory.nbytes))
        return Block(aligned_bytes(size))

    def give_back(self, block: Block) -> None:
        """Make a block available to the next run."""
        with self._lock:
            self._idle.append(block)
