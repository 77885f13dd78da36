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
_controller: Any = None
_limiter: Any = None


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Within it, every call into BLAS stays on the thread that makes it, in the whole process."""
    global _runs, _controller, _limiter
    with _lock:
        if _runs == 0:
            if _controller is None:
                # Here and not above: it looks at every library of the process, and many models never need it.
                from threadpoolctl import ThreadpoolController

                _controller = ThreadpoolController()
            _limiter = _controller.limit(limits=1, user_api="blas")
        _runs += 1
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if _runs == 0:
                _limiter.restore_original_limits()
