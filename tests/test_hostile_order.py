"""Names, node orders and sizes that break rewriters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import NodeProto, helper, numpy_helper
from support.image_models import CONDITION, ELSE, TOLERANCE, counts, image, plain
from support.soundness import check_fusing, nodes_of, random_feeds

import graphopt

# Names and order.


@pytest.mark.parametrize("name", ["", "same"])
def test_names_of_nodes_may_be_empty_or_equal(name: str) -> None:
    model = image("c = Conv(x,w,b)  l = LeakyRelu(c)  m = Mul(l,k)  y = Add(m,x)")
    for node in model.graph.node:
        node.name = name
    assert counts(check_fusing(model)) == {"ConvLeakyRelu": 1, "MulAdd": 1}


def test_values_named_like_generated_ones() -> None:
    model = image(
        "prefix_0 = Conv(x,w)  tail_c = LeakyRelu(prefix_0)  tail = Conv(tail_c,w,b)  bias = Concat<axis=1>(x,tail)"
        "  y = Identity(bias)",
        "float[1,8,5,5] y",
    )
    wanted = {"ConvLeakyRelu": 1, "ConcatFusedTail": 1}
    assert counts(check_fusing(model, random_feeds(model), tolerance=TOLERANCE)) == wanted


def test_every_order_of_a_node_list_is_the_same_model() -> None:
    nodes = list(image("c = Conv(x,w,b)  l = LeakyRelu(c)  m = Mul(l,k)  y = Add(m,x)").graph.node)
    fused = set()
    for order in itertools.permutations(nodes):
        model = image("y = Abs(x)")
        del model.graph.node[:]
        model.graph.node.extend(order)
        result = check_fusing(model)
        assert counts(result) == {"ConvLeakyRelu": 1, "MulAdd": 1}
        fused.add(tuple(nodes_of(result.model.graph)))
    assert len(fused) == 1


CYCLES = {
    "two nodes": ("c = Conv(l,w,b)  l = LeakyRelu(c)  y = Add(c,x)", "Conv 'c' -> LeakyRelu 'l' -> Conv 'c'"),
    "a node that reads itself": ("c = Add(c,x)  y = Neg(c)", "Add 'c' -> Add 'c'"),
    "a body that reads its own node": (
        f"y = If (p) <{ELSE}, then_branch = t () => (float[1,4,5,5] o) {{ o = Neg(y) }}>",
        "If 'y' -> If 'y'",
    ),
}


@pytest.mark.parametrize(("body", "named"), CYCLES.values(), ids=CYCLES)
def test_cycles_are_named(body: str, named: str) -> None:
    with pytest.raises(graphopt.ModelError, match=f"^g: the nodes form a cycle: {named}"):
        graphopt.fuse(image(body, inputs=CONDITION))


def test_a_diamond_is_no_cycle() -> None:
    model = image("y = Add(l,r)  l = Neg(t)  r = Abs(t)  t = Relu(x)")
    assert counts(check_fusing(model, random_feeds(model))) == {}


# Size. None of these may recurse, nor take time that grows with the square of the number of nodes.


def pairs(count: int) -> list[NodeProto]:
    nodes = []
    for index in range(count):
        source = f"l{index - 1}" if index else "x"
        nodes.append(helper.make_node("Conv", [source, "w"], [f"c{index}"]))
        nodes.append(helper.make_node("LeakyRelu", [f"c{index}"], [f"l{index}"]))
    return nodes


@pytest.mark.parametrize("backwards", [False, True])
def test_twenty_thousand_nodes_deep(backwards: bool) -> None:
    nodes = pairs(10_000)
    model = plain(nodes[::-1] if backwards else nodes, "l9999")
    assert graphopt.fuse(model).report.counts["ConvLeakyRelu"] == 10_000


def test_a_cycle_of_twenty_thousand_nodes_has_a_short_name() -> None:
    nodes = pairs(10_000)
    nodes[0].input[0] = "l9999"
    with pytest.raises(graphopt.ModelError, match=r"cycle: .* 19988 more") as caught:
        graphopt.fuse(plain(nodes, "l9999"))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("depth", "width"), [(25, 40), (100, 3)])
def test_ladders_of_concats(depth: int, width: int) -> None:
    nodes, weights = [], []
    for block_index, level in itertools.product(range(width), range(depth)):
        features = ["x", *(f"c{block_index}_{lower}" for lower in range(level + 1))]
        source = f"d{block_index}_{level - 1}" if level else "x"
        nodes.append(helper.make_node("Conv", [source, f"w{level}"], [features[-1]]))
        nodes.append(helper.make_node("Concat", features, [f"d{block_index}_{level}"], axis=1))
    for level in range(depth):
        weights.append(numpy_helper.from_array(np.ones((1, level + 1, 1, 1), np.float32), f"w{level}"))
    model = plain(nodes, f"d0_{depth - 1}")
    model.graph.initializer.extend(weights)
    result = check_fusing(model)
    assert counts(result) == {"ConcatFusedTail": depth * width}
    assert result.report.shared_prefixes == (depth - 1) * width


def test_doubling_is_not_followed_both_ways() -> None:
    names = ["x", *(f"a{index}" for index in range(60))]
    nodes = [helper.make_node("Concat", [old, old], [new], axis=1) for old, new in itertools.pairwise(names)]
    adds = [helper.make_node("Mul", ["x", "x"], ["m0"])]
    adds += [helper.make_node("Add", [f"m{index}", f"m{index}"], [f"m{index + 1}"]) for index in range(60)]
    assert counts(check_fusing(plain(nodes + adds, "a59"))) == {}


def test_thousands_of_readers_of_one_value_and_of_deep_ranks() -> None:
    count = 3000
    readers = [helper.make_node("LeakyRelu", ["c"], [f"y{index}"]) for index in range(count)]
    result = graphopt.fuse(plain([helper.make_node("Conv", ["x", "w"], ["c"]), *readers], "y0"))
    assert result.report.refusals[-1].reason == (
        "'c' is read 3000 times: by LeakyRelu 'y0', by LeakyRelu 'y1', by LeakyRelu 'y2' and 2997 more"
    )
    chain = [helper.make_node("Concat", [f"r{index}", f"r{index}"], [f"a{index}"], axis=-3) for index in range(count)]
    chain += [helper.make_node("Relu", [f"a{index}"], [f"r{index + 1}"]) for index in range(count)]
    chain.append(helper.make_node("Flatten", ["x"], ["r0"]))
    assert len(graphopt.fuse(plain(chain, f"r{count}")).report.refusals) == count
