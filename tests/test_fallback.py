"""Operators without a kernel, control flow, and values that are no tensors."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from ngine_ref import InferenceSession, ModelError, OperatorError
from ngine_ref.registry import Array

X = np.array([1, -2, 3], np.float32)


def parse(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "ai.onnx.ml" : 3]>\n' + text)


def check(text: str, *, opset: int = 17, **feeds: Array) -> list[Array]:
    """Run, and compare with onnx's own evaluator."""
    model = parse(text, opset)
    session = InferenceSession(model)
    expected = ReferenceEvaluator(model).run(None, feeds)
    for _ in range(2):
        actual = session.run(None, feeds)
        for got, right in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(got, right)
            assert got.dtype == right.dtype
            assert got.shape == right.shape
    return actual


def test_onnx_computes_what_we_do_not():
    check("g (float[3] x) => (float[3] y) { a = Softplus(x)\n b = Relu(a)\n y = Erf(b) }", x=X)


def test_operators_that_are_functions_of_their_types():
    """onnx defines these by a function, which for the second depends on the types of the inputs."""
    check("g (float[3] x) => (float[3] y) { y = Celu(x) }", x=X)
    check("g (double[3] x) => (double[3] y) { y = Shrink(x) }", x=X.astype(np.float64))
    text = """g (float[1, 3] x, int64[1] t) => (float y) { y = SoftmaxCrossEntropyLoss(x, t) }"""
    check(text, x=X[None], t=np.array([1]))


def test_the_opset_counts():
    """ArgMax took the first of equals up to opset 11; from 12 on it may be told to take the last."""
    text = "g (float[3] x) => (int64[1] y) { y = ArgMax (x) }"
    x = np.array([2, 2, 1], np.float32)
    assert InferenceSession(parse(text, 11)).run(None, {"x": x})[0] == 0
    last = text.replace("ArgMax", "ArgMax <select_last_index: int = 1>")
    assert InferenceSession(parse(last, 12)).run(None, {"x": x})[0] == 1
    with pytest.raises(OperatorError, match="ArgMax node 'y'"):
        InferenceSession(parse(last, 11)).run(None, {"x": x})


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", ["", " <axis: int = 2>", " <axis: int = 0>", " <axis: int = -1>"])
def test_softmax_took_all_axes_from_one_on_up_to_opset_12(op_type: str, axis: str):
    """Against onnxruntime, because onnx's evaluator takes the newest definition for every opset."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    for opset in (11, 12, 13):
        model = parse(f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = {op_type}{axis} (x) }}", opset)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        [expected] = session.run(None, {"x": x})
        [y] = InferenceSession(model).run(None, {"x": x})
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


def test_refusals_name_the_node():
    model = parse('g (float[3] x) => (float[2, 2] y) { y = Einsum <equation: string = "ij->ji"> (x) }')
    with pytest.raises(OperatorError, match="Einsum node 'y'"):
        InferenceSession(model).run(None, {"x": X})


def test_a_kernel_needs_no_evaluator(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnx.reference", None)
    model = parse("g (float[3] x) => (float[3] y) { s = Shape(x)\n r = Reshape(x, s)\n y = Relu(r) }")
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"x": X})[0], np.maximum(X, 0))


def test_what_an_implementation_hands_on_does_not_alias_the_arena():
    """CastLike of the same type returns its input, which lies in a buffer that later steps write."""
    model = parse(
        """g (float[3] x) => (float[3] y) {
          a = Relu(x)
          c = CastLike(a, x)
          b = Sigmoid(a)
          d = Sigmoid(b)
          e = Mul(d, d)
          y = Add(c, e)
        }"""
    )
    [y] = InferenceSession(model).run(None, {"x": X})

    def sigmoid(value: Array) -> Array:
        return 1 / (1 + np.exp(-value))

    relu = np.maximum(X, 0).astype(np.float64)
    np.testing.assert_allclose(y, relu + sigmoid(sigmoid(relu)) ** 2, rtol=1e-6)


IF = """g (bool c, float[3] x) => (float[3] y) {
  k = Neg(x)
  z = If(c) <
    then_branch = yes () => (float[3] r) { r = Add(k, x) },
    else_branch = no () => (float[3] r) {
      t = Mul(k, x)
      r = If(c) <
        then_branch = deep () => (float[3] q) { q = Add(t, k) },
        else_branch = deeper () => (float[3] q) { q = Sub(t, k) }
      >
    }
  >
  m = Relu(k)
  y = Add(z, m)
}"""


@pytest.mark.parametrize("condition", [True, False])
def test_if_with_captures_at_any_depth(condition: bool):
    [y] = check(IF, c=np.array(condition), x=X)
    right = 0 * X if condition else -X * X + X
    np.testing.assert_array_equal(y, right + np.maximum(-X, 0))


def test_a_branch_that_only_hands_on_what_it_captures():
    model = parse(
        """g (bool c, float[3] x) => (float[3] y) {
          a = Relu(x)
          y = If(c) < then_branch = yes () => (float[3] a) {}, else_branch = no () => (float[3] x) {} >
        }"""
    )
    session = InferenceSession(model)
    [first] = session.run(None, {"c": np.array(True), "x": X})
    np.testing.assert_array_equal(first, np.maximum(X, 0))
    [second] = session.run(None, {"c": np.array(False), "x": X})
    np.testing.assert_array_equal(second, X)
    assert not np.shares_memory(second, X)


LOOP = """g (int64 n, bool c, float[3] x) => (float[3] last, float[K, 3] all) {
  last, all = Loop(n, c, x) <
    body = step (int64 i, bool go_on, float[3] v) => (bool again, float[3] w, float[3] scanned) {
      w = Add(v, x)
      scanned = Mul(w, v)
      limit = Constant <value_float: float = 8.0> ()
      sum = ReduceSum <keepdims: int = 0> (w)
      again = Less(sum, limit)
    }
  >
}"""


@pytest.mark.parametrize("trips", [1, 3, 100])
def test_loop(trips: int):
    model = parse(LOOP)
    last, scanned = InferenceSession(model).run(None, {"n": np.array(trips), "c": np.array(True), "x": X})
    value, rows = X, []
    for _ in range(trips):
        made = value + X
        rows.append(made * value)
        value = made
        if made.sum() >= 8:
            break
    np.testing.assert_array_equal(last, value)
    np.testing.assert_array_equal(scanned, np.stack(rows))


def test_a_loop_without_iterations():
    last, scanned = InferenceSession(parse(LOOP)).run(None, {"n": np.array(0), "c": np.array(True), "x": X})
    np.testing.assert_array_equal(last, X)
    assert scanned.shape == (0, 3)
    assert scanned.dtype == np.float32


def test_a_loop_over_a_growing_value():
    """Every iteration has another shape, so another plan."""
    [y] = check(
        """g (int64 n, bool c, float[3] x) => (float[N] y) {
          empty = Constant <value_floats: floats = [0.0]> ()
          y = Loop(n, c, empty) <
            body = grow (int64 i, bool go_on, float[A] v) => (bool again, float[B] w) {
              w = Concat <axis: int = 0> (v, x)
              size = Size(w)
              limit = Constant <value_int: int = 12> ()
              again = Less(size, limit)
            }
          >
        }""",
        n=np.array(50),
        c=np.array(True),
        x=X,
    )
    assert y.size == 13


def test_absent_trip_count_and_condition():
    model = parse(
        """g (float x) => (float y) {
          y = Loop(, , x) <
            body = twice (int64 i, bool c, float v) => (bool again, float w) {
              w = Add(v, v)
              limit = Constant <value_float: float = 100.0> ()
              again = Less(w, limit)
            }
          >
        }"""
    )
    assert InferenceSession(model).run(None, {"x": np.float32(3)})[0] == 192


def test_scan_in_both_directions_and_along_any_axis():
    model = parse(
        """g (float[2] state, float[2, 3] x) => (float[2] last, float[2, 3] sums) {
          last, sums = Scan(state, x) <
            num_scan_inputs: int = 1, scan_input_axes: ints = [1], scan_input_directions: ints = [1],
            scan_output_axes: ints = [-1], scan_output_directions: ints = [1],
            body = step (float[2] s, float[2] v) => (float[2] t, float[2] o) {
              t = Add(s, v)
              o = Identity(t)
            }
          >
        }"""
    )
    state, x = np.float32([10, 20]), np.arange(6, dtype=np.float32).reshape(2, 3)
    last, sums = InferenceSession(model).run(None, {"state": state, "x": x})
    running = state[:, None] + np.cumsum(x[:, ::-1], 1)
    np.testing.assert_array_equal(last, running[:, -1])
    np.testing.assert_array_equal(sums, running[:, ::-1])


def test_sequences_pass_through():
    model = parse(
        """g (float[3] x) => (seq(float[3]) s, float[3] y, int64 n) {
          a = Relu(x)
          b = Sigmoid(a)
          s = SequenceConstruct(a, b, x)
          one = Constant <value_int: int = 1> ()
          y = SequenceAt(s, one)
          n = SequenceLength(s)
        }"""
    )
    session = InferenceSession(model)
    s, y, n = session.run(None, {"x": X})
    session.run(None, {"x": X + 1})
    np.testing.assert_array_equal(s[0], np.maximum(X, 0))
    np.testing.assert_array_equal(s[1], y)
    np.testing.assert_array_equal(s[2], X)
    assert n == 3
    assert not any(np.shares_memory(item, X) for item in s)


def test_a_tensor_out_of_a_fed_sequence_is_a_copy():
    model = parse("g (seq(float[N]) s, int64 i) => (float[N] y) { y = SequenceAt(s, i) }")
    [y] = InferenceSession(model).run(None, {"s": [X, X + 1], "i": np.array(0)})
    np.testing.assert_array_equal(y, X)
    assert not np.shares_memory(y, X)


def test_sequence_map():
    model = parse(
        """g (seq(float[N]) s, float[1] k) => (seq(float[N]) t) {
          t = SequenceMap(s, k) < body = f (float[N] v, float[1] w) => (float[N] r) { r = Mul(v, w) } >
        }"""
    )
    [t] = InferenceSession(model).run(None, {"s": [X, X[:2]], "k": np.float32([2])})
    assert [item.tolist() for item in t] == [(2 * X).tolist(), (2 * X[:2]).tolist()]


def test_optional_values():
    model = parse("""g (optional(float[3]) o) => (bool has) { has = OptionalHasElement(o) }""", 18)
    session = InferenceSession(model)
    assert session.run(None, {"o": X})[0]
    assert not session.run(None, {"o": None})[0]


def test_a_body_that_reads_nothing_known():
    with pytest.raises(ModelError, match="If node 'y' reads the value 'nowhere', which nothing makes"):
        InferenceSession(
            parse(
                """g (bool c, float[3] x) => (float[3] y) {
                  y = If(c) < then_branch = a () => (float[3] r) { r = Neg(nowhere) },
                              else_branch = b () => (float[3] r) { r = Neg(x) } >
                }"""
            )
        )


def test_random_numbers_differ_between_runs():
    """A node without inputs is a constant only if it always gives the same."""
    model = parse("g () => (float[8] y) { y = RandomNormal <shape: ints = [8]> () }")
    session = InferenceSession(model)
    assert not np.array_equal(session.run(None, {})[0], session.run(None, {})[0])


@pytest.mark.parametrize("opset", [10, 13, 17, 19])
def test_quantised_models_of_any_opset(opset: int):
    """onnx's own evaluator has DequantizeLinear from opset 19 on only."""
    model = parse(
        """g (float[2,3] x) => (float[2,3] y) <float s = {0.05}, uint8 z = {100}>
        { q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z) }""",
        opset,
    )
    given = {"x": np.linspace(-9, 9, 6, dtype=np.float32).reshape(2, 3)}
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    np.testing.assert_array_equal(InferenceSession(model).run(None, given)[0], expected)
