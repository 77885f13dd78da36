"""BLAS held to one thread while our own workers are at work.

    run A  |-------------------|
    run B         |------------------|
    BLAS   n 1 1 1 1 1 1 1 1 1 1 1 1 1 n      threads: limited by the first to come, restored by the last to go

The limit is the process's, so concurrent runs share it. It costs some twenty microseconds a run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_runs = 0
_libraries: list[Any] | None = None
_before: list[int] = []


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Within it, every call into BLAS stays on the thread that makes it, in the whole process."""
    global _runs, _libraries, _before
    with _lock:
        if _runs == 0:
            if _libraries is None:
                # Here and not above: it looks at every library of the process, and many models never need it.
                from threadpoolctl import ThreadpoolController

                found = ThreadpoolController().lib_controllers
                _libraries = [library for library in found if library.user_api == "blas"]
            _before = [library.num_threads for library in _libraries]
            for library in _libraries:
                _set_threads(library, 1)
        _runs += 1
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if _runs == 0:
                for library, threads in zip(_libraries or (), _before, strict=True):
                    _set_threads(library, threads)


def _set_threads(library: Any, threads: int) -> None:
    """Set how many threads a library uses. From threadpoolctl 3.8 on, its own call does nothing in any but the first
    thread that made it, so that threads do not fight over what they share; runs come from any thread, and here they
    share one limit."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(threads)
