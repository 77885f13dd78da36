"""Constants that become initializers, nodes that compute the same, and what nobody reads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.text_models import assert_fuses, assert_same_numbers, fused, model, nodes

import graphopt

TWO = "float[n,c,h,w] y, float[n,c,h,w] z"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("value = float[2] {1.5, 2.5}", np.array([1.5, 2.5], np.float32)),
        ("value_float = 1.5", np.array(1.5, np.float32)),
        ("value_floats = [1.5, 2.5]", np.array([1.5, 2.5], np.float32)),
        ("value_int = 3", np.array(3)),
        ("value_ints = [3, 4]", np.array([3, 4])),
        ('value_string = "one"', np.array("one", object)),
        ('value_strings = ["one", "two"]', np.array(["one", "two"], object)),
    ],
)
def test_every_form_of_a_constant(written: str, value: np.ndarray):
    kind = {"f": "float", "i": "int64", "O": "string"}[value.dtype.kind]
    outputs = f"{kind}{'[n]' if value.ndim else ''} y"
    source = model(f"k = Constant <{written}> ()  y = Identity (k)", inputs="", outputs=outputs)
    result = assert_fuses(source, "y = Identity (k)", cleanups="constant")
    (tensor,) = result.graph.initializer
    assert tensor.name == "k"
    np.testing.assert_array_equal(numpy_helper.to_array(tensor).astype(value.dtype), value)


def test_a_constant_that_is_an_output_stays_a_node():
    source = model("y = Constant <value_float = 1.5> ()", inputs="", outputs="float y")
    assert not graphopt.fuse(source, cleanups="constant").report.cleaned


def test_a_sparse_constant_stays_a_node():
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32), "v"), numpy_helper.from_array(np.array([1])), [3]
    )
    source = model("y = Relu (x)")
    source.graph.node.append(helper.make_node("Constant", [], ["s"], sparse_value=sparse))
    assert not graphopt.fuse(source, cleanups="constant").report.cleaned


def test_constants_stay_nodes_in_functions():
    function = """<domain: "my", opset_import: ["" : 17]>
    AddOne (x) => (y) { one = Constant <value_float = 1.0> ()  y = Add (x, one) }"""
    source = model("y = my.AddOne (x)", imports='"my" : 1', functions=function)
    assert not graphopt.fuse(source, cleanups="constant").report.cleaned


def test_before_ir_4_an_initializer_would_be_an_input():
    """So the IR version rises, and constants among the inputs leave them."""
    source = model("one = Constant <value = float {1.0}> ()  c = Conv (x, w, b)  y = Add (c, one)", opset=9, ir=3)
    for tensor in source.graph.initializer:
        source.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    result = assert_fuses(source, "c = Conv (x, w, b)", "y = Add (c, one)", cleanups="constant")
    assert result.ir_version == 4
    assert [value.name for value in result.graph.input] == ["x"]
    unfused = graphopt.unfuse(graphopt.fuse(source, rules="extended", cleanups="constant").model, rules="extended")
    onnx.checker.check_model(unfused, full_check=True)


def test_a_constant_in_a_body_becomes_an_initializer_of_the_body():
    branch = "b () => (float[n,4,h,w] t) { one = Constant <value_float = 1.0> ()  t = Add (x, one) }"
    source = model(f"y = If (c) <then_branch = {branch}, else_branch = {branch}>", inputs="float[n,4,h,w] x, bool c")
    result = fused(source, cleanups="constant")
    for attribute in result.graph.node[0].attribute:
        assert nodes(attribute.g) == ["t = Add (x, one)"]
        assert [tensor.name for tensor in attribute.g.initializer] == ["one"]
    for c in (True, False):
        assert_same_numbers(source, result, {"x": np.ones((1, 4, 2, 2), np.float32), "c": np.array(c)})


def test_duplicates():
    source = model("a = Relu (x)  b = Relu (x)  y = Add (a, b)")
    assert_fuses(source, "a = Relu (x)", "y = Add (a, a)", cleanups="duplicate")


def test_duplicates_of_duplicates():
    body = "a = Relu (x)  b = Relu (x)  c = Neg (a)  d = Neg (b)  e = Abs (c)  f = Abs (d)  y = Sub (e, f)"
    lines = ["a = Relu (x)", "c = Neg (a)", "e = Abs (c)", "y = Sub (e, e)"]
    assert_fuses(model(body), *lines, cleanups="duplicate")


def test_duplicates_wait_for_the_rules():
    """Merged before, the two convolutions would be one that is read twice, and neither activation could be fused."""
    body = "a = Conv (x, w)  b = Conv (x, w)  y = LeakyRelu <alpha = 0.1> (a)  z = LeakyRelu <alpha = 0.2> (b)"
    assert graphopt.fuse(model(body, outputs=TWO), cleanups="duplicate").report.counts["ConvLeakyRelu"] == 2


def test_nodes_that_differ_are_no_duplicates():
    bodies = [
        "a = LeakyRelu <alpha = 0.1> (x)  b = LeakyRelu <alpha = 0.2> (x)",
        "a = Sub (x, scale)  b = Sub (scale, x)",
        "a = RandomNormalLike (x)  b = RandomNormalLike (x)",
        "a = my.Op (x)  b = my.Op (x)",
        "a, m = MaxPool <kernel_shape = [1,1]> (x)  b = MaxPool <kernel_shape = [1,1]> (x)",
    ]
    for body in bodies:
        source = model(f"{body}  y = Add (a, b)", imports='"my" : 1')
        assert not graphopt.fuse(source, cleanups="duplicate").report.cleaned, body


def test_attributes_may_stand_in_any_order_and_absent_inputs_be_listed():
    source = model(
        'a = Conv <group = 1, strides = [1,1]> (x, w)b = Conv <strides = [1,1], group = 1> (x, w, "")  y = Add (a, b)'
    )
    report = graphopt.fuse(source, cleanups="duplicate").report
    assert [(item.cleanup, item.node) for item in report.cleaned] == [("duplicate", "b")]


def test_a_duplicate_that_is_an_output():
    source = model("a = Relu (x)  y = Relu (x)  z = Neg (a)", outputs=TWO)
    assert_fuses(source, "y = Relu (x)", "z = Neg (y)", cleanups="duplicate")
    both = model("y = Relu (x)  z = Relu (x)", outputs=TWO)
    assert_fuses(both, "y = Relu (x)", "z = Relu (x)", cleanups="duplicate")


def test_dead_nodes():
    source = model("a = Relu (x)  b = Neg (a)  y = Abs (x)", value_info="float[n,4,h,w] a")
    result = assert_fuses(source, "y = Abs (x)", cleanups="dead")
    assert not result.graph.value_info
    assert graphopt.fuse(source, cleanups="dead").report.cleanups == {"dead": 2}


def test_a_node_of_which_one_output_is_read_is_not_dead():
    source = model("a, b = Split <axis = 1> (x)  y = Relu (b)", opset=13)
    assert not graphopt.fuse(source, cleanups="dead").report.cleaned


def test_unread_nodes_that_may_have_effects_stay():
    branch = "b () => (float[n] t) { t = my.Log (x) }"
    for body in (
        "a = my.Log (x)",
        "a = RandomNormalLike (x)",
        f"a = If (c) <then_branch = {branch}, else_branch = {branch}>",
    ):
        source = model(f"{body}  y = Relu (x)", inputs="float[n,4,h,w] x, bool c", imports='"my" : 1')
        assert not graphopt.fuse(source, cleanups="dead").report.cleaned


def test_unused_initializers():
    source = model("y = Conv (x, w, b)")
    source.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "left_over"))
    result = fused(source, cleanups="initializers")
    assert [tensor.name for tensor in result.graph.initializer] == ["w", "b"]
    assert graphopt.fuse(source, cleanups="initializers").report.cleanups == {"initializers": 1}


def test_an_unread_initializer_that_is_an_input_stays():
    source = model("y = Relu (x)", inputs="float[n,4,h,w] x, float k", constants={"k": np.array(1, np.float32)})
    assert not graphopt.fuse(source, cleanups="initializers").report.cleaned


def test_before_ir_4_an_unused_initializer_leaves_the_inputs_too():
    inputs = "float[n,4,h,w] x, float k"
    source = model("y = Relu (x)", inputs=inputs, constants={"k": np.array(1, np.float32)}, opset=8, ir=3)
    result = assert_fuses(source, "y = Relu (x)", cleanups="initializers")
    assert [value.name for value in result.graph.input] == ["x"]
    assert not result.graph.initializer


def test_what_a_quantization_annotation_names_stays():
    source = model("y = Relu (x)")
    source.graph.initializer.append(numpy_helper.from_array(np.ones((), np.float32), "scale_of_x"))
    entry = source.graph.quantization_annotation.add(tensor_name="x")
    entry.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale_of_x")
    assert not graphopt.fuse(source, cleanups="initializers").report.cleaned


def test_what_a_fusion_leaves_behind_goes():
    """HardSwish spelled out: its numbers stand in the fused node's body, and nowhere else any more."""
    body = "c = Conv (x, w, b)  a = Add (c, three)  l = Clip (a, zero, six)  m = Mul (c, l)  y = Div (m, six)"
    numbers = {name: np.array(value, np.float32) for name, value in {"three": 3, "zero": 0, "six": 6}.items()}
    source = model(body, constants=numbers)
    kept = graphopt.fuse(source, rules="extended", cleanups=())
    result = graphopt.fuse(source, rules="extended", cleanups="initializers")
    assert result.report.counts["ConvHardSwish"] == kept.report.counts["ConvHardSwish"] == 1
    assert {tensor.name for tensor in kept.model.graph.initializer} == {"w", "b", "three", "zero", "six"}
    assert {tensor.name for tensor in result.model.graph.initializer} == {"w", "b"}
    assert_same_numbers(source, result.model)
    onnx.checker.check_model(graphopt.unfuse(result.model, rules="extended"), full_check=True)


def test_weights_are_written_once():
    source = model("k = Constant <value = float[4] {1,2,3,4}> ()  i = Identity (k)  y = Conv (x, w, i)")
    result = fused(source, cleanups=["identity", "constant"])
    assert nodes(result) == ["y = Conv (x, w, k)"]
    assert sorted(tensor.name for tensor in result.graph.initializer) == ["k", "w"]
