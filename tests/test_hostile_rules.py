"""A user's rules and the models they meet: clashing names, constants in every storage, operators of strangers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.image_models import counts
from support.soundness import check_fusing, random_feeds

import graphopt
from graphopt.errors import RuleError
from graphopt.rule_files.rule_loader import load_rule_text

HEADER = '<domain: "my", opset_import: ["": 17, "my": 1, "require": 1]>'
JOINED = f"""{HEADER}
Joined (prefix_0, prefix) => (y)
{{
  = require.variadic <least: int = 1> (prefix)
  t = Relu (prefix_0)
  ["sole reader"] = require.sole_reader (t)
  y = Concat <axis: int = 1> (prefix, t)
}}"""
INNER = f"""{HEADER}
Inner (x) => (y) {{ c = Neg (x)  ["sole reader"] = require.sole_reader (c)  y = Relu (c) }}"""
OUTER = f"""{HEADER}
Outer (x, t_c) => (y) {{ t = my.Inner (x)  ["sole reader"] = require.sole_reader (t)  y = Add (t, t_c) }}"""
HALF = f"""{HEADER}
Half (x) => (y)
{{
  k = Constant <value = float {{0.5}}> ()
  m = Mul (x, k)
  ["sole reader"] = require.sole_reader (m)
  y = Relu (m)
}}"""


def rules(folder: Path, *texts: str) -> Path:
    path = folder / "rules.onnxtxt"
    path.write_text("\n".join(texts))
    return path


def parse(text: str) -> ModelProto:
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17, "my": 1]> ' + text)


NEGATED = "g (float[2] x, float[2] z) => (float[2] y) { n = Neg(x)  r = Relu(n)  y = Add(z,r) }"


def test_a_variadic_input_is_spelled_clear_of_the_others(tmp_path: Path) -> None:
    model = parse("g (float[1,2] x) => (float[1,6] y) { r = Relu(x)  y = Concat<axis=1>(x,x,r) }")
    result = check_fusing(model, random_feeds(model), tolerance=0.0, rules=rules(tmp_path, JOINED))
    assert counts(result) == {"Joined": 1}
    assert list(result.model.functions[0].input) == ["prefix_0", "prefix_0_", "prefix_1"]


def test_names_from_an_inner_body_are_made_clear_of_the_outer_ones(tmp_path: Path) -> None:
    model = parse(NEGATED)
    result = check_fusing(model, random_feeds(model), tolerance=0.0, rules=rules(tmp_path, INNER, OUTER))
    assert counts(result) == {"Inner": 1, "Outer": 1}


def test_what_was_fused_before_is_built_upon(tmp_path: Path) -> None:
    fused = graphopt.fuse(parse(NEGATED), rules=rules(tmp_path, INNER)).model
    again = graphopt.fuse(fused, rules=rules(tmp_path, INNER, OUTER))
    assert counts(again) == {"Outer": 1}
    assert [node.op_type for node in again.model.graph.node] == ["Outer"]


def test_a_stranger_of_the_same_name_is_not_built_upon(tmp_path: Path) -> None:
    model = parse(
        "g (float[2] x, float[2] z) => (float[2] y) { r = my.Inner(x)  y = Add(r,z) }"
        '<domain: "my", opset_import: ["": 17]> Inner (x) => (y) { y = Abs(x) }'
    )
    chosen = rules(tmp_path, INNER, OUTER)
    assert counts(check_fusing(model, random_feeds(model), tolerance=0.0, rules=chosen)) == {}


# Constants of a rule.


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("dims", [(), (1,), (1, 1), (1, 1, 1)])
def test_constants_of_every_float_type(dtype: type[np.generic], dims: tuple[int, ...], tmp_path: Path) -> None:
    model = halved(numpy_helper.from_array(np.full(dims, 0.5, dtype), "k"))
    found = counts(check_fusing(model, random_feeds(model), tolerance=1e-6, rules=rules(tmp_path, HALF)))
    assert found == ({"Half": 1} if len(dims) <= 2 else {})  # of a higher rank it would raise that of the result


def halved(constant: TensorProto) -> ModelProto:
    values = [helper.make_tensor_value_info(name, constant.data_type, [2, 3]) for name in ("x", "y")]
    values[1].type.tensor_type.ClearField("shape")
    nodes = [helper.make_node("Mul", ["k", "x"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [constant])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_the_bits_of_a_half_stand_in_int32_data(tmp_path: Path) -> None:
    bits = int(np.float16(0.5).view(np.uint16))
    constant = TensorProto(name="k", data_type=TensorProto.FLOAT16, dims=[1], int32_data=[bits])
    assert counts(check_fusing(halved(constant), rules=rules(tmp_path, HALF))) == {"Half": 1}


def test_an_overridable_constant_is_none(tmp_path: Path) -> None:
    model = halved(numpy_helper.from_array(np.full((1,), 0.5, np.float32), "k"))
    model.graph.input.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [1]))
    assert counts(check_fusing(model, rules=rules(tmp_path, HALF))) == {}


def test_constants_of_two_types_in_one_model(tmp_path: Path) -> None:
    model = parse(
        "g (float[2] x, double[2] z) => (float[2] y, double[2] w)"
        " <float k = {0.5}, double q = {0.5}> { a = Mul(x,k)  y = Relu(a)  b = Mul(q,z)  w = Relu(b) }"
    )
    result = check_fusing(model, random_feeds(model), tolerance=0.0, rules=rules(tmp_path, HALF))
    assert [function.domain for function in result.model.functions] == ["my.float", "my.double"]


SHADOWS = {"initializer": "<float k = {0.25}> { m = Mul(x,k)", "node": "{ k = Neg(other)  m = Mul(x,k)"}


@pytest.mark.parametrize("inner", SHADOWS.values(), ids=SHADOWS)
def test_a_name_means_what_it_means_where_it_stands(inner: str, tmp_path: Path) -> None:
    model = parse(
        f"""g (float[2] x, bool p, float other) => (float[2] y) <float k = {{0.5}}>
        {{ y = If (p) <then_branch = t () => (float[2] o) {inner}  o = Relu(m) }},
                     else_branch = e () => (float[2] q) {{ n = Mul(x,k)  q = Relu(n) }}> }}"""
    )
    result = check_fusing(model, rules=rules(tmp_path, HALF))
    assert [fusion.outputs for fusion in result.report.fusions] == [("q",)]


def test_an_opset_that_onnx_does_not_have_yet():
    text = '<domain: "my", opset_import: ["" : 999]>\nOp (x) => (y) { y = Relu (x) }\n'
    with pytest.raises(RuleError, match=r"my\.onnxtxt:\d: The installed onnx knows ONNX's opsets up to \d+, not 999"):
        load_rule_text(text, "my.onnxtxt")
