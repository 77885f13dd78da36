"""Matching looks through Identity nodes that nobody else notices, and unfuse puts them back."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper, parser
from support.random_models import RandomModel, random_models
from support.text_models import (
    LEVELS,
    assert_fuses,
    assert_refused,
    assert_same_numbers,
    feeds,
    fused,
    line,
    model,
    nodes,
)

import graphopt
from graphopt.cleanups.names import CLEANUPS

LEAKY = "y = ai.ngine.ConvLeakyRelu (x, w, b)"


def assert_comes_back(source: ModelProto, *expected: str, **options: Any) -> None:
    """A model becomes these lines without cleanups, and unfusing gives back every node as it was."""
    result = assert_fuses(source, *expected, cleanups=(), **options)
    back = graphopt.unfuse(result, rules=options.get("rules", "ngine"))
    assert {node.SerializeToString(deterministic=True) for node in back.graph.node} == {
        node.SerializeToString(deterministic=True) for node in source.graph.node
    }
    onnx.checker.check_model(back, full_check=True)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_chain(length: int):
    names = ["c", *(f"i{place}" for place in range(length))]
    chain = "  ".join(f"{new} = Identity ({old})" for old, new in pairwise(names))
    source = model(f"c = Conv (x, w, b)  {chain}  y = LeakyRelu ({names[-1]})")
    assert_comes_back(source, LEAKY)
    (fusion,) = graphopt.fuse(source).report.fusions
    assert fusion.replaces == ("c", "y", *names[1:])


def test_what_the_identities_say_of_themselves_comes_back():
    source = model("c = Conv (x, w, b)  i = Identity (c)  y = LeakyRelu (i)")
    identity = source.graph.node[1]
    identity.name, identity.doc_string, identity.domain = "alias", "an alias", ""
    identity.metadata_props.add(key="made by", value="an exporter")
    assert_comes_back(source, LEAKY)


@pytest.mark.parametrize(
    "body",
    [
        "i = Identity (c)  s = Sigmoid (i)  y = Mul (c, s)",
        "i = Identity (c)  s = Sigmoid (c)  y = Mul (i, s)",
        "i = Identity (c)  s = Sigmoid (c)  y = Mul (s, i)",
        "i = Identity (c)  s = Sigmoid (i)  y = Mul (i, s)",
        "i = Identity (c)  j = Identity (c)  s = Sigmoid (i)  k = Identity (s)  y = Mul (k, j)",
    ],
)
def test_a_value_read_twice(body: str):
    assert_comes_back(model(f"c = Conv (x, w, b)  {body}"), "y = ai.ngine.ConvSiLU (x, w, b)", rules="extended")


@pytest.mark.parametrize("operands", ["i, k", "k, i"])
def test_operands_in_either_order(operands: str):
    source = model(f"k = Neg (x)  m = Mul (scale, x)  i = Identity (m)  y = Add ({operands})")
    assert_comes_back(source, "k = Neg (x)", "y = ai.ngine.MulAdd (x, scale, k)")


def test_through_one_fused_node_into_another():
    source = model(
        "c = Conv (x, w, b)  i = Identity (c)  l = LeakyRelu (i)  k = Identity (l)  y = Concat <axis=1> (x, k)"
    )
    tail = "y = ai.ngine.ConcatFusedTail <alpha=0.01, axis=1, prefix_count=1, producer_op=ConvLeakyRelu> (x, x, w, b)"
    assert_comes_back(source, tail)
    fusions = graphopt.fuse(source).report.fusions
    assert [fusion.replaces for fusion in fusions] == [("c", "l", "i"), ("l", "y", "k")]


def test_the_order_of_the_file_does_not_count_them():
    tail = "y = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (x, x, w, b)"
    assert_comes_back(model("c = Conv (x, w, b)  i = Identity (c)  y = Concat <axis=1> (x, i)"), tail, order="file")
    source = model("c = Conv (x, w, b)  i = Identity (c)  z = Neg (x)  y = Concat <axis=1> (z, i)")
    reason = "1 node between Conv 'c' and Concat 'y' in the file"
    assert_refused(source, "ConcatFusedTail", 5, "adjacent", reason, "z", order="file")


@pytest.mark.parametrize(
    ("reader", "outputs"),
    [("", ", float[n,c,h,w] i"), ("z = Neg (i)", ", float[n,c,h,w] z"), ("z = Neg (c)", ", float[n,c,h,w] z")],
)
def test_another_reader(reader: str, outputs: str):
    source = model(
        f"c = Conv (x, w, b)  i = Identity (c)  {reader}  y = LeakyRelu (i)", outputs=f"float[n,c,h,w] y{outputs}"
    )
    assert nodes(fused(source)) == nodes(source)


def test_another_reader_is_named():
    source = model("c = Conv (x, w, b)  i = Identity (c)  z = Neg (i)  l = LeakyRelu (i)  y = Add (z, l)")
    reason = "'c' is read 2 times: by Neg 'z' and by LeakyRelu 'l'"
    assert_refused(source, "ConvLeakyRelu", 1, "sole reader", reason, "c")


def test_an_identity_that_nobody_reads_is_a_reader():
    source = model("c = Conv (x, w, b)  dead = Identity (c)  y = LeakyRelu (c)")
    reason = "'c' is read 2 times: by Identity 'dead' and by LeakyRelu 'y'"
    assert_refused(source, "ConvLeakyRelu", 1, "sole reader", reason, "c")


def test_captured_values_are_not_looked_through():
    branch = "b () => (float[n,4,h,w] t) { t = Neg (i) }"
    reader = f"z = If (p) <then_branch = {branch}, else_branch = {branch}>"
    body = f"c = Conv (x, w, b)  i = Identity (c)  l = LeakyRelu (i)  {reader}  y = Add (l, z)"
    source = model(body, inputs="float[n,4,h,w] x, bool p")
    result = fused(source)
    assert nodes(result) == nodes(source)


def test_inside_functions_and_bodies():
    function = """<domain: "my", opset_import: ["" : 17]>
    Act (x, w, b) => (y) { c = Conv (x, w, b)  i = Identity (c)  y = LeakyRelu (i) }"""
    result = fused(model("y = my.Act (x, w, b)", imports='"my" : 1', functions=function))
    assert nodes(result.functions[0]) == [LEAKY]
    branch = "b () => (float[n,4,h,w] t) { c = Conv (x, w, b)  i = Identity (c)  t = LeakyRelu (i) }"
    source = model(f"y = If (p) <then_branch = {branch}, else_branch = {branch}>", inputs="float[n,4,h,w] x, bool p")
    result = fused(source)
    assert [nodes(a.g) for a in result.graph.node[0].attribute] == [["t = ai.ngine.ConvLeakyRelu (x, w, b)"]] * 2
    assert_same_numbers(source, result, {"x": np.ones((1, 4, 2, 2), np.float32), "p": np.array(True)})


def test_a_rule_with_an_identity_of_its_own(tmp_path: Any):
    (tmp_path / "ReluIdentity.onnxtxt").write_text(
        '<domain: "my", opset_import: ["" : 17, "require" : 1]>\n'
        "ReluIdentityNeg (x) => (y)\n{\n  r = Relu (x)\n  i = Identity (r)\n  y = Neg (i)\n}\n"
    )
    source = model("r = Relu (x)  i = Identity (r)  y = Neg (i)")
    assert nodes(fused(source, rules=str(tmp_path))) == ["y = my.ReluIdentityNeg (x)"]
    assert nodes(fused(model("r = Relu (x)  y = Neg (r)"), rules=str(tmp_path))) == ["r = Relu (x)", "y = Neg (r)"]


def test_a_name_that_somebody_took_since():
    """Unfusing gives the value and its alias other names, and the readers follow."""
    source = model("c = Conv (x, w, b)  i = Identity (c)  s = Sigmoid (i)  l = Mul (c, s)  y = Abs (l)")
    result = fused(source, rules="extended", cleanups=())
    result.graph.node[-1].input[0] = "c"
    result.graph.node.insert(1, helper.make_node("Neg", ["l"], ["c"]))
    back = graphopt.unfuse(result, rules="extended")
    assert nodes(back) == [
        "c_ = Conv (x, w, b)",
        "i = Identity (c_)",
        "s = Sigmoid (i)",
        "l = Mul (c_, s)",
        "c = Neg (l)",
        "y = Abs (c)",
    ]
    assert_same_numbers(result, back)


def test_a_damaged_record_does_no_harm():
    result = fused(model("c = Conv (x, w, b)  i = Identity (c)  y = LeakyRelu (i)"))
    (entry,) = (e for e in result.graph.node[0].metadata_props if e.key == "graphopt.nodes")
    rows = json.loads(entry.value)
    assert (rows[-1]["op"], rows[-1]["outputs"], rows[-1]["passed_on"]) == ("Identity", ["i"], "c")
    for change in ({"outputs": []}, {"passed_on": 3}, {"passed_on": "nothing"}):
        entry.value = json.dumps([*rows[:-1], {**rows[-1], **change}])
        assert [node.op_type for node in graphopt.unfuse(result).graph.node] == ["Conv", "LeakyRelu"]


def test_thousands_in_a_row_and_side_by_side():
    text = "<ir_version: 8, opset_import: ['' : 17]> g (float[n,4,h,w] x) => (float[n,4,h,w] y) { y = Relu (x) }"
    source = parser.parse_model(text.replace("'", '"'))
    del source.graph.node[:]
    row = [helper.make_node("Identity", ["x" if k == 0 else f"v{k - 1}"], [f"v{k}"]) for k in range(3000)]
    aside = [helper.make_node("Identity", ["v2999"], [f"a{k}"]) for k in range(3000)]
    source.graph.node.extend([*row, *aside, helper.make_node("Sum", [f"a{k}" for k in range(3000)], ["y"])])
    assert len(graphopt.fuse(source).model.graph.node) == 6001
    assert nodes(graphopt.fuse(source, cleanups=CLEANUPS).model) == [f"y = Sum ({', '.join(['x'] * 3000)})"]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(random_models(), st.randoms(use_true_random=False))
def test_identities_anywhere(drawn: RandomModel, chance: random.Random):
    """Between any two nodes of a random model: proven, equal in onnxruntime, and undone node by node."""
    source = drawn.model
    own = list(source.graph.node)
    del source.graph.node[:]
    for place, node in enumerate(own):
        for slot, name in enumerate(node.input):
            if name and chance.random() < 0.4:
                source.graph.node.append(helper.make_node("Identity", [name], [f"passed {place} {slot}"]))
                node.input[slot] = f"passed {place} {slot}"
        source.graph.node.append(node)
    result = graphopt.fuse(source, share_prefix=False).model
    inputs = {name: np.array(True) if array.dtype == bool else array for name, array in feeds(source).items()}
    assert_same_numbers(source, result, inputs, levels=LEVELS[:1])
    back = graphopt.unfuse(result)
    assert sorted(map(line, back.graph.node)) == sorted(map(line, source.graph.node))
