"""Fused operators of every rule set in regions: read by their meaning, alone and as producers of a tail."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from fast.reference import assert_close
from fast.test_fast_pass import FLOOR, Graph, region_count, resize, steps_of
from hypothesis import strategies as st
from support.sweeps import sweep

import graphopt
from ngine_ref import InferenceSession
from ngine_ref.options import SessionOptions


def follow(graph: Graph, kind: str, value: str, beside: str) -> str:
    """What comes after a convolution, in standard operators, for the fused operator of that name to stand for."""
    node, constant = graph.node, graph.constant

    def per_channel() -> str:
        return constant(graph.random.uniform(0.2, 1.5, (32, 1, 1)))

    match kind:
        case "ConvLeakyRelu":
            return node("LeakyRelu", value, alpha=0.2)
        case "ConvPRelu":
            return node("PRelu", value, per_channel())
        case "ConvRelu":
            return node("Relu", value)
        case "ConvSigmoid":
            return node("Sigmoid", value)
        case "ConvSiLU":
            return node("Mul", value, node("Sigmoid", value))
        case "ConvAdd":
            return node("Add", beside, value)
        case "ConvAddRelu":
            return node("Relu", node("Add", value, beside))
        case "ConvMulAdd":
            return node("Add", node("Mul", value, constant(0.2)), beside)
        case "MulSub":
            return node("Sub", node("Mul", beside, per_channel()), value)
    return value


PRODUCERS = ("ConvLeakyRelu", "ConvPRelu", "ConvRelu", "ConvSigmoid", "ConvSiLU")
"""What the rules put into a tail."""
ARITHMETIC = ("ConvAdd", "ConvAddRelu", "ConvMulAdd")


def used(model) -> set[str]:
    """The fused operators of a model, those inside a tail included."""
    producers = {a.s.decode() for node in model.graph.node for a in node.attribute if a.name == "producer_op"}
    return producers | {node.op_type for node in model.graph.node if node.domain}


def check_against_both(source, fused, size: tuple[int, ...], convolutions: int = 3) -> None:
    """A fast run agrees with readable kernels and with onnxruntime, which runs the model that was fused."""
    images = np.random.default_rng(5).standard_normal(size).astype(np.float32)
    fast, plain = (InferenceSession(fused, SessionOptions(fast_paths=on)).run(None, {"x": images}) for on in (1, 0))
    stock = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, readable, other in zip(fast, plain, stock.run(None, {"x": images}), strict=True):
        assert_close(found, readable, convolutions)
        assert_close(found, other, convolutions)


@sweep(
    st.lists(st.tuples(st.sampled_from([*PRODUCERS, *ARITHMETIC, "MulSub"]), st.booleans()), min_size=3, max_size=5),
    st.integers(1, 3),
    st.integers(26, 45),
    st.integers(28, 45),
    examples=25,
)
def test_any_chain_of_fused_operators_is_one_step(kinds, batch, height, width):
    graph = Graph(seed=width)
    joined, channels, beside = "x", 32, "x"
    expected = set()
    for kind, tail in kinds:
        value = follow(graph, kind, graph.conv(joined, channels), beside)
        expected.add(kind)
        if tail and kind in PRODUCERS:
            joined, channels = graph.node("Concat", joined, value, axis=1), channels + 32
        else:
            joined, channels, beside = value, 32, value
    source = graph.model(graph.conv(joined, channels))
    fused = graphopt.fuse(source, rules="extended").model
    assert expected <= used(fused)
    size = (batch, 32, height, width)
    assert region_count(fused, size) == (1, 1)
    check_against_both(source, fused, size, len(kinds) + 1)


@pytest.mark.parametrize("kind", PRODUCERS)
def test_each_producer_of_a_tail_that_others_read(kind):
    """The joined values are results too, so that every part of them is compared."""
    graph = Graph()
    first = graph.node("Concat", "x", follow(graph, kind, graph.conv("x", 32), "x"), axis=1)
    second = graph.node("Concat", first, follow(graph, kind, graph.conv(first, 64), "x"), axis=1)
    source = graph.model(graph.conv(second, 96), second)
    fused = graphopt.fuse(source, rules="extended").model
    assert used(fused) == {"ConcatFusedTail", kind}
    assert region_count(fused)[0] == 1
    check_against_both(source, fused, (1, 32, 33, 26))


@pytest.mark.parametrize("kind", ARITHMETIC)
def test_arithmetic_in_a_tail(kind):
    """The kernel takes such producers too, though no rule makes them."""
    graphs = [Graph(), Graph()]
    joined = []
    for graph, fused in zip(graphs, (False, True), strict=True):
        value = graph.conv("x", 32)
        if fused:
            convolution = graph.nodes.pop()
            operands = [graph.constant(0.2), "x"] if kind == "ConvMulAdd" else ["x"]
            attributes = {"prefix_count": 1, "producer_op": kind, "pads": [1] * 4, "domain": "ai.ngine"}
            joined.append(graph.node("ConcatFusedTail", "x", *convolution.input, *operands, **attributes))
        else:
            joined.append(graph.node("Concat", "x", follow(graph, kind, value, "x"), axis=1))
    source, fused = (
        graph.model(graph.conv(graph.conv(value, 64), 32), value) for graph, value in zip(graphs, joined, strict=True)
    )
    assert region_count(fused) == (1, 2)
    check_against_both(source, fused, (1, 32, 33, 26))


@pytest.mark.parametrize("shape", [(26,), (33, 1), (1, 1, 33, 26), (1, 32, 1, 1), (32, 33, 26)])
def test_addends_of_other_shapes(shape):
    """A number a channel goes in; rows, columns, single pictures of one channel and constant pictures stay outside."""
    graph = Graph()
    addend = graph.constant(graph.random.standard_normal(shape))
    value = graph.node("Add", graph.conv("x", 32), addend)
    source = graph.model(graph.conv(graph.conv(graph.conv(value, 32), 32), 32))
    fused = graphopt.fuse(source, rules="extended").model
    assert "ConvAdd" in used(fused)
    assert region_count(fused) == ((1, 1) if shape == (1, 32, 1, 1) else (1, 2))
    check_against_both(source, fused, (1, 32, 33, 26))


def test_an_addend_that_hangs_on_the_region_through_something_else_stays_outside():
    """The pooled picture is made of the first convolutions: the addition cannot be in the region that makes them."""
    graph = Graph()
    first = graph.conv(graph.conv(graph.conv("x", 32), 32), 32)
    pooled = graph.node("AveragePool", first, kernel_shape=[3, 3], pads=[1] * 4)
    source = graph.model(graph.node("Add", graph.conv(first, 32), pooled))
    fused = graphopt.fuse(source, rules="extended").model
    assert [step.node.op_type for step in steps_of(fused)] == ["Region", "AveragePool", "ConvAdd"]
    check_against_both(source, fused, (1, 32, 33, 26))


def test_after_an_enlargement_activations_join_and_pictures_do_not():
    for kind, steps in (("ConvSiLU", ["Region"]), ("ConvAdd", ["Resize", "Resize", "ConvAdd"])):
        graph = Graph()
        beside = resize(graph, "x", coordinate_transformation_mode="align_corners") if kind == "ConvAdd" else "x"
        source = graph.model(follow(graph, kind, graph.conv(resize(graph, "x", **FLOOR), 32), beside))
        fused = graphopt.fuse(source, rules="extended").model
        assert used(fused) == {kind}
        assert [step.node.op_type for step in steps_of(fused)] == steps
        check_against_both(source, fused, (1, 32, 33, 26))


def test_an_addend_may_be_a_join_of_one_part():
    graphs = [Graph(), Graph()]
    values = []
    for graph, fused in zip(graphs, (False, True), strict=True):
        value = graph.conv("x", 32)
        if fused:
            convolution = graph.nodes.pop()
            attributes = {"prefix_count": 0, "producer_op": "Conv", "pads": [1] * 4, "domain": "ai.ngine"}
            value = graph.node("ConcatFusedTail", *convolution.input, **attributes)
        values.append(follow(graph, "ConvAdd", graph.conv(graph.conv(value, 32), 32), value))
    source, joined = (graph.model(value) for graph, value in zip(graphs, values, strict=True))
    fused = graphopt.fuse(joined, rules="extended").model
    assert used(fused) == {"ConcatFusedTail", "Conv", "ConvAdd"}
    assert region_count(fused) == (1, 1)
    check_against_both(source, fused, (1, 32, 33, 26))
