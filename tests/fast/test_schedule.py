"""Which transforms are shared, which maps share memory, what is folded, and what is no program."""

from __future__ import annotations

import gc
from itertools import pairwise

import numpy as np
import pytest
from fast.programs import Weights, dense_block, number

from ngine_ref.errors import OperatorError
from ngine_ref.fast.filters import BUFFERS, PassingFilters, keep_filters
from ngine_ref.fast.memory import Arena
from ngine_ref.fast.program import Elementwise, Program, Step, fold_scales
from ngine_ref.fast.schedule import schedule
from ngine_ref.fast.winograd import PLANES, transformed_filters

MAKE = Weights(0)


def conv(inputs: str, output: str, *after: Elementwise, channels: int = 2) -> Step:
    """A step of two channels everywhere."""
    names = tuple(inputs.split())
    return Step(names, MAKE.filters(channels, 2 * len(names)), None, output, after)


def test_a_dense_block_transforms_every_map_once():
    steps = (conv("x", "a"), conv("x a", "b"), conv("x a b", "c"), conv("c", "d"))
    plan = schedule(Program({"x": 2}, steps, ("d",)))
    assert [item.transforms for item in plan.steps] == [("x",), ("a",), ("b",), ("c",)]
    assert [item.first_channel for item in plan.steps] == [0, 2, 4, 0]
    assert [item.kept for item in plan.steps] == [True, True, True, False]
    assert plan.kept_channels == 6


def test_the_same_inputs_twice_are_transformed_once():
    plan = schedule(Program({"x": 2}, (conv("x", "a"), conv("x", "b")), ("a", "b")))
    assert [item.transforms for item in plan.steps] == [("x",), ()]
    assert all(item.kept for item in plan.steps)


def test_a_chain_keeps_no_transforms_and_needs_two_buffers():
    names = ["x", "a", "b", "c", "d", "e"]
    steps = tuple(conv(source, result) for source, result in pairwise(names))
    plan = schedule(Program({"x": 2}, steps, ("e",)))
    assert plan.kept_channels == 0
    assert len({slot.index for slot in plan.slots.values()}) == 2


def test_no_map_takes_a_buffer_that_may_still_be_read():
    program = dense_block(4, 4, seed=0)
    plan = schedule(program)
    made = dict.fromkeys(program.inputs, -1)
    last_read = dict.fromkeys(program.outputs, len(plan.steps))
    for index, item in enumerate(plan.steps):
        made.update(dict.fromkeys(item.step.made(), index))
        maps = item.step.inputs if item.step.pointwise else item.transforms
        operands = {operand for e in item.step.after for operand in e.inputs if isinstance(operand, str)}
        for name in (set(maps) | operands) - set(item.step.made()):
            last_read[name] = max(index, last_read.get(name, -1))
    for one, slot in plan.slots.items():
        for other, other_slot in plan.slots.items():
            if one != other and slot.index == other_slot.index:
                assert slot.channels == other_slot.channels
                assert made[one] > last_read[other] or made[other] > last_read[one]


def test_values_that_nobody_reads_later_have_no_buffer():
    step = conv("x", "a", Elementwise("Relu", ("a",), "b"), Elementwise("Add", ("b", "x"), "c"))
    assert set(schedule(Program({"x": 2}, (step,), ("c",))).slots) == {"x", "c"}


def test_residual_scales_are_folded_where_nobody_sees_the_difference():
    half = number(0.5)
    bias = np.array([2.0, 4.0], np.float32)
    scaled = Step(("x",), MAKE.filters(2, 2), bias, "a", (Elementwise("Mul", (half, "a"), "b"),))
    (step,) = fold_scales(Program({"x": 2}, (scaled,), ("b",))).steps
    assert (step.scale, step.output, step.after) == (0.5, "b", ())
    np.testing.assert_array_equal(step.bias, [1.0, 2.0])
    assert step.weight is scaled.weight
    for outputs in (("b", "a"),):
        (step,) = fold_scales(Program({"x": 2}, (scaled,), outputs)).steps
        assert (step.scale, step.output) == (1.0, "a")
    square = Step(("x",), MAKE.filters(2, 2), None, "a", (Elementwise("Mul", ("a", "a"), "b"),))
    (step,) = fold_scales(Program({"x": 2}, (square,), ("b",))).steps
    assert step.after == square.after


@pytest.mark.parametrize(
    ("steps", "outputs", "message"),
    [
        ((conv("y", "a"),), ("a",), "reads 'y'"),
        ((conv("x", "a"), conv("x", "a")), ("a",), "made twice"),
        ((conv("x x", "a"), conv("a a a", "b")), ("c",), "output 'c'"),
        ((Step(("x",), MAKE.filters(2, 3), None, "a"),), ("a",), "joins 2 channels"),
    ],
)
def test_what_is_no_program_is_refused(steps, outputs, message):
    with pytest.raises(OperatorError, match=message):
        schedule(Program({"x": 2}, steps, outputs))


def test_kept_filters_are_shared_and_go_when_nobody_needs_them():
    step = conv("x", "a")
    arena = Arena()
    one, two = keep_filters(step, arena), keep_filters(step, arena)
    assert one is two
    np.testing.assert_array_equal(one.bank, transformed_filters(step.weight))
    other = Step(step.inputs, step.weight, None, "b", scale=0.5)
    assert keep_filters(other, arena) is not one
    bank = one.bank
    del one, two
    gc.collect()
    assert keep_filters(step, arena).bank is not bank


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_passing_filters_are_made_by_all_parts_together(parts):
    steps = [conv("x", f"a{index}", channels=5) for index in range(BUFFERS + 2)]
    passing = PassingFilters(steps, parts, Arena())
    for index, step in enumerate(steps):
        passing.bank(index)[:] = np.nan
        for part in range(parts):
            for call in passing.make(index, part):
                call()
        np.testing.assert_allclose(passing.bank(index), transformed_filters(step.weight), atol=1e-6)
    assert passing.make(len(steps), 0) == []
    # Three banks in a row are in use at a time: the one being made, the one being read, and a slow reader's.
    starts = {passing.bank(index).ctypes.data for index in range(BUFFERS)}
    assert len(starts) == BUFFERS
    assert passing.bank(0).shape == (PLANES, 5, 2)
