"""Several workers on one picture: who waits for whom.

Every part of the picture (a grid) counts the steps it has finished. Before a part touches the tile rows next to
another part, it waits until all others have finished the step before; it does those rows last, so that there is
seldom anything to wait for:

    part 0   step 3: rows 0 1 2 | 3    step 4: rows 0 1 2 | 3        | : waits until part 1 has finished the step
    part 1   step 3: rows 3 2 1 | 0    step 4: rows 3 2 1 | 0            before, then copies its border row

So no two parts are ever more than one step and the inner rows of the next apart, which is what `schedule.py` relies
on when it gives a buffer to another map. A worker with several parts does a step for all of them before the next.
Waiting: a short while with NumPy outside the interpreter lock, so that the others are not held up, giving way to
whoever wants the core; then asleep.
Counters are plain integers in a list: the interpreter lock orders a part's stores before its counter.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

_give_way: Callable[[], object] = getattr(os, "sched_yield", partial(time.sleep, 0))
SPINS = 40
"""How often a waiting worker looks before it sleeps; each look takes some three microseconds."""
NAP = 3e-5
"""Seconds asleep between looks; the kernel makes at least 80 microseconds of it."""


class Helpers(Protocol):
    """What is needed of a pool of threads: `ngine_ref.worker_pool.WorkerPool` has it."""

    workers: int

    def submit(self, function: Callable[[], Any], /) -> Any:
        """Run `function` on a helper, or here when none is free; what comes back has `result()`."""


class Abandoned(Exception):
    """Another worker of the team failed: there is nothing left to wait for."""


class Progress:
    """How many steps each part has finished."""

    def __init__(self, parts: int) -> None:
        self._finished = [0] * parts
        self._failed = False
        self._idle = np.zeros(20_000, np.float32)

    def finish(self, part: int) -> None:
        """One more step of a part is done."""
        self._finished[part] += 1

    def fail(self) -> None:
        """Let all who wait give up."""
        self._failed = True

    def wait(self, steps: int) -> None:
        """Until every part has finished that many steps.

        Raises:
            Abandoned: a worker failed.
        """
        looks = 0
        while min(self._finished) < steps:
            if self._failed:
                raise Abandoned
            if looks < SPINS:
                np.add(self._idle, 0.0, self._idle)
                # Where cores are taken, the one we wait for may be next in line for this very core.
                _give_way()
            else:
                time.sleep(NAP)
            looks += 1


def run_team(worker: Callable[[list[int]], None], parts: int, helpers: Helpers | None, progress: Progress) -> None:
    """Share `parts` parts among this thread and the helpers of the pool: `worker(its parts)` on each of them at once.

    Raises:
        BaseException: whatever a worker raised; the others are told to give up.
    """
    team = 1 if helpers is None else min(parts, helpers.workers + 1)
    shares = [list(range(number, parts, team)) for number in range(team)]
    caller = threading.get_ident()

    def help_with(share: list[int]) -> None:
        if threading.get_ident() == caller:
            # The pool had nobody free and ran this here, before the caller's own share: do both together.
            shares[0] += share
        else:
            guarded(share)

    def guarded(share: list[int]) -> None:
        try:
            worker(share)
        except BaseException:
            progress.fail()
            raise

    futures = [] if helpers is None else [helpers.submit(partial(help_with, share)) for share in shares[1:]]
    errors: list[BaseException] = []
    for call in (partial(guarded, shares[0]), *(future.result for future in futures)):
        try:
            call()
        except BaseException as error:  # noqa: BLE001  (raised again below, once nobody works any more)
            errors.append(error)
    errors.sort(key=lambda error: isinstance(error, Abandoned))
    if errors:
        raise errors[0]
