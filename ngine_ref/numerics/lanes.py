"""Independent parts of one kernel's work, side by side on the helper threads of a run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait

from ngine_ref.worker_pool import WorkerPool


def run_lanes(work: Callable[[int], None], lanes: int, pool: WorkerPool | None) -> None:
    """Call `work(0)` to `work(lanes - 1)`, the first on this thread and the others on helpers, and wait for all.

    What any of them raises is raised here, after all have ended: they share memory that the caller owns.
    """
    helpers = [pool.submit(work, lane) for lane in range(1, lanes)] if pool else []
    try:
        work(0)
        if not pool:
            for lane in range(1, lanes):
                work(lane)
    finally:
        wait(helpers)
    for helper in helpers:
        helper.result()
