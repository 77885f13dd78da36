"""ConcatFusedTail: a producer that writes into the tail of a Concat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support.node_cases import assert_same
from support.one_node import bind, onnxruntime_runs
from support.producer_cases import FLOATS, ProducerCase, onnxruntime_can, producer_cases

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.ops.convolution import PRODUCERS
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, aligned_bytes, get, heap


@st.composite
def joined_cases(draw: st.DrawFn, dtype: Any = np.float32) -> tuple[ProducerCase, list[Array], dict[str, Any]]:
    case = draw(producer_cases(dtype))
    tail = case.composition()
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels = draw(st.lists(st.integers(0, 5), max_size=3))
    shapes = [(tail.shape[0], count, *tail.shape[2:]) for count in channels]
    prefixes = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    axis = draw(st.sampled_from([None, 1, 1 - tail.ndim]))
    attributes = {"prefix_count": len(prefixes), "producer_op": case.op_type} | ({} if axis is None else {"axis": axis})
    return case, prefixes, case.all_attributes | attributes


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_joint_output_has_the_bits_of_its_parts(dtype: Any, data: st.DataObject):
    case, prefixes, attributes = data.draw(joined_cases(dtype))
    (actual,) = get("ConcatFusedTail")([*prefixes, *case.inputs], attributes)
    assert_same(actual, np.concatenate([*prefixes, case.composition()], 1))


def check_joined_against_onnxruntime(drawn: tuple[ProducerCase, list[Array], dict[str, Any]]) -> None:
    case, prefixes, attributes = drawn
    if onnxruntime_can(case.convolution):
        named = {f"p{index}": prefix for index, prefix in enumerate(prefixes)}
        nodes = [*case.nodes(), helper.make_node("Concat", [*named, "y"], ["z"], axis=1)]
        (actual,) = get("ConcatFusedTail")([*prefixes, *case.inputs], attributes)
        assert_same(actual, onnxruntime_runs(nodes, case.feeds() | named)[0], rtol=1e-5, atol=case.rounding)


@given(joined_cases())
@settings(max_examples=100, deadline=None)
def test_random_joined_outputs_against_onnxruntime(drawn: Any):
    check_joined_against_onnxruntime(drawn)


@pytest.mark.long
@given(joined_cases())
@settings(max_examples=1000, deadline=None)
def test_many_random_joined_outputs_against_onnxruntime(drawn: Any):
    check_joined_against_onnxruntime(drawn)


def dense_block_inputs(batch: int) -> tuple[list[Array], dict[str, Any]]:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((batch, 64, 24, 40)).astype(np.float32)
    w, bias = rng.standard_normal((32, 64, 3, 3)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    attributes = {"prefix_count": 1, "producer_op": "ConvLeakyRelu", "pads": [1, 1, 1, 1], "alpha": 0.2}
    return [x, x, w, bias], attributes


@pytest.mark.parametrize("batch", [1, 3])
def test_no_separate_buffer_for_the_tail(batch: int):
    """One output buffer is asked for, the joint one; scratch memory is that of the convolution's blocks alone."""
    inputs, attributes = dense_block_inputs(batch)
    asked = []

    def counting(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        asked.append(heap(shape, dtype))
        return asked[-1]

    (joint,) = get("ConcatFusedTail")(inputs, attributes, counting)
    assert [buffer.shape for buffer in asked] == [(batch, 96, 24, 40)]
    assert np.shares_memory(joint, asked[0])
    producer = bind("ConvLeakyRelu", inputs[1:], {"pads": [1, 1, 1, 1], "alpha": 0.2})
    kernel = bind("ConcatFusedTail", inputs, attributes)
    assert kernel.scratch_bytes == producer.scratch_bytes


@pytest.mark.parametrize("batch", [1, 3])
def test_convolution_is_handed_the_tail_of_the_joint_buffer(batch: int, monkeypatch: pytest.MonkeyPatch):
    inputs, attributes = dense_block_inputs(batch)
    seen = []

    def spy(call: Call) -> Kernel:
        def compute(given_inputs: Any, outputs: Any, workspace: Any) -> None:
            seen.extend(outputs)
            outputs[0][...] = 7

        return Kernel((TensorSpec((batch, 32, 24, 40), np.dtype(np.float32)),), compute)

    monkeypatch.setitem(PRODUCERS, "ConvLeakyRelu", spy)
    (joint,) = get("ConcatFusedTail")(inputs, attributes)
    assert len(seen) == 1
    assert np.shares_memory(seen[0], joint)
    assert not np.shares_memory(seen[0], joint[:, :64])
    assert_same(joint, np.concatenate([inputs[0], np.full((batch, 32, 24, 40), 7, np.float32)], 1))


class Watched(np.ndarray):
    """An array that notes the shapes of assignments to it and its views."""

    written: list[tuple[int, ...]]

    def __array_finalize__(self, source: Any) -> None:
        self.written = getattr(source, "written", [])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.written.append(self[index].shape)
        super().__setitem__(index, value)


@pytest.mark.parametrize("batch", [1, 3])
def test_prefix_that_lies_in_its_place_is_not_copied(batch: int):
    inputs, attributes = dense_block_inputs(batch)
    (expected,) = get("ConcatFusedTail")(inputs, attributes)
    kernel = bind("ConcatFusedTail", inputs, attributes)
    workspace = Workspace(aligned_bytes(kernel.scratch_bytes))
    joint = np.full_like(expected, np.nan).view(Watched)
    head = np.asarray(joint)[:, :64]
    head[...] = inputs[0]
    kernel.compute([head, head, *inputs[2:]], [joint], workspace)
    assert_same(np.asarray(joint), expected)
    assert head.shape not in joint.written
    # A prefix elsewhere has to be copied, also one that starts where its place starts but lies otherwise.
    for prefix in (inputs[0], np.broadcast_to(head[:1, :1], head.shape)):
        joint.written.clear()
        kernel.compute([prefix, *inputs[1:]], [joint], workspace)
        assert head.shape in joint.written


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"producer_op": "Conv"}, "prefix_count"),
        ({"producer_op": "Conv", "prefix_count": 2}, "prefix_count is 2"),
        ({"producer_op": "Conv", "prefix_count": -1}, "prefix_count is -1"),
        ({"prefix_count": 1}, "producer_op is None"),
        ({"producer_op": "ConvTranspose", "prefix_count": 1}, "ConvTranspose"),
        ({"producer_op": "ConvLeakyRelu", "prefix_count": 1}, "alpha"),
        ({"producer_op": "ConvPRelu", "prefix_count": 1}, "input 3"),
        ({"producer_op": "Conv", "prefix_count": 1, "axis": 2}, "axis is 2"),
        ({"producer_op": "Conv", "prefix_count": 1, "axis": -2}, "axis is -2"),
    ],
)
def test_joining_refuses_attributes(attributes: dict[str, Any], words: str):
    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 1, 1), np.float32)
    with pytest.raises(OperatorError, match=words):
        get("ConcatFusedTail")([x, x, w], attributes)


@pytest.mark.parametrize("prefix", [(1, 2, 4, 5), (2, 2, 4, 4), (1, 2, 4)])
def test_joining_refuses_a_prefix_of_another_size(prefix: tuple[int, ...]):
    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 1, 1), np.float32)
    with pytest.raises(ShapeError) as caught:
        get("ConcatFusedTail")([np.ones(prefix, np.float32), x, w], {"producer_op": "Conv", "prefix_count": 1})
    assert str(prefix) in str(caught.value)
    assert "(1, 3, 4, 4)" in str(caught.value)
