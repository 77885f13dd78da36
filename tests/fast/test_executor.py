"""Region programs against plain loops in float64; then threads, which must not change a bit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from fast.programs import Weights, dense_block
from fast.reference import assert_close, evaluate
from hypothesis import strategies as st
from support.sweeps import sweep

from ngine_ref.fast import executor
from ngine_ref.fast.executor import Region
from ngine_ref.fast.program import Program, Step
from ngine_ref.worker_pool import WorkerPool


class Helpers:
    """A pool of its own, outside the process's budget: tests run on machines with one core too."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._executor = ThreadPoolExecutor(workers)

    def submit(self, function, /):
        return self._executor.submit(function)


TWO = Helpers(2)


def run(bound, program, images, helpers=None):
    """All outputs of a bound program."""
    counts = program.channels()
    batch, _, height, width = images.shape
    outputs = [np.full((batch, counts[name], height, width), np.nan, np.float32) for name in program.outputs]
    bound.run([images], outputs, helpers)
    return outputs


def pictures(batch: int, channels: int, height: int, width: int, seed: int = 0):
    return np.random.default_rng(seed).standard_normal((batch, channels, height, width)).astype(np.float32)


@sweep(
    st.integers(1, 3),
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 19),
    st.integers(1, 11),
    st.integers(1, 3),
    st.booleans(),
    examples=60,
)
def test_a_dense_block_of_any_size(batch, height, width, features, growth, parts, keep_filters):
    program = dense_block(features, growth, seed=height)
    images = pictures(batch, features, height, width)
    bound = Region(program, keep_filters).bind(batch, height, width, parts)
    found = run(bound, program, images)
    for result, expected in zip(found, evaluate(program, [images]), strict=True):
        assert_close(result, expected)
    for result, again in zip(found, run(bound, program, images, TWO), strict=True):
        np.testing.assert_array_equal(result, again)


@pytest.mark.parametrize(("height", "width"), [(3, 1030), (1030, 3), (40, 520)])
def test_pictures_of_several_blocks(height, width):
    program = dense_block(3, 2, seed=0)
    images = pictures(1, 3, height, width)
    found = run(Region(program).bind(1, height, width, 2), program, images, TWO)
    for result, expected in zip(found, evaluate(program, [images]), strict=True):
        assert_close(result, expected)


def test_a_batch_in_portions():
    program = dense_block(3, 2, seed=1)
    images = pictures(23, 3, 13, 9)
    bound = Region(program).bind(23, 13, 9, 2)
    assert len(bound.instances) == 2
    for result, expected in zip(run(bound, program, images, TWO), evaluate(program, [images]), strict=True):
        assert_close(result, expected)


def test_many_runs_at_once_give_the_same_bits():
    """Long chains on small parts: the parts meet at every step, and a race shows as another number."""
    make = Weights(0)
    names = [f"v{number}" for number in range(41)]
    steps = [
        Step((source,), make.filters(8, 8) * np.float32(1.2), make.vector(8, 0.1), result)
        for source, result in pairwise(names)
    ]
    program = Program({"v0": 8}, tuple(steps), (names[-1], names[20]))
    for batch, height, width in [(1, 24, 16), (1, 9, 40), (3, 8, 8), (1, 61, 83)]:
        images = pictures(batch, 8, height, width)
        for keep_filters in (True, False):
            bound = Region(program, keep_filters).bind(batch, height, width, 3)
            expected = run(bound, program, images)

            def check(_, bound=bound, images=images, expected=expected):
                pool = Helpers(2)
                for _ in range(6):
                    for result, wanted in zip(run(bound, program, images, pool), expected, strict=True):
                        np.testing.assert_array_equal(result, wanted)

            with ThreadPoolExecutor(4) as threads:
                list(threads.map(check, range(4)))


def test_a_run_leaves_nothing_for_the_next():
    """Buffers are reused: what one picture leaves in padding and borders must not be seen by another."""
    program = dense_block(5, 3, seed=3)
    bound = Region(program).bind(1, 13, 22, 2)
    first = run(bound, program, pictures(1, 5, 13, 22, seed=1))
    run(bound, program, np.full((1, 5, 13, 22), 1e30, np.float32))
    for result, expected in zip(run(bound, program, pictures(1, 5, 13, 22, seed=1)), first, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_failing_worker_stops_the_others(monkeypatch):
    program = dense_block(4, 4, seed=0)
    bound = Region(program).bind(1, 32, 32, 2)
    images = pictures(1, 4, 32, 32)
    run(bound, program, images, TWO)
    real, caller = executor.execute, threading.get_ident()

    def fail_on_a_helper(instructions):
        if threading.get_ident() != caller:
            raise MemoryError("no more")
        real(instructions)

    monkeypatch.setattr(executor, "execute", fail_on_a_helper)
    with pytest.raises(MemoryError, match="no more"):
        run(bound, program, images, TWO)


def test_a_pool_without_helpers_is_no_obstacle():
    program = dense_block(4, 4, seed=0)
    images = pictures(1, 4, 20, 20)
    bound = Region(program).bind(1, 20, 20, 2)
    expected = run(bound, program, images)

    class Busy:
        workers = 1

        def submit(self, function, /):
            function()
            return ThreadPoolExecutor(1).submit(lambda: None)

    with WorkerPool(0) as pool:
        for helpers in (pool, Busy()):
            for result, wanted in zip(run(bound, program, images, helpers), expected, strict=True):
                np.testing.assert_array_equal(result, wanted)
