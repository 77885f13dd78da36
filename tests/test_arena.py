"""Offsets of buffers in one block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngine_ref.planning.arena import ALIGNMENT, Buffer, place

buffers = st.builds(
    lambda size, first, length: Buffer(size, first, first + length),
    st.integers(0, 5000),
    st.integers(0, 30),
    st.integers(0, 10),
)


def rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def lower_bound(items: list[Buffer]) -> int:
    """The most that is in use at any one step: no placement can be smaller."""
    steps = range(42)
    return max(sum(rounded(b.size) for b in items if b.first <= step <= b.last) for step in steps)


@given(st.lists(buffers, max_size=40))
def test_buffers_in_use_at_the_same_time_do_not_overlap(items: list[Buffer]):
    offsets, total = place(items)
    assert len(offsets) == len(items)
    for index, (offset, buffer) in enumerate(zip(offsets, items, strict=True)):
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= offset + buffer.size <= total or buffer.size == 0
        for other_offset, other in zip(offsets[:index], items[:index], strict=True):
            apart_in_time = buffer.last < other.first or other.last < buffer.first
            apart_in_place = offset + buffer.size <= other_offset or other_offset + other.size <= offset
            assert apart_in_time or apart_in_place or 0 in (buffer.size, other.size)
    assert total >= lower_bound(items)


def test_no_buffers_need_no_memory():
    assert place([]) == ([], 0)


@pytest.mark.parametrize(
    ("items", "total"),
    [
        ([Buffer(64, 0, 1), Buffer(128, 1, 2), Buffer(64, 2, 3)], 192),
        ([Buffer(640, 0, 1), Buffer(640, 2, 3), Buffer(640, 4, 5)], 640),
        ([Buffer(1, 0, 0), Buffer(1, 0, 0)], 128),
        # a chain, as in most networks: each value lives until the next is made
        ([Buffer(1000, i, i + 1) for i in range(50)], 2048),
        # a residual chain: every fourth value lives for four steps more
        ([Buffer(640, i, i + (5 if i % 4 == 0 else 1)) for i in range(48)], 4 * 640),
    ],
)
def test_small_cases_are_tight(items: list[Buffer], total: int):
    assert place(items)[1] <= total
    assert place(items)[1] >= lower_bound(items)


def test_the_smallest_gap_that_fits_is_taken():
    """Between two long-lived buffers lie a wide and a narrow gap; the small one goes into the narrow."""
    walls = [Buffer(1024, 0, 9), Buffer(512, 0, 1), Buffer(448, 0, 9), Buffer(128, 0, 1), Buffer(127, 0, 9)]
    offsets, total = place([*walls, Buffer(64, 5, 6)])
    assert offsets == [0, 1024, 1536, 1984, 2112, 1984]
    assert total == 1024 + 512 + 448 + 128 + 128
