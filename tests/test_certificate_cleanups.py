"""The proof of cleanups: it holds where nodes change nothing, and fails on every one that does change something."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from graphopt.proof.certificate import certify

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


def parse(body: str, arrays: Arrays | None = None, *, given: str = "", made: str = "", opset: int = 17) -> ModelProto:
    """A model from its statements, with an image `x` of open size and `f` of a fixed one.

    `T0231` is a Transpose with those axes.
    """
    body = re.sub(r"\bT(\d)(\d)(\d)(\d)\b", r"Transpose <perm = [\1,\2,\3,\4]>", body)
    inputs = f"float[n,4,h,w] x, float[2,4,3,3] f{given}"
    text = (
        f'<ir_version: 8, opset_import: ["" : {opset}, "my" : 1]> g ({inputs}) => (float[a,b,c,d] y{made}) {{ {body} }}'
    )
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (arrays or {}).items())
    return model


HOLDS: list[tuple[str, str, Arrays]] = [
    ("a = Cast <to = 1> (x)  y = Relu (a)", "y = Relu (x)", {}),
    ("a = Cast <to = 10> (x)  b = Cast <to = 10> (a)  y = Neg (b)", "b = Cast <to = 10> (x)  y = Neg (b)", {}),
    ("a = Reshape (f, s)  y = Relu (a)", "y = Relu (f)", {"s": np.array([2, 4, 3, 3])}),
    ("a = Reshape (f, s)  y = Relu (a)", "y = Relu (f)", {"s": np.array([0, 0, -1, 3])}),
    ("a = Shape (f)  b = Reshape (f, a)  y = Relu (b)", "y = Relu (f)", {}),
    ("a = T0123 (x)  y = Relu (a)", "y = Relu (x)", {}),
    ("a = Transpose (x)  b = Transpose (a)  y = Relu (b)", "y = Relu (x)", {}),
    ("a = Transpose (x)  b = T3210 (a)  y = Relu (b)", "y = Relu (x)", {}),
    ("a = T0231 (x)  b = T0312 (a)  y = Relu (b)", "y = Relu (x)", {}),
    ("a = T0231 (x)  y = T0231 (a)", "y = T0312 (x)", {}),
    ("a = T1023 (x)  y = Transpose (a)", "y = T3201 (x)", {}),
    ("y = Transpose (x)", "y = T3210 (x)", {}),
    ("a = Pad (x, p)  y = Relu (a)", "y = Relu (x)", {"p": np.zeros(8, np.int64)}),
    ('a = Pad <mode = "edge"> (x, p)  y = Relu (a)', "y = Relu (x)", {"p": np.zeros(8, np.int64)}),
    ("a = Dropout (x)  y = Relu (a)", "y = Relu (x)", {}),
    ("a, m = Dropout (x)  y = Relu (a)", "y = Relu (x)", {}),
    ('a = Dropout (x, "", t)  y = Relu (a)', "y = Relu (x)", {"t": np.array(False)}),
    ("a = Concat <axis = 1> (x)  y = Relu (a)", "y = Relu (x)", {}),
    ("a = Relu (x)  b = Relu (x)  y = Sub (a, b)", "a = Relu (x)  y = Sub (a, a)", {}),
    ("a = Relu (x)  y = Identity (a)", "y = Relu (x)", {}),
]  # fmt: skip

FAILS: list[tuple[str, str, Arrays]] = [
    ("a = Cast <to = 10> (x)  y = Cast <to = 1> (a)", "y = Relu (x)", {}),
    ("a = Cast <to = 10> (x)  y = Cast <to = 1> (a)", "y = Identity (x)", {}),
    ("h = my.Half (x)  a = Cast <to = 1> (h)  y = Relu (a)", "h = my.Half (x)  y = Relu (h)", {}),
    ("a = Reshape (f, s)  y = Relu (a)", "y = Relu (f)", {"s": np.array([4, 2, 3, 3])}),
    ("a = Reshape (x, s)  y = Relu (a)", "y = Relu (x)", {"s": np.array([-1, 4, 3, 3])}),
    ("a = T0231 (x)  b = T0231 (a)  y = Relu (b)", "y = Relu (x)", {}),
    ("a = Transpose (x)  b = T0231 (a)  y = Relu (b)", "y = Relu (x)", {}),
    ("a = T0213 (x)  y = T1023 (a)", "y = T1023 (x)", {}),
    ("a = T0231 (x)  y = T1023 (a)", "y = T1230 (x)", {}),
    ("y = Transpose (x)", "y = Identity (x)", {}),
    ("y = Pad (x, p)", "y = Identity (x)", {"p": np.array([0, 0, 0, 0, 0, 0, 0, 1])}),
    ("y = Pad (x, p)", "y = Identity (x)", {"p": np.array([0, 0, -1, 0, 0, 0, 1, 0])}),
    ('a = Dropout (x, "", t)  y = Relu (a)', "y = Relu (x)", {"t": np.array(True)}),
    ("a = Concat <axis = 1> (x, x)  y = Relu (a)", "y = Relu (x)", {}),
    ("a = Bernoulli (x)  b = Bernoulli (x)  y = Sub (a, b)", "a = Bernoulli (x)  y = Sub (a, a)", {}),
    ("a, m = Dropout (x)  c = Cast <to = 1> (m)  y = Relu (c)", "y = Relu (x)", {}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "arrays"), HOLDS)
def test_holds(before: str, after: str, arrays: Arrays):
    one, other = parse(before, arrays), parse(after, arrays)
    assert certify(one, other).ok
    assert certify(other, one).ok


@pytest.mark.parametrize(("before", "after", "arrays"), FAILS)
def test_fails(before: str, after: str, arrays: Arrays):
    one, other = parse(before, arrays), parse(after, arrays)
    found = certify(one, other)
    assert not found.ok
    assert found.output == "y"
    assert not certify(other, one).ok


@pytest.mark.parametrize(
    ("body", "given", "arrays"),
    [
        ("a = Reshape (f, s)  y = Relu (a)", ", int64[4] s", {"s": np.array([2, 4, 3, 3])}),
        ("a = Pad (f, p)  y = Relu (a)", ", int64[8] p", {"p": np.zeros(8, np.int64)}),
        ('a = Dropout (f, "", t)  y = Relu (a)', ", bool t", {"t": np.array(False)}),
    ],
)
def test_what_may_be_overridden_is_no_constant(body: str, given: str, arrays: Arrays):
    assert not certify(parse(body, arrays, given=given), parse("y = Relu (f)", arrays, given=given)).ok


def test_a_declaration_that_lies_proves_nothing():
    one = parse("h = my.Half (x)  a = Cast <to = 1> (h)  y = Relu (a)")
    one.graph.value_info.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, None))
    assert not certify(one, parse("h = my.Half (x)  y = Relu (h)")).ok


def test_a_renamed_output():
    other = parse("z = Relu (x)")
    other.graph.output[0].name = "z"
    found = certify(parse("y = Relu (x)"), other)
    assert not found.ok
    assert found.reason == "the outputs were y and are z after fusing"


def test_a_mask_is_not_the_second_output_of_another_node():
    """The mask has a number of its own, though the first output has that of the input."""
    one = parse("a, b = Split <axis = 1> (x)  d, m = Dropout (a)  y = my.Op (d, m)", opset=13)
    other = parse("a, b = Split <axis = 1> (x)  d, m = Dropout (a)  y = my.Op (d, b)", opset=13)
    assert certify(one, one).ok
    assert not certify(one, other).ok


@pytest.mark.parametrize("opset", [6, 7, 10])
def test_dropout_before_opset_12(opset: int):
    for is_test in ("", "<is_test = 0>", "<is_test = 1>")[: 3 if opset < 7 else 1]:
        one = parse(f"a = Dropout {is_test} (x)  y = Relu (a)", opset=opset)
        assert certify(one, parse("y = Relu (x)", opset=opset)).ok == (opset >= 7 or "1" in is_test)


def test_pad_by_attribute():
    for pads, holds in (([0] * 8, True), ([0, 0, 1, 0, 0, 0, 0, 0], False), ([0, 0, -1, 0, 0, 0, 1, 0], False)):
        one = parse(f"a = Pad <pads = {pads}> (x)  y = Relu (a)", opset=10)
        assert certify(one, parse("y = Relu (x)", opset=10)).ok == holds


def test_types_hold_inside_bodies_and_shapes_do_not():
    body = "r = Reshape (f, s)  a = Cast <to = 1> (r)  t = Relu (a)"
    text = (
        "y = If (c) <then_branch = g () => (float[n] t) {{ {} }}, else_branch = h () => (float[n] e) {{ e = Neg (f) }}>"
    )
    arrays = {"s": np.array([2, 4, 3, 3])}
    one = parse(text.format(body), arrays, given=", bool c")
    without_cast = parse(text.format("r = Reshape (f, s)  t = Relu (r)"), arrays, given=", bool c")
    without_both = parse(text.format("t = Relu (f)"), arrays, given=", bool c")
    assert certify(one, without_cast).ok
    assert not certify(one, without_both).ok


def test_types_are_not_inferred_where_nothing_was_cleaned(monkeypatch: pytest.MonkeyPatch):
    """Inference takes longer than the whole proof, so it runs only when the proof fails without it."""

    def never(*_: object, **__: object) -> object:
        raise AssertionError("types were inferred")

    monkeypatch.setattr("graphopt.graph.value_types.inferred_shapes", never)
    one = parse("a = Cast <to = 10> (x)  b = Reshape (f, s)  y = my.Op (a, b)", {"s": np.array([2, 4, 3, 3])})
    assert certify(one, one).ok


def test_what_is_known_in_one_loop_says_nothing_of_another():
    """Both bodies cast their first input, at the same depth, but only one of these is a float already."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n] x, int32[n] z, int64 m, bool c) => (float[k] y, int32[k] q, float[n,a] s, float[n,b] t) {
      y, s = Loop (m, c, x) <body = b1 (int64 i, bool k, float[n] v) => (bool l, float[n] u, float[n] o)
        { l = Identity (k)  u = Identity (v)  o = Cast <to = 1> (v) }>
      q, t = Loop (m, c, z) <body = b2 (int64 i, bool k, int32[n] w) => (bool l, int32[n] u, float[n] o)
        { l = Identity (k)  u = Identity (w)  o = Cast <to = 1> (w) }>
    }"""
    one = onnx.parser.parse_model(text)
    assert certify(one, one).ok
    for place, holds in ((0, True), (1, False)):
        other = onnx.ModelProto.FromString(one.SerializeToString())
        node = other.graph.node[place].attribute[0].g.node[2]
        assert node.op_type == "Cast"
        node.op_type = "Identity"
        del node.attribute[:]
        assert certify(one, other).ok == holds
