"""Blocks cover an array once, whatever its layout."""

import numpy as np
import pytest
from support.node_cases import assert_same
from support.one_node import strided

from ngine_ref.numerics.blocks import BLOCK, apply_in_blocks, blocks

SHAPES = [(), (0,), (7,), (3 * BLOCK + 5,), (2, 3, 100, 90), (5, BLOCK + 1), (1, 4, 2, BLOCK // 3), (BLOCK * 2, 1, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "layout", [np.asarray, strided, lambda array: strided(array).T], ids=["dense", "gaps", "turned"]
)
def test_every_element_is_visited_once(shape, layout):
    out = layout(np.zeros(shape, np.int32))
    for (block,) in blocks(out):
        assert block.size <= BLOCK
        block += 1
    assert (out == 1).all()


@pytest.mark.parametrize("operand", [(), (1,), (90,), (3, 1, 1), (2, 1, 1, 90), (1, 1, 100, 1), (2, 3, 100, 90)])
@pytest.mark.parametrize("layout", [np.asarray, strided])
def test_operands_go_with_their_block(operand, layout):
    out = layout(np.zeros((2, 3, 100, 90)))
    values = np.random.default_rng(0).normal(size=operand)
    for block, part in blocks(out, values):
        block[...] = part
    assert (out == values).all()


def test_contiguous_arrays_are_cut_into_full_blocks():
    x = np.zeros((3, 5, 7, 1000))
    sizes = [block.size for block, _, _ in blocks(x, x, np.zeros(1))]
    assert set(sizes[:-1]) == {BLOCK}


def test_narrow_floats_are_widened_for_the_function():
    seen = []

    def double(x):
        seen.append(x.dtype)
        return x * 2

    x = np.linspace(0, 1, 2 * BLOCK).astype(np.float16)
    out = np.empty_like(x)
    apply_in_blocks(double, x, out)
    assert seen == [np.float32, np.float32]
    assert_same(out, x * np.float16(2))
