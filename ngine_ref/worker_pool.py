"""Helper threads for a run, within one budget for the whole process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


def core_count() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Budget:
    """Tokens, each the right to keep one more core busy beside the caller's own."""

    def __init__(self, tokens: int) -> None:
        self._lock = threading.Lock()
        self._tokens = tokens

    @property
    def free(self) -> int:
        return self._tokens

    def take(self, wanted: int) -> int:
        with self._lock:
            taken = max(0, min(wanted, self._tokens))
            self._tokens -= taken
            return taken

    def give_back(self, tokens: int) -> None:
        with self._lock:
            self._tokens += tokens


BUDGET = _Budget(core_count() - 1)


class WorkerPool:
    """The helper threads of one run.

    Runs that go on at the same time share a process-wide budget of (cores - 1) tokens, so together they never keep
    more threads busy than there are cores. A pool takes what it can get, possibly nothing; work submitted to it is
    always done, on the caller's thread if no helper is free.

    Args:
        requested: how many helpers to ask for; by default as many as there are tokens.

    Example:
        >>> with WorkerPool(1) as pool:
        ...     pool.submit(lambda: 6 * 7).result()
        42
    """

    def __init__(self, requested: int | None = None) -> None:
        self.workers: int = BUDGET.take(core_count() if requested is None else requested)
        """How many helpers it got."""
        self._free = threading.Semaphore(self.workers)
        self._lock = threading.Lock()
        self._open = True
        self._executor: ThreadPoolExecutor | None = None
        self._return_tokens = weakref.finalize(self, BUDGET.give_back, self.workers)

    def submit(self, function: Callable[..., Result], /, *arguments: Any, **keywords: Any) -> Future[Result]:
        """Have `function(*arguments, **keywords)` run, on a helper, or here and now if none is free.

        Returns:
            a future; its `result()` gives the result, or raises what the function raised.
        """
        with self._lock:
            if self._open and self._free.acquire(blocking=False):
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(self.workers, "ngine-helper")
                return self._executor.submit(self._run_on_helper, function, arguments, keywords)
        future: Future[Result] = Future()
        with _Failure(future):
            future.set_result(function(*arguments, **keywords))
        return future

    def _run_on_helper(
        self, function: Callable[..., Result], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Result:
        try:
            return function(*arguments, **keywords)
        finally:
            self._free.release()

    def shutdown(self) -> None:
        """Wait for what was submitted and return the tokens. Later submissions run on the caller's thread."""
        with self._lock:
            self._open = False
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
        self._return_tokens()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class _Failure:
    """Hands an exception of the enclosed block to a future; what stops the program goes on up as well."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return isinstance(error, Exception)
