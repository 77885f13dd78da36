"""Buffers that wait for the next run, within one budget."""

from __future__ import annotations

import gc

import pytest
from fast.programs import dense_block
from fast.test_executor import pictures, run

from ngine_ref.fast import instances
from ngine_ref.fast.executor import Region
from ngine_ref.fast.instances import IDLE_BYTES, Instances


class Buffer:
    """Something of a size."""

    def __init__(self, size: int = 1) -> None:
        self.bytes = size


def test_they_are_kept_but_never_shared():
    pool = Instances(Buffer)
    with pool.one() as first, pool.one() as second:
        assert first is not second
    with pool.one() as third, pool.one() as fourth:
        assert {first, second} == {third, fourth}


def test_one_that_saw_an_error_is_dropped():
    pool = Instances(Buffer)
    with pytest.raises(ValueError, match="x"), pool.one() as broken:
        raise ValueError("x")
    with pool.one() as other:
        assert other is not broken


def test_what_was_idle_longest_goes_when_all_take_too_much():
    half = IDLE_BYTES // 2
    pools = [Instances(lambda: Buffer(half)) for _ in range(3)]
    for pool in pools:
        with pool.one():
            pass
    assert [len(pool) for pool in pools] == [0, 1, 1]
    with pools[1].one():
        pass
    with pools[0].one():
        pass
    assert [len(pool) for pool in pools] == [1, 1, 0]


def test_one_that_is_too_large_by_itself_is_kept():
    pool = Instances(lambda: Buffer(2 * IDLE_BYTES))
    with pool.one():
        pass
    assert len(pool) == 1


def test_a_pool_that_is_gone_holds_nothing():
    pool = Instances(lambda: Buffer(IDLE_BYTES))
    with pool.one():
        pass
    del pool
    gc.collect()
    other = Instances(Buffer)
    with other.one():
        pass
    assert all(owner() is not None for owner, _ in instances._idle.values())


def test_a_region_says_what_it_takes():
    program = dense_block(4, 4, seed=0)
    bound = Region(program).bind(1, 64, 64, 2)
    run(bound, program, pictures(1, 4, 64, 64))
    with bound.instances[1].one() as instance:
        maps = {id(buffer): buffer.data.nbytes for part in instance.parts for buffer in part.maps.values()}
        assert sum(maps.values()) < instance.bytes < 30 * sum(maps.values())
