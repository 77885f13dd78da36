"""Helper threads and their budget."""

from __future__ import annotations

import gc
import threading

import pytest

from ngine_ref import WorkerPool, worker_pool
from ngine_ref.worker_pool import BUDGET, _Budget


@pytest.fixture(autouse=True)
def three_tokens(monkeypatch: pytest.MonkeyPatch):
    """A machine with four cores, whatever this one has; and afterwards no token may be missing."""
    budget = _Budget(3)
    monkeypatch.setattr(worker_pool, "BUDGET", budget)
    yield budget
    assert budget.free == 3


def test_the_process_budget_is_one_token_less_than_cores():
    gc.collect()
    assert BUDGET.free == worker_pool.core_count() - 1


def test_pools_share_the_budget():
    with WorkerPool(2) as first, WorkerPool(2) as second, WorkerPool(2) as third:
        assert (first.workers, second.workers, third.workers) == (2, 1, 0)
        first.shutdown()
        with WorkerPool() as fourth:
            assert fourth.workers == 2


@pytest.mark.parametrize("requested", [0, -1])
def test_nothing_may_be_requested(requested: int):
    with WorkerPool(requested) as pool:
        assert pool.workers == 0


def test_without_tokens_work_is_done_by_the_caller():
    with WorkerPool(3), WorkerPool(1) as pool:
        assert pool.workers == 0
        assert pool.submit(threading.current_thread).result() is threading.current_thread()


def test_a_helper_works_beside_the_caller():
    with WorkerPool(1) as pool:
        reached, go_on = threading.Event(), threading.Event()

        def wait() -> threading.Thread:
            reached.set()
            assert go_on.wait(10)
            return threading.current_thread()

        future = pool.submit(wait)
        assert reached.wait(10)
        # The only helper is busy, so this one is done here and now.
        assert pool.submit(threading.current_thread).result() is threading.current_thread()
        go_on.set()
        assert future.result() is not threading.current_thread()


def test_no_more_helpers_than_tokens():
    running, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.001)
        with lock:
            running -= 1

    with WorkerPool(2) as pool:
        for future in [pool.submit(work) for _ in range(60)]:
            future.result()
    assert most <= 3, "two helpers and the caller"


def test_arguments_and_results():
    with WorkerPool(2) as pool:
        assert pool.submit(divmod, 7, 3).result() == (2, 1)
        assert pool.submit(sorted, [1, 2], reverse=True).result() == [2, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_reaches_whoever_asks_for_the_result(workers: int):
    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    with WorkerPool(workers) as pool:
        future = pool.submit(fail)
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            future.result()
        assert pool.submit(lambda: 1).result() == 1, "the pool goes on working"


def test_the_context_returns_tokens_after_an_exception(three_tokens: _Budget):
    with pytest.raises(KeyError), WorkerPool(3):
        raise KeyError
    assert three_tokens.free == 3


def test_shutdown_waits_and_may_be_repeated(three_tokens: _Budget):
    pool = WorkerPool(1)
    go_on = threading.Event()
    future = pool.submit(go_on.wait, 10)
    threading.Timer(0.02, go_on.set).start()
    pool.shutdown()
    assert future.done()
    pool.shutdown()
    assert three_tokens.free == 3
    assert pool.submit(threading.current_thread).result() is threading.current_thread()
    assert three_tokens.free == 3


def test_a_forgotten_pool_gives_its_tokens_back(three_tokens: _Budget):
    pool = WorkerPool(2)
    pool.submit(int).result()
    assert three_tokens.free == 1
    del pool
    gc.collect()
    assert three_tokens.free == 3


def test_helpers_may_submit():
    with WorkerPool(2) as pool:

        def nested(depth: int) -> int:
            return 1 if depth == 0 else sum(pool.submit(nested, depth - 1).result() for _ in range(2))

        assert nested(6) == 64


def test_many_runs_at_once(three_tokens: _Budget):
    failures: list[str] = []

    def run(seed: int) -> None:
        for _ in range(20):
            with WorkerPool(1 + seed % 3) as pool:
                if pool.workers > 1 + seed % 3 or three_tokens.free < 0:
                    failures.append("too many tokens")
                futures = [pool.submit(pow, number, 2) for number in range(20)]
                if [future.result() for future in futures] != [number**2 for number in range(20)]:
                    failures.append("wrong result")

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert not any(thread.name.startswith("ngine-helper") for thread in threading.enumerate())
