"""The fused operators against the composition of their parts (the same bits) and against onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ValueInfoProto, helper
from support.convolution_strategies import ConvolutionCase, convolutions
from support.node_cases import assert_same
from support.strategies import INTEGERS, arrays, broadcastable

from ngine_ref import registry
from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.dtypes import element_type_of
from ngine_ref.ops.convolution import PRODUCERS, convolution_epilogue
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, aligned_bytes, find, get, heap

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)

producers = st.sampled_from(["Conv", "ConvLeakyRelu", "ConvPRelu"])
alphas = st.sampled_from([0.2, 0.01, 1.0, 0.0, -0.5, 3.0])


@dataclass
class ProducerCase:
    """A producer with its inputs and attributes, and the standard operator that follows its convolution."""

    op_type: str
    convolution: ConvolutionCase
    attributes: dict[str, Any] = field(default_factory=dict)
    slope: list[Array] = field(default_factory=list)

    @property
    def inputs(self) -> list[Array | None]:
        given_inputs = self.convolution.inputs
        return [*given_inputs, *[None] * (3 - len(given_inputs)), *self.slope] if self.slope else given_inputs

    @property
    def all_attributes(self) -> dict[str, Any]:
        return self.convolution.attributes | self.attributes

    @property
    def rounding(self) -> float:
        """What the activation makes of the convolution's rounding."""
        factors = [1.0, *np.abs(list(self.attributes.values())), *(np.abs(slope).max() for slope in self.slope)]
        return float(self.convolution.rounding * max(factors))

    def composition(self) -> Array:
        """The producer's parts, one kernel after the other."""
        (y,) = get("Conv")(self.convolution.inputs, self.convolution.attributes)
        if self.op_type == "ConvLeakyRelu":
            (y,) = get("LeakyRelu")([y], self.attributes)
        elif self.op_type == "ConvPRelu":
            (y,) = get("PRelu")([y, *self.slope])
        return y

    def nodes(self) -> list[Any]:
        """The parts as ONNX nodes from x0, x1, ... to y."""
        names = [f"x{slot}" for slot in range(len(self.convolution.inputs))]
        nodes = [helper.make_node("Conv", names, ["c"], **self.convolution.attributes)]
        if self.op_type == "ConvPRelu":
            nodes.append(helper.make_node("PRelu", ["c", "slope"], ["y"]))
        else:
            following = "LeakyRelu" if self.op_type == "ConvLeakyRelu" else "Identity"
            nodes.append(helper.make_node(following, ["c"], ["y"], **self.attributes))
        return nodes

    def feeds(self) -> dict[str, Array]:
        named = {f"x{slot}": array for slot, array in enumerate(self.convolution.inputs) if array is not None}
        return named | dict(zip(["slope"], self.slope, strict=False))


@st.composite
def producer_cases(draw: st.DrawFn, dtype: Any = np.float32, op_type: str | None = None) -> ProducerCase:
    case = draw(convolutions(dtype=dtype))
    kind = op_type or draw(producers)
    if kind == "ConvLeakyRelu":
        return ProducerCase(kind, case, {"alpha": draw(alphas)})
    if kind == "ConvPRelu":
        ones = [1] * (case.inputs[0].ndim - 2)
        filters = case.inputs[1].shape[0]
        shape = draw(st.sampled_from([[], [1], [filters, *ones], [1, filters, *ones]]))
        slope = draw(arrays(tuple(shape), np.float32, special=False)).astype(dtype)
        return ProducerCase(kind, case, slope=[slope])
    return ProducerCase(kind, case)


def run_onnxruntime(nodes: Sequence[Any], feeds: dict[str, Array], opset: int = 17) -> Array:
    values = [helper.make_tensor_value_info(n, element_type_of(a.dtype), a.shape) for n, a in feeds.items()]
    graph = helper.make_graph(nodes, "g", values, [ValueInfoProto(name=nodes[-1].output[0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def onnxruntime_can(case: ConvolutionCase) -> bool:
    """It refuses SAME padding with dilations."""
    dilated = any(number > 1 for number in case.attributes.get("dilations", []))
    return not (dilated and case.attributes.get("auto_pad", "NOTSET").startswith("SAME"))


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
        assert_same(actual, run_onnxruntime(case.nodes(), case.feeds()), rtol=1e-5, atol=case.rounding)


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
    assert_same(get("MulAdd")(list(feeds.values()))[0], run_onnxruntime(nodes, feeds))


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


# -- ConcatFusedTail ---------------------------------------------------------------------------------------------------


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
        assert_same(actual, run_onnxruntime(nodes, case.feeds() | named), rtol=1e-5, atol=case.rounding)


@given(joined_cases())
@settings(max_examples=100, deadline=None)
def test_random_joined_outputs_against_onnxruntime(drawn: Any):
    check_joined_against_onnxruntime(drawn)


@pytest.mark.long
@given(joined_cases())
@settings(max_examples=1000, deadline=None)
def test_many_random_joined_outputs_against_onnxruntime(drawn: Any):
    check_joined_against_onnxruntime(drawn)


def bind(op_type: str, inputs: Sequence[Array | None], attributes: dict[str, Any]) -> Kernel:
    operator = find(op_type, "ai.ngine")
    assert operator is not None
    specs = [None if array is None else TensorSpec(array.shape, array.dtype, array) for array in inputs]
    return operator.bind(Call(op_type, specs, attributes))


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
