"""The fused operators against the composition of their parts (the same bits) and against onnxruntime."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support.node_cases import assert_same
from support.one_node import bind, onnxruntime_runs
from support.producer_cases import FLOATS, ProducerCase, onnxruntime_can, producer_cases
from support.strategies import INTEGERS, arrays, broadcastable

from ngine_ref import registry
from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.ops.convolution import PRODUCERS, convolution_epilogue
from ngine_ref.registry import Call, TensorSpec, Workspace, aligned_bytes, get

# -- ConvLeakyRelu, ConvPRelu ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op_type", ["ConvLeakyRelu", "ConvPRelu"])
@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_fused_activation_has_the_bits_of_its_parts(op_type: str, dtype: Any, data: st.DataObject):
    case = data.draw(producer_cases(dtype, op_type))
    assert_same(get(op_type)(case.inputs, case.all_attributes)[0], case.composition())


def check_producer_against_onnxruntime(case: ProducerCase) -> None:
    if onnxruntime_can(case.convolution):
        (actual,) = get(case.op_type)(case.inputs, case.all_attributes)
        assert_same(actual, onnxruntime_runs(case.nodes(), case.feeds())[0], rtol=1e-5, atol=case.rounding)


@given(producer_cases())
@settings(max_examples=100, deadline=None)
def test_random_producers_against_onnxruntime(case: ProducerCase):
    check_producer_against_onnxruntime(case)


@pytest.mark.long
@given(producer_cases())
@settings(max_examples=1000, deadline=None)
def test_many_random_producers_against_onnxruntime(case: ProducerCase):
    check_producer_against_onnxruntime(case)


def test_leaky_relu_has_the_default_alpha():
    x, w = np.full((1, 1, 2, 2), -1, np.float32), np.ones((1, 1, 1, 1), np.float32)
    assert_same(get("ConvLeakyRelu")([x, w])[0], np.full((1, 1, 2, 2), -0.01, np.float32))


@pytest.mark.parametrize("slope", [(4,), (1, 4), (1, 4, 1), (4, 4, 4), (1, 1, 1, 4), (2, 1, 1), (1, 1, 1, 1, 1)])
def test_slopes_that_are_not_per_channel(slope: tuple[int, ...]):
    """With C = H = W = 4 a wrong alignment gives wrong numbers and no other error."""
    x, w = np.ones((1, 4, 4, 4), np.float32), np.ones((4, 4, 1, 1), np.float32)
    with pytest.raises(ShapeError) as caught:
        get("ConvPRelu")([x, w, None, np.ones(slope, np.float32)])
    assert str(slope) in str(caught.value)
    assert "(1, 4, 4, 4)" in str(caught.value)


def test_prelu_slope_must_be_there_and_of_the_same_type():
    x, w = np.ones((1, 4, 4, 4), np.float32), np.ones((4, 4, 1, 1), np.float32)
    with pytest.raises(OperatorError, match="input 3"):
        get("ConvPRelu")([x, w])
    with pytest.raises(OperatorError, match="float64"):
        get("ConvPRelu")([x, w, None, np.ones(1)])


def test_an_epilogue_of_a_few_lines_is_an_operator_and_a_producer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_OPERATORS", dict(registry._OPERATORS))
    monkeypatch.setitem(PRODUCERS, "ConvNeg", PRODUCERS["Conv"])  # so that the name is gone afterwards

    @convolution_epilogue("ConvNeg")
    def bind_conv_neg(call: Call, output: TensorSpec) -> Any:
        return lambda block: np.negative(block.values, out=block.values)

    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 1, 1), np.float32)
    expected = np.full((1, 3, 4, 4), -2, np.float32)
    assert_same(get("ConvNeg")([x, w])[0], expected)
    (joint,) = get("ConcatFusedTail")([x, x, w], {"prefix_count": 1, "producer_op": "ConvNeg"})
    assert_same(joint, np.concatenate([x, expected], 1))


# -- MulAdd ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_mul_add_has_the_bits_of_its_parts(dtype: Any, data: st.DataObject):
    """Integers wrap around; shapes broadcast in every way, also from and to rank 0."""
    shapes = data.draw(broadcastable(3))
    a, b, c = (data.draw(arrays(shape, dtype if dtype in INTEGERS else np.float64)).astype(dtype) for shape in shapes)
    with np.errstate(all="ignore"):
        expected = np.asarray(np.asarray(a * b, dtype) + c, dtype)
    assert_same(get("MulAdd")([a, b, c])[0], expected)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_mul_add_against_onnxruntime(data: st.DataObject):
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int32, np.int64]))
    feeds = dict(zip("abc", (data.draw(arrays(s, dtype)) for s in data.draw(broadcastable(3))), strict=True))
    nodes = [helper.make_node("Mul", ["a", "b"], ["m"]), helper.make_node("Add", ["m", "c"], ["y"])]
    assert_same(get("MulAdd")(list(feeds.values()))[0], onnxruntime_runs(nodes, feeds)[0])


@pytest.mark.parametrize("b", [(), (1,), (1, 64, 1, 1), (64, 1, 1), (1, 64, 40, 30)])
@pytest.mark.parametrize("slot", [0, 1, 2, None])
def test_mul_add_of_many_blocks_in_the_place_of_an_input(b: tuple[int, ...], slot: int | None):
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((1, 64, 40, 30), b, (1, 64, 40, 30))]
    expected = inputs[0] * inputs[1] + inputs[2]
    kernel = bind("MulAdd", inputs, {})
    assert kernel.in_place == ((0, 1, 2) if b == (1, 64, 40, 30) else (0, 2))
    if slot is None or slot in kernel.in_place:
        output = np.empty_like(expected) if slot is None else inputs[slot]
        kernel.compute(inputs, [output], Workspace(aligned_bytes(kernel.scratch_bytes)))
        assert_same(output, expected)


def test_mul_add_refuses():
    a = np.ones((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"\(2, 3\).*\(4,\)"):
        get("MulAdd")([a, np.ones(4, np.float32), a])
    with pytest.raises(OperatorError, match="one element type"):
        get("MulAdd")([a, a.astype(np.float64), a])
    with pytest.raises(OperatorError, match="input 2"):
        get("MulAdd")([a, a])


# -- All of them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "slots", "attributes", "sentence"),
    [
        ("ConvLeakyRelu", 2, {"aplha": 0.2}, "ConvLeakyRelu has no attribute 'aplha'."),
        ("ConvLeakyRelu", 4, {}, "ConvLeakyRelu takes at most 3 inputs, got 4."),
        ("MulAdd", 3, {"axis": 1}, "MulAdd has no attribute 'axis'."),
        ("MulAdd", 4, {}, "MulAdd takes at most 3 inputs, got 4."),
        ("MatMulAdd", 3, {"alpha": 1.0}, "MatMulAdd has no attribute 'alpha'."),
        ("ConcatFusedTail", 3, {"prefix_count": 1, "producer_op": "Conv", "alpha": 0.1}, "no attribute 'alpha'"),
        ("ConcatFusedTail", 6, {"prefix_count": 1, "producer_op": "ConvPRelu"}, "takes at most 4 inputs, got 5"),
        ("ConcatFusedTail", 3, {"prefix_count": "1", "producer_op": "Conv"}, "prefix_count is '1'"),
        ("ConcatFusedTail", 3, {"prefix_count": 1, "producer_op": ["Conv"]}, "producer_op is"),
    ],
)
def test_what_a_definition_has_no_use_for_is_refused(
    op_type: str, slots: int, attributes: dict[str, Any], sentence: str
):
    x = np.ones((1, 2, 3, 3), np.float32)
    with pytest.raises(OperatorError, match=re.escape(sentence)):
        get(op_type)([x] * slots, attributes)
