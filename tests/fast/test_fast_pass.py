"""Regions found in whole models: what is taken in, what is not, and that the values stay what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from fast.reference import assert_close
from onnx import TensorProto, helper

from ngine_ref import InferenceSession
from ngine_ref.execution import draft
from ngine_ref.fast.fast_pass import hand_over_regions
from ngine_ref.loading.model import load
from ngine_ref.options import SessionOptions
from ngine_ref.registry import TensorSpec


class Graph:
    """A small model under construction; every method returns the name it makes."""

    def __init__(self, seed: int = 0, dtype: int = TensorProto.FLOAT) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def node(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], domain=domain, **attributes))
        return output

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        array = np.asarray(values, helper.tensor_dtype_to_np_dtype(self.dtype))
        self.weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def filters(self, outputs: int, inputs: int, taps: int = 3) -> str:
        values = self.random.standard_normal((outputs, inputs, taps, taps)) / (inputs * taps * taps) ** 0.5
        return self.constant(values)

    def conv(self, source: str, inputs: int, outputs: int = 32, taps: int = 3, **attributes: Any) -> str:
        bias = self.constant(0.1 * self.random.standard_normal(outputs))
        attributes = {"pads": [taps // 2] * 4, **attributes}
        return self.node("Conv", source, self.filters(outputs, inputs, taps), bias, **attributes)

    def model(self, *outputs: str, channels: int = 32) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", self.dtype, ["n", channels, "h", "w"])],
            [helper.make_tensor_value_info(name, self.dtype, None) for name in outputs],
            self.weights,
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.ngine", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


SIZE = (1, 32, 33, 26)


def steps_of(model: onnx.ModelProto, size: tuple[int, ...] = SIZE) -> list[Any]:
    """The steps of the plan with regions in it."""
    graph = load(model, None).graph
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type))
    results = [value.name for value in graph.outputs]
    plan = draft(graph.nodes, graph.initializers, {"x": TensorSpec(size, dtype)}, results, {})
    return hand_over_regions(plan).steps


def region_count(model: onnx.ModelProto, size: tuple[int, ...] = SIZE) -> tuple[int, int]:
    """How many steps are regions, and how many steps there are."""
    steps = steps_of(model, size)
    return sum(step.kernel.compute.__module__ == hand_over_regions.__module__ for step in steps), len(steps)


def check(model: onnx.ModelProto, size: tuple[int, ...] = SIZE) -> None:
    """Fast and plain runs agree on every value that both can be asked for."""
    fast, plain = (InferenceSession(model, SessionOptions(fast_paths=on)) for on in (True, False))
    images = np.random.default_rng(5).standard_normal(size).astype(np.float32)
    for found, expected in zip(fast.run(None, {"x": images}), plain.run(None, {"x": images}), strict=True):
        assert_close(found, expected)
    for node in model.graph.node:
        (found,), (expected,) = (session.run([node.output[0]], {"x": images}) for session in (fast, plain))
        assert_close(found, expected)


def dense(graph: Graph, *, fused: bool) -> tuple[str, str]:
    """A dense block of 32 channels and growth 32; returns its result and the last joined value."""
    joined, channels = "x", 32
    for _ in range(3):
        if fused:
            source = graph.constant(0.1 * graph.random.standard_normal(32))
            inputs = (joined, joined, graph.filters(32, channels), source)
            attributes = {"axis": 1, "prefix_count": 1, "producer_op": "ConvLeakyRelu", "alpha": 0.2, "pads": [1] * 4}
            joined = graph.node("ConcatFusedTail", *inputs, domain="ai.ngine", **attributes)
        else:
            feature = graph.node("LeakyRelu", graph.conv(joined, channels), alpha=0.2)
            joined = graph.node("Concat", joined, feature, axis=1)
        channels += 32
    scale = graph.constant([0.2])
    if fused:
        return graph.node("MulAdd", graph.conv(joined, channels), scale, "x", domain="ai.ngine"), joined
    return graph.node("Add", graph.node("Mul", graph.conv(joined, channels), scale), "x"), joined


def test_a_fused_dense_block_is_one_step():
    graph = Graph()
    model = graph.model(dense(graph, fused=True)[0])
    assert region_count(model) == (1, 1)
    check(model)


def test_a_plain_concat_of_a_tail_is_the_copy_that_the_model_says():
    graph = Graph()
    model = graph.model(dense(graph, fused=False)[0])
    assert [step.node.op_type for step in steps_of(model)].count("Concat") == 3
    check(model)


def test_a_plain_concat_of_what_others_read_too_is_a_list_of_parts():
    """No rule could fuse it: the last part is no tail."""
    graph = Graph()
    first, second = graph.conv("x", 32), graph.conv("x", 32)
    joined = graph.node("Concat", first, second, axis=1)
    gated = graph.node("Mul", second, graph.node("Sigmoid", second))
    model = graph.model(graph.node("Add", graph.conv(joined, 64), gated))
    assert region_count(model) == (1, 1)
    check(model)


def test_a_joined_value_that_others_read_is_made_behind_the_region():
    graph = Graph()
    result, joined = dense(graph, fused=True)
    model = graph.model(result, graph.node("GlobalAveragePool", joined))
    regions, steps = region_count(model)
    assert (regions, steps) == (1, 3)
    check(model)


@pytest.mark.parametrize("size", [(1, 32, 5, 101), (2, 32, 33, 17), (3, 32, 14, 15)])
def test_chains_with_prelu_of_other_sizes(size):
    graph = Graph()
    value = "x"
    for _ in range(3):
        value = graph.node("PRelu", graph.conv(value, 32), graph.constant(graph.random.random((32, 1, 1))))
    model = graph.model(value)
    assert region_count(model, size) == (1, 1)
    check(model, size)


def test_gates_and_one_by_one_convolutions_join():
    graph = Graph()
    first = graph.conv("x", 32)
    second = graph.conv(graph.node("Mul", first, graph.node("Sigmoid", first)), 32)
    gate = graph.node("Sub", graph.node("Sigmoid", second), graph.constant(0.5))
    gated = graph.node("Mul", graph.node("Add", second, "x"), gate)
    model = graph.model(graph.conv(graph.node("Concat", first, gated, "x", axis=1), 96, taps=1))
    assert region_count(model) == (1, 1)
    check(model)


def test_a_region_does_not_reach_round_a_step_it_cannot_take_in():
    """The second convolution depends on the first through a pooling: two regions, in the right order."""
    graph = Graph()
    first = graph.conv(graph.conv(graph.conv("x", 32), 32), 32)
    side = graph.node("AveragePool", first, kernel_shape=[3, 3], pads=[1] * 4)
    joined = graph.node("Concat", graph.conv(first, 32), graph.conv(side, 32), "x", axis=1)
    model = graph.model(graph.conv(graph.conv(joined, 96), 32))
    assert region_count(model)[0] >= 2
    check(model)


def test_regions_that_feed_each_other_in_turn():
    """Each of two branches reads the other through a pooling; neither may be put before what it needs."""
    graph = Graph()
    left, right = graph.conv("x", 32), graph.conv("x", 32)
    for _ in range(3):
        left, right = (
            graph.node("Add", graph.conv(left, 32), graph.node("AveragePool", right, kernel_shape=[1, 1])),
            graph.node("Add", graph.conv(right, 32), graph.node("AveragePool", left, kernel_shape=[1, 1])),
        )
    check(graph.model(left, right))


def resize(graph: Graph, source: str, scale: float = 2.0, **attributes: Any) -> str:
    """A Resize of height and width."""
    graph.weights.append(
        onnx.numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), f"s{len(graph.nodes)}")
    )
    return graph.node("Resize", source, "", graph.weights[-1].name, mode="nearest", **attributes)


FLOOR = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def tail(graph: Graph, few: int, **attributes: Any) -> onnx.ModelProto:
    value = graph.node("LeakyRelu", graph.conv(resize(graph, "x", **attributes), 32), alpha=0.1)
    value = graph.node("LeakyRelu", graph.conv(value, 32), alpha=0.2)
    return graph.model(graph.conv(value, 32, few))


@pytest.mark.parametrize("attributes", [FLOOR, {}, {"nearest_mode": "round_prefer_ceil"}])
def test_an_enlargement_and_what_follows_is_one_step(attributes):
    model = tail(Graph(), 3, **attributes)
    assert region_count(model) == (1, 1)
    check(model)


def test_a_last_convolution_to_many_channels_is_a_step_of_its_own():
    model = tail(Graph(), 32, **FLOOR)
    assert region_count(model) == (1, 2)
    check(model)


@pytest.mark.parametrize(
    "attributes",
    [
        {"scale": 3.0, **FLOOR},
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"},
        {"coordinate_transformation_mode": "align_corners"},
        {"nearest_mode": "floor"},
    ],
)
def test_other_enlargements_stay_what_they_are(attributes):
    model = tail(Graph(), 3, **attributes)
    assert "Resize" in [step.node.op_type for step in steps_of(model)]
    check(model)


def test_an_enlarged_value_that_others_read_exists():
    graph = Graph()
    large = resize(graph, "x", **FLOOR)
    model = graph.model(graph.conv(large, 32), large)
    assert "Resize" in [step.node.op_type for step in steps_of(model)]
    check(model)


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 2]},
        {"dilations": [2, 2], "pads": [2] * 4},
        {"pads": [0] * 4},
        {"pads": [1, 1, 0, 2]},
        {"taps": 5},
    ],
)
def test_other_convolutions_keep_their_kernel(attributes):
    graph = Graph()
    model = graph.model(graph.conv("x", 32, **attributes))
    assert region_count(model) == (0, 1)
    check(model)


def test_groups_keep_their_kernel():
    graph = Graph()
    model = graph.model(graph.node("Conv", "x", graph.filters(32, 16), pads=[1] * 4, group=2))
    assert region_count(model) == (0, 1)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_other_element_types_never_go_through_winograd(dtype):
    graph = Graph(dtype=dtype)
    assert region_count(graph.model(graph.conv("x", 32))) == (0, 1)


def test_small_work_is_not_worth_it():
    graph = Graph()
    assert region_count(graph.model(graph.conv("x", 32, 8))) == (0, 1)
    graph = Graph()
    alone = graph.model(graph.conv("x", 64, 64), channels=64)
    assert region_count(alone, (1, 64, 48, 48)) == (0, 1)
    assert region_count(alone, (1, 64, 56, 56)) == (1, 1)
    graph = Graph()
    narrow = graph.model(graph.conv("x", 64, 32), channels=64)
    assert region_count(narrow, (1, 64, 112, 112)) == (0, 1)
    graph = Graph()
    chain = graph.model(graph.conv(graph.conv(graph.conv("x", 32), 32), 32))
    assert region_count(chain, (1, 32, 12, 12)) == (0, 3)
    assert region_count(chain, (1, 32, 16, 16)) == (1, 1)


def test_weights_that_are_computed_keep_the_convolution_plain():
    graph = Graph()
    doubled = graph.node("Mul", "x", graph.constant(2.0))
    weight = graph.node("Reshape", graph.node("ReduceMean", doubled, axes=[0]), "shape")
    graph.weights.append(onnx.numpy_helper.from_array(np.array([8, 32, 3, 3], np.int64), "shape"))
    model = graph.model(graph.node("Conv", "x", weight, pads=[1] * 4))
    assert region_count(model, (1, 32, 9, 8))[0] == 0


def test_broadcast_operands_stay_outside():
    graph = Graph()
    value = graph.conv("x", 32)
    column = graph.constant(graph.random.random(SIZE[3]))
    mean = graph.node("GlobalAveragePool", value)
    model = graph.model(graph.node("Add", value, column), graph.node("Mul", value, mean))
    check(model)


def test_runs_of_several_sizes_share_a_session():
    graph = Graph()
    model = graph.model(dense(graph, fused=True)[0])
    for size in [(1, 32, 30, 28), (2, 32, 21, 40), (1, 32, 30, 28)]:
        check(model, size)


def test_the_options_switch_fast_paths_and_kept_filters():
    """Filters made anew are rounded once more: other bits, the same numbers."""
    graph = Graph()
    model = graph.model(dense(graph, fused=True)[0])
    images = np.random.default_rng(1).standard_normal(SIZE).astype(np.float32)
    choices = [{"keep_filters": True}, {"keep_filters": False}, {"fast_paths": False}]
    sessions = [InferenceSession(model, SessionOptions(**choice)) for choice in choices]
    kept, anew, plain = (session.run(None, {"x": images})[0] for session in sessions)
    plain_steps = len(model.graph.node) + 3  # the plan takes each ConcatFusedTail as a convolution and a Concat
    assert [session.last_run.steps for session in sessions] == [1, 1, plain_steps]
    assert (kept != anew).any()
    assert_close(kept, plain)
    assert_close(anew, plain)


def test_buffers_and_filters_of_regions_are_counted():
    """A dense block of 32 to 128 channels: its map is in V, six numbers for four, and the filters are 36 for nine."""
    graph = Graph()
    model = graph.model(dense(graph, fused=True)[0])
    images = np.ones(SIZE, np.float32)
    session = InferenceSession(model, SessionOptions(fast_paths=True, keep_filters=True))
    peaks = []
    for _ in range(2):
        session.run(None, {"x": images})
        peaks.append(session.last_run.peak_bytes)
    filters = 36 * 4 * 32 * (32 + 64 + 96 + 128)
    joined = 4 * images.nbytes
    assert peaks[0] == peaks[1]
    assert filters + joined < peaks[0] < filters + 20 * joined


def test_buffers_of_streams_are_counted():
    session = InferenceSession(tail(Graph(), 3, **FLOOR), SessionOptions(fast_paths=True))
    session.run(None, {"x": np.ones(SIZE, np.float32)})
    assert session.last_run.steps == 1
    filters, result = 36 * 4 * 32 * 32, 4 * 3 * 4 * 33 * 26
    assert session.last_run.peak_bytes > filters + result
