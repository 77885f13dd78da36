"""The face of a session: loading, types, feeds, results, threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.plan_models import random_plan_model

from ngine_ref import FeedError, InferenceSession, ModelError, OperatorError, SessionOptions, ShapeError, get
from ngine_ref.registry import Array

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 3] x, int64[2] i) => (float[N, 3] y, int64[2] j) {
  m = Mul(x, w)
  y = Relu(m)
  j = Add(i, i)
}"""
W = np.array([1, -1, 2], np.float32)


def model() -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(MODEL)
    parsed.graph.initializer.append(numpy_helper.from_array(W, "w"))
    return parsed


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)


X = np.array([[1, 2, 3], [-1, -2, -3]], np.float32)
FEEDS = {"x": X, "i": np.array([1, 2])}


def test_all_ways_to_load_give_the_same(tmp_path: Path):
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    for source in (model(), model().SerializeToString(), path, str(path)):
        y, j = InferenceSession(source).run(None, FEEDS)
        np.testing.assert_array_equal(y, np.maximum(X * W, 0))
        np.testing.assert_array_equal(j, [2, 4])


def test_the_message_is_not_changed():
    given = model()
    before = given.SerializeToString(deterministic=True)
    InferenceSession(given).run(None, FEEDS)
    assert given.SerializeToString(deterministic=True) == before


def test_inputs_and_outputs():
    session = InferenceSession(model())
    described = [(value.name, value.type, value.shape) for value in session.get_inputs()]
    assert described == [("x", "tensor(float)", ["N", 3]), ("i", "tensor(int64)", [2])]
    assert [(value.name, value.type) for value in session.get_outputs()] == [
        ("y", "tensor(float)"),
        ("j", "tensor(int64)"),
    ]


def test_types_are_written_as_onnxruntime_does():
    element = helper.make_tensor_type_proto(TensorProto.FLOAT16, [1, None, "n"])
    kinds = {
        "half": element,
        "double": helper.make_tensor_type_proto(TensorProto.DOUBLE, None),
        "many": helper.make_sequence_type_proto(element),
        "maybe": helper.make_optional_type_proto(element),
        "table": helper.make_map_type_proto(TensorProto.INT64, element),
    }
    inputs = [helper.make_value_info(name, kind) for name, kind in kinds.items()]
    graph = helper.make_graph([helper.make_node("Relu", ["half"], ["y"])], "g", inputs, [onnx.ValueInfoProto(name="y")])
    session = InferenceSession(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert [value.type for value in session.get_inputs()] == [
        "tensor(float16)",
        "tensor(double)",
        "seq(tensor(float16))",
        "optional(tensor(float16))",
        "map(int64,tensor(float16))",
    ]
    assert session.get_inputs()[0].shape == [1, None, "n"]


def test_any_value_can_be_asked_for():
    session = InferenceSession(model())
    m, w, x, again = session.run(["m", "w", "x", "m"], FEEDS)
    np.testing.assert_array_equal(m, X * W)
    np.testing.assert_array_equal(again, X * W)
    np.testing.assert_array_equal(w, W)
    np.testing.assert_array_equal(x, X)
    m[:], w[:], x[:] = 0, 0, 0
    np.testing.assert_array_equal(session.run(["m"], FEEDS)[0], X * W)
    np.testing.assert_array_equal(again, X * W)


@pytest.mark.parametrize(
    ("feeds", "sentence"),
    [
        ({"x": X}, "The input 'i' is missing from the feeds."),
        ({**FEEDS, "z": X}, "The model has no input 'z'; its inputs are: x, i."),
        ({**FEEDS, "m": X}, "The model has no input 'm'"),
        ({**FEEDS, "w": W}, "The model has no input 'w'"),
        ({**FEEDS, "x": X.astype(np.float64)}, r"'x' is a tensor\(float\), but was fed an array of float64"),
        ({**FEEDS, "x": X.astype(">f4")}, "was fed an array of >f4"),
        ({**FEEDS, "x": X[0]}, r"'x' has rank 2, but was fed an array of rank 1 with shape \[3\]"),
        ({**FEEDS, "x": X[:, :2]}, r"'x' has size 3 along axis 1, but was fed shape \[2, 2\]"),
        ({**FEEDS, "x": X.tolist()}, "was fed a list and no array"),
        ({**FEEDS, "x": None}, "was fed a NoneType and no array"),
    ],
)
def test_wrong_feeds(feeds: dict[str, Array], sentence: str):
    with pytest.raises(FeedError, match=sentence):
        InferenceSession(model()).run(None, feeds)


def test_a_wrong_output_name():
    with pytest.raises(FeedError, match="no value 'nothing' to return"):
        InferenceSession(model()).run(["nothing"], FEEDS)


def test_feeds_may_be_any_memory_and_are_never_written():
    wide = np.arange(12, dtype=np.float32).reshape(2, 6)
    transposed = np.asfortranarray(X)
    session = InferenceSession(model())
    for x in (wide[:, ::2], transposed, X[::-1]):
        before = x.copy()
        [y] = session.run(["y"], {**FEEDS, "x": x})
        np.testing.assert_array_equal(y, np.maximum(x * W, 0))
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("ir_version", [3, 4, 8])
def test_initializers_among_the_inputs(ir_version: int):
    given = model()
    given.ir_version = ir_version
    given.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    session = InferenceSession(given)
    assert [value.name for value in session.get_inputs()] == ["x", "i"]
    assert [value.name for value in session.get_overridable_initializers()] == ["w"]
    for _ in range(2):
        np.testing.assert_array_equal(session.run(["m"], FEEDS)[0], X * W)
        np.testing.assert_array_equal(session.run(["m"], {**FEEDS, "w": W + 1})[0], X * (W + 1))


def test_an_overridden_initializer_changes_what_was_folded():
    parsed = parse("g (float[2] x, float[2] w) => (float[2] y) { v = Relu(w)\n y = Add(x, v) }")
    parsed.graph.initializer.append(numpy_helper.from_array(np.array([-1, 1], np.float32), "w"))
    session = InferenceSession(parsed)
    x = np.zeros(2, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], [0, 1])
        np.testing.assert_array_equal(session.run(None, {"x": x, "w": np.float32([3, -3])})[0], [3, 0])


def test_scalars_strings_and_small_types():
    parsed = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (string[N] s, bfloat16[N] b, float n) => (string[N] t, bfloat16[N] c, float m) {
          t = Identity(s)
          c = Add(b, b)
          m = Add(n, n)
        }"""
    )
    bfloat = np.array([1, 2], ml_dtypes.bfloat16)
    strings = np.array(["a", "bc"])
    t, c, m = InferenceSession(parsed).run(None, {"s": strings, "b": bfloat, "n": np.float32(2)})
    assert t.tolist() == ["a", "bc"]
    assert c.dtype == bfloat.dtype
    np.testing.assert_array_equal(c.astype(np.float32), [2, 4])
    assert m.shape == ()
    assert m == 4


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (b"", "The model is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "The model is not an ONNX model"),
        (model().SerializeToString()[:-7], "The model is not an ONNX model"),
        (onnx.ModelProto(ir_version=8), "The model has no graph"),
        ("no/such/file.onnx", "no/such/file.onnx cannot be read: No such file"),
    ],
)
def test_what_is_no_model(source: bytes | str | onnx.ModelProto, sentence: str):
    with pytest.raises(ModelError, match=sentence):
        InferenceSession(source)


def test_a_model_of_the_future():
    given = model()
    given.ir_version = 1000
    with pytest.raises(ModelError, match="IR version 1000"):
        InferenceSession(given)


def test_a_run_is_reported():
    session = InferenceSession(model())
    assert session.last_run is None
    session.run(None, FEEDS)
    report = session.last_run
    assert report is not None
    assert report.steps == 3
    x, w, i = X.nbytes, W.nbytes, 16
    assert report.bytes_moved == (x + w + x) + (x + x) + (i + i + i)
    assert report.bytes_copied == 0
    assert x + i <= report.peak_bytes <= 2 * x + i + 128
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(session.last_run))
    thread.start()
    thread.join()
    assert seen == [None], "the report is that of the calling thread"


def test_more_memory_than_there_is():
    session = InferenceSession(parse("g (float[1] x, int64[1] n) => (float[N] y) { y = Expand(x, n) }"))
    with pytest.raises(OperatorError, match="Expand node 'y'"):
        session.run(None, {"x": np.ones(1, np.float32), "n": np.array([1 << 60])})


def test_names_that_are_no_text():
    content = model().SerializeToString().replace(b"Relu", b"Re\xfflu"[:4])
    with pytest.raises(ModelError, match="not UTF-8"):
        InferenceSession(content)


def test_an_error_leaves_the_session_usable():
    session = InferenceSession(parse("g (float[N] x, int64[K] s) => (float[A, B] y) { y = Reshape(x, s) }"))
    x = np.arange(6, dtype=np.float32)
    for _ in range(3):
        with pytest.raises(ShapeError, match="Reshape node 'y'"):
            session.run(None, {"x": x, "s": np.array([4, 4])})
        np.testing.assert_array_equal(session.run(None, {"x": x, "s": np.array([2, 3])})[0], x.reshape(2, 3))


@pytest.mark.parametrize("threads", [1, None])
def test_runs_at_the_same_time_give_the_same_bits(threads: int | None):
    """Sixteen threads, models and shapes mixed, each result compared bit by bit with a lone run's."""
    makes = [random_plan_model(seed) for seed in range(40, 48)]
    sessions = [InferenceSession(made.model(), SessionOptions(threads=threads, cached_plans=2)) for made in makes]
    feeds = [
        [np.random.default_rng(trial).standard_normal(made.shapes["x"]).astype(np.float32) for trial in range(3)]
        for made in makes
    ]
    expected = [[session.run(None, {"x": x}) for x in given] for session, given in zip(sessions, feeds, strict=True)]
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            index, trial = int(rng.integers(len(sessions))), int(rng.integers(3))
            results = sessions[index].run(None, {"x": feeds[index][trial]})
            for result, right in zip(results, expected[index][trial], strict=True):
                if result.tobytes() != right.tobytes():
                    wrong.append(index)

    threads_ = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads_:
        thread.start()
    for thread in threads_:
        thread.join(120)
    assert not wrong


def test_importing_is_light():
    """Neither onnxruntime, nor onnx's evaluator, nor anything else that only some models need."""
    heavy = ("onnxruntime", "onnx.reference", "networkx", "threadpoolctl")
    code = f"import sys, ngine_ref; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("shape", [(1, 2048, 1000), (200, 3000, 33)])
def test_bits_do_not_depend_on_the_number_of_threads(shape: tuple[int, int, int]):
    """BLAS on several threads splits these sums, and then rounds them differently."""
    rows, depth, columns = shape
    rng = np.random.default_rng(0)
    given = parse(f"g (float[{rows}, {depth}] x) => (float[{rows}, {columns}] y) {{ y = MatMul(x, w) }}")
    weights = rng.standard_normal((depth, columns)).astype(np.float32)
    given.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    x = rng.standard_normal((rows, depth)).astype(np.float32)
    [alone] = InferenceSession(given, SessionOptions(threads=1)).run(None, {"x": x})
    [shared] = InferenceSession(given).run(None, {"x": x})
    assert alone.tobytes() == shared.tobytes()


@pytest.mark.parametrize("source", [3, bytearray(b"x"), None])
def test_what_is_no_model_by_its_type(source: object):
    with pytest.raises(ModelError, match=f"not a {type(source).__name__}"):
        InferenceSession(source)  # type: ignore[arg-type]  # that is the test


def test_a_path_that_is_none():
    with pytest.raises(ModelError, match="is no path"):
        InferenceSession("a\0b.onnx")


@pytest.mark.parametrize(
    ("names", "feeds", "sentence"),
    [
        ("y", FEEDS, r"write \['y'\]"),
        ([["y"]], FEEDS, "no value"),
        (None, None, "a dict, but got a NoneType"),
        (None, [X], "a dict, but got a list"),
    ],
)
def test_a_run_is_asked_for_by_names(names: Any, feeds: Any, sentence: str):
    with pytest.raises(FeedError, match=sentence):
        InferenceSession(model()).run(names, feeds)


def test_an_operator_takes_arrays():
    with pytest.raises(OperatorError, match="input 0 is a list"):
        get("Relu")([[1.0]])  # type: ignore[list-item]  # that is the test


def test_results_may_be_written_to():
    """Nothing that a run hands out is a weight, a feed, a folded constant, or what the next run hands out."""
    text = """g (float[2] x) => (float[2] y, float[2] w, float[1, 2] v, float[2] x2) <float[2] w = {1, 2}> {
      y = Add(x, w)
      i = Constant <value: tensor = int64[2] {1, 2}> ()
      v = Reshape(w, i)
      x2 = Identity(x)
    }"""
    session = InferenceSession(parse(text))
    x = np.array([3, 4], np.float32)
    for _ in range(3):
        results = session.run(None, {"x": x})
        for got, expected in zip(results, ([4, 6], [1, 2], [[1, 2]], [3, 4]), strict=True):
            np.testing.assert_array_equal(got, expected)
        for got in results:
            got[...] = np.nan
    np.testing.assert_array_equal(x, [3, 4])


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        ("seq(float[2])", {"a": 1}, "is a seq.tensor.float.., but was fed a dict"),
        ("seq(float[2])", X, "but was fed a ndarray"),
        ("seq(float[2])", [X, X.astype(np.float64)], "but was fed an array of float64"),
        ("seq(float[2])", ["a"], "but was fed a str"),
        ("optional(float[2])", X[0, :2].astype(np.int64), "but was fed an array of int64"),
        ("optional(float[2])", X, "rank 1"),
        ("optional(seq(float[2]))", [1.0], "but was fed a float"),
    ],
)
def test_what_sequences_and_optionals_hold_is_checked(kind: str, value: Any, sentence: str):
    session = InferenceSession(parse(f"g ({kind} x) => ({kind} y) {{ y = Identity(x) }}"))
    with pytest.raises(FeedError, match=sentence):
        session.run(None, {"x": value})


def test_items_of_a_sequence_have_shapes_of_their_own():
    session = InferenceSession(parse("g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity(x) }"))
    items = [np.ones(2, np.float32), np.ones((3, 1), np.float32)]
    ((first, second),) = session.run(None, {"x": items})
    assert (first.shape, second.shape) == ((2,), (3, 1))
    assert not np.shares_memory(first, items[0])


def test_an_identity_of_nothing_is_refused():
    given = parse("g (float[2] x) => (float[2] y) { y = Identity(x) }")
    given.graph.node[0].input[0] = ""
    with pytest.raises(OperatorError, match="needs its input 'input', which is absent"):
        InferenceSession(given).run(None, {"x": np.ones(2, np.float32)})
