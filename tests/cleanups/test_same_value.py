"""Each cleanup that bypasses a node, before and after as text, and the traps in which the node must stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from support.text_models import assert_fuses, assert_same_numbers, fused, model, nodes

import graphopt

Array = np.ndarray[Any, np.dtype[Any]]


def assert_cleans(source: ModelProto, *expected: str, cleanups: str | list[str]) -> ModelProto:
    """Cleanups alone make of a model these lines, with the same bits in onnxruntime."""
    return assert_fuses(source, *expected, cleanups=cleanups, skip_rules=["MulAdd"])


def assert_stays(source: ModelProto, cleanup: str) -> None:
    """A cleanup finds nothing, and the model comes back byte by byte."""
    result = graphopt.fuse(source, cleanups=cleanup)
    assert result.report.cleanups == {cleanup: 0}
    assert result.model.SerializeToString(deterministic=True) == source.SerializeToString(deterministic=True)


def test_identity():
    source = model("a = Identity (x)  b = Identity (a)  y = Add (b, a)")
    result = assert_cleans(source, "y = Add (x, x)", cleanups="identity")
    assert graphopt.fuse(source, cleanups="identity").report.cleanups == {"identity": 2}
    assert result.graph.input == source.graph.input
    assert result.graph.output == source.graph.output


def test_nothing_is_cleaned_unless_asked():
    source = model("a = Identity (x)  y = Relu (a)")
    assert nodes(fused(source)) == ["a = Identity (x)", "y = Relu (a)"]
    assert graphopt.fuse(source).report.cleanups == {}


def test_identity_of_an_initializer():
    assert_cleans(
        model("a = Identity (b)  y = Conv (x, w, a)"),
        "y = Conv (x, w, b)",
        cleanups="identity",
    )


def test_the_name_of_an_output_goes_to_the_producer():
    source = model("a = Relu (x)  y = Identity (a)  z = Neg (a)", outputs="float[n,c,h,w] y, float[n,c,h,w] z")
    assert_cleans(source, "y = Relu (x)", "z = Neg (y)", cleanups="identity")


def test_an_output_that_is_an_input_or_another_output_or_an_initializer_keeps_its_node():
    outputs = "float[n,c,h,w] y, float[n,c,h,w] z, float[m] k"
    source = model("y = Relu (x)  z = Identity (y)  k = Identity (b)", outputs=outputs)
    assert_stays(source, "identity")
    assert_stays(model("y = Identity (x)"), "identity")


def test_two_outputs_of_one_value():
    source = model("a = Relu (x)  y = Identity (a)  z = Identity (a)", outputs="float[n,c,h,w] y, float[n,c,h,w] z")
    assert_cleans(source, "y = Relu (x)", "z = Identity (y)", cleanups="identity")


def test_a_random_producer_keeps_its_output_name():
    source = model("a = RandomNormalLike (x)  y = Identity (a)")
    assert_stays(source, "identity")


def test_names_doc_strings_and_metadata_of_what_lives_stay():
    source = model("a = Identity (x)  y = Relu (a)", value_info="float[n,4,h,w] a")
    relu = source.graph.node[1]
    relu.name, relu.doc_string = "the relu", "says something"
    relu.metadata_props.add(key="k", value="v")
    result = fused(source, cleanups="identity")
    (kept,) = result.graph.node
    assert (kept.name, kept.doc_string, kept.metadata_props[0].value) == ("the relu", "says something", "v")
    assert list(kept.input) == ["x"]
    assert not result.graph.value_info


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 21])
def test_dropout(opset: int):
    source = model("a = Dropout (x)  y = Relu (a)", opset=opset)
    assert_cleans(source, "y = Relu (x)", cleanups="dropout")


def test_dropout_whose_mask_is_listed_but_not_read():
    assert_cleans(model("a, m = Dropout (x)  y = Relu (a)"), "y = Relu (x)", cleanups="dropout")


def test_dropout_whose_mask_is_read():
    outputs = "float[n,4,h,w] y, bool[n,4,h,w] m"
    assert_stays(model("a, m = Dropout (x)  y = Relu (a)", outputs=outputs), "dropout")
    assert_stays(model("a, m = Dropout (x)  f = Cast <to = 1> (m)  y = Add (a, f)"), "dropout")


@pytest.mark.parametrize("mode", [True, False])
def test_dropout_with_a_constant_mode(mode: bool):
    source = model('a = Dropout (x, "", t)  y = Relu (a)', constants={"t": np.array(mode)})
    if mode:
        assert_stays(source, "dropout")
    else:
        assert_cleans(source, "y = Relu (x)", cleanups="dropout")


def test_dropout_whose_mode_may_be_overridden():
    inputs = "float[n,4,h,w] x, bool t"
    source = model('a = Dropout (x, "", t)  y = Relu (a)', inputs=inputs, constants={"t": np.array(False)})
    assert_stays(source, "dropout")
    assert_stays(model('a = Dropout (x, "", t)  y = Relu (a)', inputs=inputs), "dropout")


def test_dropout_without_ratio_before_opset_7_trains():
    graph = onnx.parser.parse_graph("g (float[n] x) => (float[n] y) { y = Dropout (x) }")
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)
    assert not graphopt.fuse(source, cleanups="dropout").report.cleaned


def test_concat_of_one():
    source = model("a = Concat <axis = 2> (x)  c = Concat <axis = 1> (a, x)  y = Relu (c)")
    assert_cleans(source, "c = Concat <axis=1> (x, x)", "y = Relu (c)", cleanups="concat")


def test_cast():
    source = model("a = Cast <to = 1> (x)  y = Relu (a)")
    assert_cleans(source, "y = Relu (x)", cleanups="cast")
    source = model("h = Cast <to = 10> (x)  g = Cast <to = 10> (h)  y = Cast <to = 1> (g)")
    assert_cleans(source, "h = Cast <to=10> (x)", "y = Cast <to=1> (h)", cleanups="cast")


def test_a_cast_to_another_type_or_of_an_unknown_one_stays():
    source = model("a = Cast <to = 10> (x)  y = Cast <to = 1> (a)")
    assert_stays(source, "cast")
    unknown = model("a = my.Something (x)  y = Cast <to = 1> (a)", imports='"my" : 1')
    assert_stays(unknown, "cast")


def test_a_declaration_that_lies_is_not_believed():
    source = model("h = my.Half (x)  a = Cast <to = 1> (h)  y = Relu (a)", imports='"my" : 1', value_info="float[n] h")
    assert_stays(source, "cast")


FIXED = "float[2,4,3,3] x"


@pytest.mark.parametrize(
    ("body", "shape"),
    [("r = Reshape (x, s)  y = Relu (r)", [2, 4, 3, 3]), ("r = Reshape (x, s)  y = Relu (r)", [0, -1, 3, 3])],
)
def test_reshape(body: str, shape: list[int]):
    source = model(body, inputs=FIXED, constants={"s": np.array(shape)})
    assert_cleans(source, "y = Relu (x)", cleanups="reshape")


def test_reshape_with_one_open_dimension():
    """The number of elements stays, so one dimension follows from all the others."""
    shape = {"s": np.array([-1, 4, 3])}
    source = model(
        "r = Reshape (x, s)  y = Relu (r)", inputs="float[n,4,3] x", outputs="float[n,4,3] y", constants=shape
    )
    assert_cleans(source, "y = Relu (x)", cleanups="reshape")


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        (FIXED, [4, 2, 3, 3]),
        (FIXED, [2, 4, 9]),
        (FIXED, [2, 4, 3, 3, 1]),
        ("float[n,4,h,3] x", [-1, 4, 3, 3]),  # two open dimensions
        ("float[n,0,3] x", [2, 0, 3]),  # of nothing, n may be anything
        ("float[n,c,h,w] x", [2, 4, 3, 3]),
    ],
)
def test_reshape_that_may_change_something_stays(inputs: str, shape: list[int]):
    assert_stays(model("r = Reshape (x, s)  y = Relu (r)", inputs=inputs, constants={"s": np.array(shape)}), "reshape")


def test_a_dimension_of_minus_one_is_an_open_one():
    """Taken for a number, two of them would make 1."""
    shapes = {"s": np.array([-1, 1, 3]), "t": np.array([1, -1, 3])}
    body = "r = Reshape (x, s)  q = Reshape (r, t)  y = Relu (q)"
    source = model(body, inputs="float[1,1,3] x", outputs="float[a,b,3] y", constants=shapes)
    for dim in source.graph.input[0].type.tensor_type.shape.dim[:2]:
        dim.dim_value = -1
    assert not graphopt.fuse(source, cleanups="reshape").report.cleaned


def test_reshape_to_a_shape_that_may_be_overridden_stays():
    constants = {"s": np.array([2, 4, 3, 3])}
    inputs = f"{FIXED}, int64[4] s"
    assert_stays(model("r = Reshape (x, s)  y = Relu (r)", inputs=inputs, constants=constants), "reshape")


def test_transposes_that_undo_each_other():
    source = model("t = Transpose <perm = [0,2,3,1]> (x)  u = Transpose <perm = [0,3,1,2]> (t)  y = Relu (u)")
    assert_cleans(source, "y = Relu (x)", cleanups="transpose")
    assert graphopt.fuse(source, cleanups="transpose").report.cleanups == {"transpose": 2}


def test_transposes_without_perm_undo_each_other():
    assert_cleans(model("t = Transpose (x)  u = Transpose (t)  y = Relu (u)"), "y = Relu (x)", cleanups="transpose")
    source = model("t = Transpose (x)  u = Transpose <perm = [3,2,1,0]> (t)  y = Relu (u)")
    assert_cleans(source, "y = Relu (x)", cleanups="transpose")


def test_the_first_transpose_stays_where_somebody_else_reads_it():
    outputs = "float[n,c,h,w] y, float[a,b,c,d] t"
    source = model("t = Transpose (x)  u = Transpose (t)  y = Relu (u)", outputs=outputs)
    assert_cleans(source, "t = Transpose (x)", "y = Relu (x)", cleanups="transpose")


def test_transpose_that_moves_nothing():
    assert_cleans(model("t = Transpose <perm = [0,1,2,3]> (x)  y = Relu (t)"), "y = Relu (x)", cleanups="transpose")


def test_transposes_that_do_not_undo_each_other_stay():
    turn = "Transpose <perm = [0,2,3,1]>"
    assert_stays(model(f"t = {turn} (x)  u = {turn} (t)  y = Relu (u)"), "transpose")
    assert_stays(model(f"t = Transpose (x)  u = {turn} (t)  y = Relu (u)"), "transpose")
    assert_stays(model("y = Transpose (x)"), "transpose")


@pytest.mark.parametrize("opset", [10, 11, 13, 18, 21])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(opset: int, mode: str):
    zeros = {"p": np.zeros(8, np.int64)}
    if opset < 11:
        source = model(f'a = Pad <mode = "{mode}", pads = [0,0,0,0,0,0,0,0]> (x)  y = Relu (a)', opset=opset)
    else:
        source = model(f'a = Pad <mode = "{mode}"> (x, p)  y = Relu (a)', constants=zeros, opset=opset)
    assert_cleans(source, "y = Relu (x)", cleanups="pad")


def test_pad_of_something_stays():
    assert_stays(model("y = Pad (x, p)", constants={"p": np.array([0, 0, 0, 0, 0, 0, 0, 1])}), "pad")
    assert_stays(model("y = Pad (x, p)", constants={"p": np.array([0, 0, 0, -1, 0, 0, 0, 0])}), "pad")
    assert_stays(model("y = Pad <pads = [0,0,0,0,0,0,1,0]> (x)", opset=10), "pad")
    inputs = "float[n,4,h,w] x, int64[8] p"
    assert_stays(model("y = Pad (x, p)", inputs=inputs, constants={"p": np.zeros(8, np.int64)}), "pad")


def test_identity_of_a_sequence():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (seq(float[n]) s, int64 i) => (float[n] y) { t = Identity (s)  a = SequenceAt (t, i)  y = Relu (a) }"""
    source = onnx.parser.parse_model(text)
    result = fused(source, cleanups=["identity", "cast", "reshape"])
    assert nodes(result) == ["a = SequenceAt (s, i)", "y = Relu (a)"]


def test_one_cleanup_makes_room_for_another():
    body = (
        "a = Transpose (x)  b = Identity (a)  c = Transpose (b)  d = Dropout (c)  e = Cast <to = 1> (d)  y = Relu (e)"
    )
    assert_cleans(model(body), "y = Relu (x)", cleanups=["identity", "dropout", "transpose", "cast"])


def test_rules_meet_the_cleaned_graph():
    source = model("c = Conv (x, w, b)  d = Dropout (c)  i = Identity (d)  y = LeakyRelu <alpha = 0.5> (i)")
    assert_fuses(
        source, "y = ai.ngine.ConvLeakyRelu <alpha=0.5> (x, w, b)", cleanups=["identity", "dropout"], rules="ngine"
    )


def test_what_was_cleaned_is_the_same_for_every_feed():
    source = model("a = Identity (x)  b = Dropout (a)  y = Concat <axis = 1> (b, x)")
    result = fused(source, cleanups=["identity", "dropout"])
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((1, 4, 2, 2)).astype(np.float32)
        assert_same_numbers(source, result, {"x": x})
