"""Cleanups around and inside of bodies and functions: captures are renamed, or the node stays."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import ModelProto
from support.text_models import assert_fuses, assert_same_numbers, fused, model, nodes

import graphopt

X_AND_C = "float[n,4,h,w] x, bool c"
X = np.random.default_rng(0).uniform(-1, 1, (1, 4, 2, 2)).astype(np.float32)


def branches(then: str, otherwise: str) -> str:
    """An If whose bodies make `t` and `e`."""
    return (
        f"If (c) <then_branch = then () => (float[n,4,h,w] t) {{ {then} }}, "
        f"else_branch = otherwise () => (float[n,4,h,w] e) {{ {otherwise} }}>"
    )


def bodies(result: ModelProto) -> list[list[str]]:
    """The lines of every body of the main graph's nodes."""
    return [nodes(a.g) for node in result.graph.node for a in node.attribute if a.HasField("g")]


def assert_same_on_both_branches(source: ModelProto, result: ModelProto) -> None:
    for c in (True, False):
        assert_same_numbers(source, result, {"x": X, "c": np.array(c)})


def test_captured_values_are_renamed_inside_bodies():
    source = model(f"a = Identity (x)  y = {branches('t = Relu (a)', 'e = Neg (a)')}", inputs=X_AND_C)
    result = fused(source, cleanups="identity")
    assert bodies(result) == [["t = Relu (x)"], ["e = Neg (x)"]]
    assert_same_on_both_branches(source, result)


def test_captured_at_depth_two():
    inner = branches("t = Relu (a)", "e = Neg (a)").replace("t)", "t2)").replace("t =", "t2 =")
    source = model(f"a = Identity (x)  y = {branches(f'r = {inner}  t = Abs (r)', 'e = Neg (x)')}", inputs=X_AND_C)
    result = fused(source, cleanups="identity")
    (attribute,) = (a for a in result.graph.node[0].attribute if a.name == "then_branch")
    assert [nodes(a.g) for a in attribute.g.node[0].attribute] == [["t2 = Relu (x)"], ["e = Neg (x)"]]
    assert_same_on_both_branches(source, result)


def test_a_captured_value_that_is_a_body_output_keeps_its_node():
    """The output of a body has a name of its own to keep."""
    text = "If (c) <then_branch = then () => (float[n,4,h,w] a) { }, else_branch = o () => (float[n,4,h,w] e) "
    source = model(f"a = Identity (x)  y = {text} {{ e = Neg (a) }}>", inputs=X_AND_C)
    assert not graphopt.fuse(source, cleanups="identity").report.cleaned


def test_an_output_takes_its_name_to_the_producer_and_to_bodies():
    source = model(
        f"a = Relu (x)  z = Identity (a)  y = {branches('t = Relu (a)', 'e = Neg (z)')}",
        inputs=X_AND_C,
        outputs="float[n,4,h,w] y, float[n,4,h,w] z",
    )
    result = fused(source, cleanups="identity")
    assert nodes(result)[0] == "z = Relu (x)"
    assert bodies(result) == [["t = Relu (z)"], ["e = Neg (z)"]]
    assert_same_on_both_branches(source, result)


def test_inside_a_body():
    then = "a = Identity (x)  b = Relu (a)  t = Identity (b)"
    otherwise = "a = Identity (x)  e = Identity (a)"
    source = model(f"y = {branches(then, otherwise)}", inputs=X_AND_C)
    result = fused(source, cleanups="identity")
    assert bodies(result) == [["t = Relu (x)"], ["e = Identity (x)"]]
    assert_same_on_both_branches(source, result)


def test_a_value_read_only_in_a_body_is_not_dead():
    source = model(f"a = Relu (x)  y = {branches('t = Neg (a)', 'e = Abs (x)')}", inputs=X_AND_C)
    assert not graphopt.fuse(source, cleanups=["dead", "initializers"]).report.cleaned


def test_what_only_a_dead_node_of_a_body_read_is_dead_too():
    source = model(
        f"a = Relu (x)  y = {branches('d = Add (a, k)  t = Neg (x)', 'e = Abs (x)')}",
        inputs=X_AND_C,
        constants={"k": np.ones(1, np.float32)},
    )
    result = graphopt.fuse(source, cleanups=["dead", "initializers"])
    assert result.report.cleanups == {"dead": 2, "initializers": 1}
    assert_same_on_both_branches(source, result.model)


def test_an_initializer_that_only_a_body_reads_stays():
    source = model(
        f"y = {branches('t = Add (x, k)', 'e = Abs (x)')}", inputs=X_AND_C, constants={"k": np.ones(1, np.float32)}
    )
    assert not graphopt.fuse(source, cleanups="initializers").report.cleaned


def test_duplicates_that_bodies_read():
    source = model(f"a = Relu (x)  b = Relu (x)  y = {branches('t = Sub (a, b)', 'e = Add (b, b)')}", inputs=X_AND_C)
    result = fused(source, cleanups="duplicate")
    assert bodies(result) == [["t = Sub (a, a)"], ["e = Add (a, a)"]]
    assert_same_on_both_branches(source, result)


def test_a_shape_inside_a_body_is_not_relied_on_but_a_type_is():
    """From one round of a loop to the next, shapes may differ; types may not."""
    then = "r = Reshape (x, s)  a = Cast <to = 1> (r)  t = Relu (a)"
    source = model(
        f"y = {branches(then, 'e = Neg (x)')}",
        inputs="float[1,4,2,2] x, bool c",
        outputs="float[1,4,2,2] y",
        constants={"s": np.array([1, 4, 2, 2])},
    )
    result = fused(source, cleanups=["reshape", "cast"])
    assert bodies(result)[0] == ["r = Reshape (x, s)", "t = Relu (r)"]
    assert_same_on_both_branches(source, result)


def test_bodies_with_equal_names_of_other_types():
    then, otherwise = (
        "a = Cast <to = 1> (x)  b = Cast <to = 1> (a)  t = Relu (b)",
        ("a = Cast <to = 10> (x)  b = Cast <to = 1> (a)  e = Relu (b)"),
    )
    source = model(f"y = {branches(then, otherwise)}", inputs=X_AND_C)
    result = fused(source, cleanups="cast")
    assert bodies(result)[1] == ["a = Cast <to=10> (x)", "b = Cast <to=1> (a)", "e = Relu (b)"]
    assert_same_on_both_branches(source, result)


def test_functions_are_cleaned_too():
    function = """<domain: "my", opset_import: ["" : 17]>
    Twice (x) => (y) { a = Identity (x)  b = Dropout (a)  d = Neg (b)  e = Relu (b)  y = Identity (e) }"""
    source = model("y = my.Twice (x)", imports='"my" : 1', functions=function)
    result = fused(source, cleanups=["identity", "dropout", "dead"])
    assert nodes(result.functions[0]) == ["y = Relu (x)"]
    assert_same_numbers(source, result, {"x": X})


def test_types_are_unknown_inside_functions():
    function = """<domain: "my", opset_import: ["" : 17]>
    Keep (x) => (y) { a = Cast <to = 1> (x)  y = Relu (a) }"""
    source = model("y = my.Keep (x)", imports='"my" : 1', functions=function)
    assert not graphopt.fuse(source, cleanups="cast").report.cleaned


def test_a_mode_that_is_a_parameter_of_a_function():
    function = """<domain: "my", opset_import: ["" : 17]>
    Drop (x, t) => (y) { a = Dropout (x, , t)  y = Relu (a) }"""
    source = model("y = my.Drop (x, t)", imports='"my" : 1', functions=function, constants={"t": np.array(False)})
    assert not graphopt.fuse(source, cleanups="dropout").report.cleaned


def test_what_training_steps_read_keeps_its_name():
    source = model("a = Identity (x)  b = Relu (a)  y = Identity (b)")
    source.training_info.add().algorithm.CopyFrom(onnx.parser.parse_graph("step () => (float[n] g) { g = Neg (a) }"))
    assert nodes(fused(source, cleanups="identity")) == ["a = Identity (x)", "y = Relu (a)"]


def test_an_initializer_that_training_sets_stays():
    source = model("y = Relu (x)", constants={"k": np.ones(1, np.float32)})
    source.training_info.add().update_binding.add(key="k", value="g")
    assert not graphopt.fuse(source, cleanups="initializers").report.cleaned


def test_a_fused_model_is_cleaned_without_harm():
    """Fused nodes of an earlier run read and make values that take other names."""
    source = model("i = Identity (x)  c = Conv (i, w, b)  l = LeakyRelu (c)  y = Identity (l)")
    once = fused(source, skip_rules=["MulAdd"])
    assert nodes(once)[0] == "i = Identity (x)"
    assert_fuses(once, "y = ai.ngine.ConvLeakyRelu (x, w, b)", cleanups="identity")
    back = graphopt.unfuse(fused(once, cleanups="identity"))
    assert nodes(back) == ["c = Conv (x, w, b)", "y = LeakyRelu (c)"]


def test_lists_that_are_not_sorted():
    source = model("y = Relu (b)  b = Identity (a)  a = Neg (x)")
    assert nodes(fused(source, cleanups="identity")) == ["a = Neg (x)", "y = Relu (a)"]


def test_bare_calls_of_an_earlier_run_take_other_names():
    source = model("i = Identity (x)  c = Conv (i, w, b)  l = LeakyRelu (c)  y = Identity (l)")
    bare = graphopt.fuse(source, functions=False).model
    for functions in (True, False):
        result = graphopt.fuse(bare, cleanups="identity", functions=functions).model
        assert nodes(result) == ["y = ai.ngine.ConvLeakyRelu (x, w, b)"]
        assert not result.functions
