"""BLAS's own threads, within the budget of the helper threads."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ngine_ref.worker_pool import WorkerPool, core_count


def blas_within(pool: WorkerPool) -> AbstractContextManager[None]:
    """Keep BLAS to the cores that a run has got.

    A run that got every helper there is may as well let BLAS use their cores, when its kernels do not use the helpers
    themselves (those that do hold BLAS to one thread meanwhile). A run that got fewer shares the machine with others:
    then BLAS stays on the calling thread, for all of them, because its number of threads is the process's.
    """
    if pool.workers == core_count() - 1:
        return nullcontext()
    from ngine_ref.fast.blas import one_thread_each

    return one_thread_each()
