"""Workers that wait, fail, or never come; and BLAS held to one thread."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from fast.test_executor import Helpers
from threadpoolctl import threadpool_info

from ngine_ref.blas import one_thread_each
from ngine_ref.fast.teamwork import Abandoned, Progress, run_team


def done_by(parts: int, helpers) -> list[tuple[list[int], int]]:
    """Which thread did which parts."""
    log: list[tuple[list[int], int]] = []
    run_team(lambda share: log.append((list(share), threading.get_ident())), parts, helpers, Progress(parts))
    return sorted(log)


def test_parts_are_shared_among_those_there_are():
    here = threading.get_ident()
    assert done_by(3, None) == [([0, 1, 2], here)]
    assert [share for share, _ in done_by(3, Helpers(1))] == [[0, 2], [1]]
    assert [share for share, _ in done_by(2, Helpers(5))] == [[0], [1]]
    assert len({thread for _, thread in done_by(3, Helpers(2))}) <= 3


def test_what_a_busy_pool_runs_here_is_done_with_our_own_share():
    """Were it run at once, it would wait for parts that come after it."""

    class Inline:
        workers = 2

        def submit(self, function, /):
            future: Future[None] = Future()
            future.set_result(function())
            return future

    assert done_by(3, Inline()) == [([0, 1, 2], threading.get_ident())]


def test_waiting_ends_when_the_others_are_there():
    progress = Progress(2)
    progress.finish(0)
    finished = []

    def late():
        time.sleep(0.05)
        finished.append(True)
        progress.finish(1)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(late)
        progress.wait(1)
    assert finished


def test_an_error_in_any_worker_reaches_the_caller_and_nobody_waits_for_ever():
    for culprit in (0, 1):
        progress = Progress(2)

        def work(share, culprit=culprit, progress=progress):
            if culprit in share:
                raise ValueError(f"part {culprit}")
            progress.wait(1)

        with pytest.raises(ValueError, match=f"part {culprit}"):
            run_team(work, 2, Helpers(1), progress)


def test_who_waits_for_a_failed_worker_gives_up():
    progress = Progress(2)
    progress.fail()
    with pytest.raises(Abandoned):
        progress.wait(1)


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_gets_its_threads_back_after_the_last_run():
    before = blas_threads()
    with one_thread_each():
        with one_thread_each():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_blas_is_held_to_one_thread_by_runs_from_any_thread():
    """Whoever used BLAS's own settings first."""
    before = blas_threads()
    with one_thread_each():
        pass

    def in_a_run() -> list[int]:
        with one_thread_each():
            return blas_threads()

    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(in_a_run).result() for _ in range(4)]
    assert {threads for each in found for threads in each} == {1}
    assert blas_threads() == before


def test_blas_gets_its_threads_back_after_an_error():
    before = blas_threads()
    with pytest.raises(ValueError, match="x"), one_thread_each():
        raise ValueError("x")
    assert blas_threads() == before
