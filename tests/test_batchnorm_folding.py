"""BatchNormalization folded into the weights before it: what becomes of a model, its numbers, and every refusal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.text_models import IMAGE, Array, feeds, model, nodes, random_array, run

import graphopt
from graphopt.cli import main
from graphopt.errors import ModelError, VerificationError
from graphopt.folding import batchnorm_folding, folded_weights
from graphopt.ledger import Refusal
from graphopt.model_files import model_io
from graphopt.verifying.comparison import compare

NORM = "BatchNormalization (c, s, o, m, v)"
CONV = f"c = Conv (x, w, b) y = {NORM}"


def statistics(dtype: Any = np.float32, channels: int = 4) -> dict[str, Array]:
    """Scale, offset, mean and variance."""
    arrays = {name: random_array(name, (channels,)) for name in ("s", "o", "m", "v")}
    arrays["v"] = np.abs(arrays["v"]) + np.float32(0.1)
    return {name: array.astype(dtype) for name, array in arrays.items()}


def normed(body: str, constants: Mapping[str, Array] | None = None, **options: Any) -> ModelProto:
    """A model from text, with the usual statistics unless others are given."""
    return model(body, constants={**statistics(), **(constants or {})}, **options)


def weights(source: ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in source.graph.initializer}


def assert_folds(source: ModelProto, *expected: str, rules: str = "extended", cleanups: Any = ()) -> ModelProto:
    """A model becomes these lines, and gives the same numbers in onnxruntime up to rounding."""
    before = source.SerializeToString(deterministic=True)
    result = graphopt.fuse(source, rules=rules, cleanups=cleanups, fold_batchnorm=True)
    assert source.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(result.model, full_check=True)
    assert nodes(result.model) == list(expected)
    assert result.report.changes_values
    assert result.verification is not None
    assert result.verification.ok
    given = feeds(source)
    found = run(result.model, given)
    for name, array in run(source, given).items():
        assert compare(found[name], array).ok, name
    return result.model


def refused(source: ModelProto | Path, **options: Any) -> tuple[int, str, str, str]:
    """Number, name, reason and place of the one refusal of a model in which nothing is folded."""
    result = graphopt.fuse(source, fold_batchnorm=True, **options)
    assert result.report.counts[batchnorm_folding.RULE] == 0
    assert not result.report.changes_values
    assert result.verification is None
    (refusal,) = [one for one in result.report.refusals if one.rule == batchnorm_folding.RULE]
    assert isinstance(refusal, Refusal)
    return refusal.condition, refusal.name, refusal.reason, refusal.at


# What a model becomes.


def test_it_comes_before_the_fusion() -> None:
    source = normed(f"c = Conv (x, w, b) n = {NORM} y = Relu (n)")
    result = assert_folds(source, "y = ai.ngine.ConvRelu (x, n.weight, n.bias)")
    assert weights(result).keys() == {"n.weight", "n.bias"}


def test_the_new_weights_are_rounded_once() -> None:
    w, b = random_array("w", (4, 4, 1, 1)), random_array("b", (4,))
    s, o, m, v = (array.astype(np.float64) for array in statistics().values())
    found = weights(assert_folds(normed(CONV), "y = Conv (x, y.weight, y.bias)"))
    factor = s / np.sqrt(v + np.float64(np.float32(1e-5)))
    np.testing.assert_array_equal(found["y.weight"], (w * factor.reshape(4, 1, 1, 1)).astype(np.float32))
    np.testing.assert_array_equal(found["y.bias"], (b * factor + (o - m * factor)).astype(np.float32))


def test_epsilon_counts() -> None:
    source = normed("c = Conv (x, w) y = BatchNormalization <epsilon: float = 0.5> (c, s, o, m, v)")
    found = weights(assert_folds(source, "y = Conv (x, y.weight, y.bias)"))
    s, _, _, v = (array.astype(np.float64) for array in statistics().values())
    wanted = random_array("w", (4, 4, 1, 1)) * (s / np.sqrt(v + 0.5)).reshape(4, 1, 1, 1)
    np.testing.assert_array_equal(found["y.weight"], wanted.astype(np.float32))


def test_a_convolution_without_bias_gets_one() -> None:
    assert_folds(normed(f"c = Conv (x, w) y = {NORM}"), "y = Conv (x, y.weight, y.bias)")
    assert_folds(normed(f'c = Conv (x, w, "") y = {NORM}'), "y = Conv (x, y.weight, y.bias)")


def test_groups_and_other_attributes_stay() -> None:
    body = f"c = Conv <group: int = 2, pads: ints = [1,1,1,1]> (x, w, b) y = {NORM}"
    source = normed(body, {"w": random_array("grouped", (4, 2, 3, 3))})
    assert_folds(source, "y = Conv <group=2, pads=[1,1,1,1]> (x, y.weight, y.bias)")


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("bias", ["", ", b"])
def test_transposed_convolutions(group: int, bias: str) -> None:
    assert_folds(transposed(group, bias), f"y = ConvTranspose <group={group}> (x, y.weight, y.bias)")


def transposed(group: int, bias: str) -> ModelProto:
    return normed(
        f"c = ConvTranspose <group: int = {group}> (x, w{bias}) y = {NORM}",
        {"w": random_array("transposed", (4, 4 // group, 3, 3))},
    )


@pytest.mark.parametrize("addend", [None, (), (1,), (4,), (1, 4), (2, 1), (2, 4)])
@pytest.mark.parametrize(("transposed", "attributes"), [(0, "alpha: float = 0.5, beta: float = 2.0, "), (1, "")])
def test_gemm(addend: tuple[int, ...] | None, transposed: int, attributes: str) -> None:
    constants = {"w": random_array("gemm", (4, 3) if transposed else (3, 4))}
    if addend is not None:
        constants["b"] = random_array("addend", addend)
    body = f"c = Gemm <{attributes}transB: int = {transposed}> (x, w{', b' if addend is not None else ''}) y = {NORM}"
    source = normed(body, constants, inputs="float[2,3] x", outputs="float[2,4] y")
    shown = f"{'alpha=0.5, beta=2, ' if attributes else ''}transB={transposed}"
    assert_folds(source, f"y = Gemm <{shown}> (x, y.weight, y.bias)")


def test_float16() -> None:
    arrays = {name: random_array(name, shape, np.float16) for name, shape in {"w": (4, 4, 1, 1), "b": (4,)}.items()}
    constants = {**arrays, **statistics(np.float16)}
    source = normed(CONV, constants, inputs="float16[n,4,h,w] x", outputs="float16[n,c,h,w] y")
    found = weights(assert_folds(source, "y = Conv (x, y.weight, y.bias)"))
    assert {array.dtype for array in found.values()} == {np.dtype(np.float16)}


def test_float64() -> None:
    constants = {"w": random_array("gemm", (3, 4), np.float64), **statistics(np.float64)}
    source = normed(f"c = Gemm (x, w) y = {NORM}", constants, inputs="double[2,3] x", outputs="double[2,4] y")
    found = weights(assert_folds(source, "y = Gemm (x, y.weight, y.bias)"))
    assert {array.dtype for array in found.values()} == {np.dtype(np.float64)}


def test_bfloat16_weights() -> None:
    """onnxruntime has no such convolution, so only the weights are looked at."""
    dtype = np.dtype(ml_dtypes.bfloat16)
    arrays = {"w": random_array("w", (4, 4, 1, 1)).astype(dtype), "b": random_array("b", (4,)).astype(dtype)}
    source = normed(
        CONV, {**arrays, **statistics(dtype)}, inputs="bfloat16[n,4,h,w] x", outputs="bfloat16[n,c,h,w] y", opset=22
    )
    folding = batchnorm_folding.fold_batchnorms(model_io.load(source), graphopt.load_rules("ngine"))
    found = weights(folding.model)
    factor, shift = folded_weights.factor_and_shift(*statistics(dtype).values(), float(np.float32(1e-5)))
    assert found["y.weight"].dtype == dtype
    np.testing.assert_array_equal(
        found["y.weight"], (arrays["w"].astype(np.float64) * factor.reshape(4, 1, 1, 1)).astype(dtype)
    )
    np.testing.assert_array_equal(found["y.bias"], (arrays["b"].astype(np.float64) * factor + shift).astype(dtype))


def test_statistics_of_another_precision() -> None:
    constants = {"w": random_array("w", (4, 4, 1, 1), np.float16), "b": random_array("b", (4,), np.float16)}
    source = normed(CONV, constants, inputs="float16[n,4,h,w] x", outputs="float16[n,c,h,w] y")
    found = weights(assert_folds(source, "y = Conv (x, y.weight, y.bias)"))
    assert {array.dtype for array in found.values()} == {np.dtype(np.float16)}


# Weights that others read, and where weights may lie.


def test_shared_weights_stay_while_anybody_reads_them() -> None:
    source = normed(f"c = Conv (x, w, b) n = {NORM} d = Conv (n, w, b) y = Relu (d)")
    result = assert_folds(source, "n = Conv (x, n.weight, n.bias)", "d = Conv (n, w, b)", "y = Relu (d)", rules="ngine")
    assert weights(result).keys() == {"w", "b", "n.weight", "n.bias"}


def test_shared_weights_of_two_that_fold_become_two() -> None:
    body = f"c = Conv (x, w, b) n = {NORM} d = Conv (n, w, b) y = BatchNormalization (d, t, o, m, v)"
    source = normed(body, {"t": random_array("t", (4,))})
    result = assert_folds(source, "n = Conv (x, n.weight, n.bias)", "y = Conv (n, y.weight, y.bias)")
    assert weights(result).keys() == {"n.weight", "n.bias", "y.weight", "y.bias"}
    assert not np.array_equal(weights(result)["n.weight"], weights(result)["y.weight"])


def test_constant_nodes() -> None:
    source = normed(
        "s2 = Constant <value_floats: floats = [1.0, 2.0, 3.0, 4.0]> () c = Conv (x, w, b) "
        "y = BatchNormalization (c, s2, o, m, v)"
    )
    assert_folds(source, "y = Conv (x, y.weight, y.bias)")


def test_a_constant_node_that_others_read_stays() -> None:
    source = normed(
        "s2 = Constant <value_floats: floats = [1.0, 2.0, 3.0, 4.0]> () c = Conv (x, w, b) "
        "y = BatchNormalization (c, s2, o, m, v) z = Identity (s2)",
        outputs="float[n,c,h,w] y, float[4] z",
    )
    assert_folds(
        source,
        "s2 = Constant <value_floats=[1.0,2.0,3.0,4.0]> ()",
        "y = Conv (x, y.weight, y.bias)",
        "z = Identity (s2)",
    )


def test_names_that_are_taken() -> None:
    source = normed(f"c = Conv (x, w, b) n = {NORM} y = Neg (n)")
    source.graph.initializer.append(numpy_helper.from_array(random_array("other", (1,)), "n.weight"))
    assert_folds(source, "n = Conv (x, n.weight_2, n.bias)", "y = Neg (n)")


def test_one_after_another() -> None:
    source = normed(f"c = Conv (x, w, b) n = {NORM} y = BatchNormalization (n, s, o, m, v)")
    result = assert_folds(source, "y = Conv (x, y.weight, y.bias)")
    assert weights(result).keys() == {"y.weight", "y.bias"}


def test_the_oldest_models_list_their_weights_as_inputs() -> None:
    """The new ones need none to be, from IR 4 on; and those that stay must not become what a caller may set."""
    source = normed(CONV, ir=3, opset=9, inputs=IMAGE)
    for tensor in source.graph.initializer:
        source.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    result = assert_folds(source, "y = Conv (x, y.weight, y.bias)")
    assert [value.name for value in result.graph.input] == ["x"]
    assert result.ir_version == 4


def test_inside_a_body_that_captures_its_weights() -> None:
    body = (
        "y = If (k) <then_branch = g1 () => (float[n,c,h,w] t) "
        f"{{ c = Conv (x, w, b) t = {NORM} }}, "
        "else_branch = g2 () => (float[n,c,h,w] e) { e = Relu (x) }>"
    )
    source = normed(body, inputs=f"{IMAGE}, bool k")
    result = graphopt.fuse(source, fold_batchnorm=True)
    (branch,) = [a.g for a in result.model.graph.node[0].attribute if a.name == "then_branch"]
    assert nodes(branch) == ["t = Conv (x, t.weight, t.bias)"]
    assert weights(result.model).keys() == {"t.weight", "t.bias"}
    given = {"x": random_array("x", (2, 4, 5, 6)), "k": np.array(True)}
    assert compare(run(result.model, given)["y"], run(source, given)["y"]).ok


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weights lie in another file."""
    path = tmp_path / "m.onnx"
    onnx.save(normed(CONV), path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_external_weights_are_read_and_become_internal(external: Path) -> None:
    result = graphopt.fuse(external, fold_batchnorm=True)
    assert nodes(result.model) == ["y = Conv (x, y.weight, y.bias)"]
    assert all(tensor.data_location != TensorProto.EXTERNAL for tensor in result.model.graph.initializer)
    given = feeds(normed(CONV))
    assert compare(run(result.model, given)["y"], run(external, given)["y"]).ok


def test_external_weights_of_a_model_from_memory(external: Path) -> None:
    source = onnx.load(external, load_external_data=False)
    reason = "'w' lies in another file, and the model came from memory, not from a folder"
    assert refused(source) == (4, "constants", reason, "w")


def test_a_data_file_that_is_a_link_out_of_the_folder(external: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "m.data"
    external.with_name("m.data").rename(elsewhere)
    external.with_name("m.data").symlink_to(elsewhere)
    with pytest.raises(ModelError, match="is a link that leaves the model's folder"):
        graphopt.fuse(external, fold_batchnorm=True)


# Refusals.


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "c = Relu (x) y = BatchNormalization (c, s, o, m, v)",
            (1, "weighted producer", "'c' is made by Relu 'c', not by a Conv, ConvTranspose or Gemm", "c"),
        ),
        (
            "y = BatchNormalization (x, s, o, m, v)",
            (1, "weighted producer", "'x' is made by no node here", "x"),
        ),
        (
            f"c = Conv (x, w, b) n = {NORM} y = Add (n, c)",
            (2, "sole reader", "'c' is read 2 times: by BatchNormalization 'n' and by Add 'y'", "c"),
        ),
        (
            "c = Conv (x, w, b) y, p, q = BatchNormalization <training_mode: int = 1> (c, s, o, m, v)",
            (3, "inference", "BatchNormalization 'y' computes its statistics when it runs (training_mode)", "y"),
        ),
        (
            "c = Conv (x, w, b) s2 = Abs (s) y = BatchNormalization (c, s2, o, m, v)",
            (4, "constants", "'s2' is computed at run time", "s2"),
        ),
        (
            "k2 = Abs (w) c = Conv (x, k2, b) y = BatchNormalization (c, s, o, m, v)",
            (4, "constants", "'k2' is computed at run time", "k2"),
        ),
    ],
)
def test_refusals(body: str, expected: tuple[int, str, str, str]) -> None:
    assert refused(normed(body)) == expected


def test_statistics_that_it_makes_too() -> None:
    source = normed(
        "c = Conv (x, w, b) y, p, q, r, t = BatchNormalization (c, s, o, m, v) z = Relu (p)",
        outputs="float[n,c,h,w] y, float[4] z",
        opset=13,
    )
    assert refused(source) == (3, "inference", "BatchNormalization 'y' makes its statistics too, as 'p'", "p")


def test_parameters_for_each_position() -> None:
    source = normed(
        "c = Conv (x, w, b) y = BatchNormalization <spatial: int = 0> (c, s, o, m, v)",
        {name: np.ones((4, 5, 6), np.float32) for name in "somv"},
        opset=8,
    )
    reason = "BatchNormalization 'y' has parameters for each position (spatial=0), not for each channel"
    assert refused(source) == (3, "inference", reason, "y")


def test_weights_that_a_caller_may_set() -> None:
    source = normed(CONV, inputs=f"{IMAGE}, float[4] v")
    assert refused(source) == (4, "constants", "'v' is an input of the graph, so a caller may set it", "v")


def test_inside_a_function() -> None:
    header = '<domain: "own", opset_import: ["" : 17]> F (x, w, s, o, m, v) => (y)'
    body = f"{header} {{ c = Conv (x, w) y = {NORM} }}"
    source = normed("y = own.F (x, w, s, o, m, v)", functions=body, imports='"own" : 1')
    reason = "BatchNormalization 'y' stands in a function, which holds no weights"
    assert refused(source) == (4, "constants", reason, "y")


@pytest.mark.parametrize(
    ("constants", "reason", "at"),
    [
        ({"s": np.ones(1, np.float32)}, "'s' has shape [1], not one number for each of 4 channels", "s"),
        ({"b": np.ones(1, np.float32)}, "'b' has shape [1], which fits no 4 channels", "b"),
        ({"w": np.ones((4, 4), np.float32)}, "the weight 'w' has shape [4, 4], which Conv 'c' cannot have", "w"),
        ({"b": np.ones(4, np.float64)}, "'b' has another element type than the weight 'w'", "b"),
        ({"o": np.ones(4, np.int32)}, "'o' is not of a floating-point type that can be folded", "o"),
    ],
)
def test_shapes_and_types_that_fit_not(constants: dict[str, Array], reason: str, at: str) -> None:
    assert refused(normed(CONV, constants)) == (5, "shapes", reason, at)


def test_an_addend_that_counts_for_nothing() -> None:
    source = normed(
        f"c = Gemm <beta: float = 0.0> (x, w, b) y = {NORM}",
        {"w": random_array("gemm", (3, 4))},
        inputs="float[2,3] x",
        outputs="float[2,4] y",
    )
    reason = "Gemm 'c' multiplies its addend by beta 0, so it can take no shift"
    assert refused(source) == (5, "shapes", reason, "c")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_that_would_not_be_finite(dtype: Any) -> None:
    arrays = {"w": np.full((4, 4, 1, 1), 1000, dtype), "b": np.ones(4, dtype), **statistics(dtype)}
    if dtype == np.float32:
        arrays["v"] = np.full(4, -1, dtype)  # the root of a negative number
    else:
        arrays["s"] = np.full(4, 1000, dtype)
    kind = np.dtype(dtype).name.replace("float32", "float")
    source = normed(CONV, arrays, inputs=f"{kind}[n,4,h,w] x", outputs=f"{kind}[n,c,h,w] y")
    reason = f"the new weights of Conv 'c' would not be finite in {np.dtype(dtype)}"
    assert refused(source) == (6, "finite", reason, "c")


# The report, the verification, the command line.


def test_values_that_mean_something_else_are_not_compared() -> None:
    source = normed(f"c = Conv (x, w, b) n = {NORM} y = Neg (n)")
    result = graphopt.fuse(source, fold_batchnorm=True)
    assert result.verification is not None
    assert [value.name for value in result.verification.values] == ["n", "y"]
    assert result.verification.onnxruntime_runs_fused


def test_nothing_to_fold_is_a_certified_fusion() -> None:
    result = graphopt.fuse(normed("c = Conv (x, w, b) y = LeakyRelu (c)"), fold_batchnorm=True)
    assert result.report.counts["ConvLeakyRelu"] == 1
    assert result.report.counts[batchnorm_folding.RULE] == 0
    assert not result.report.changes_values
    assert result.verification is None


def test_without_the_option_nothing_is_folded() -> None:
    report = graphopt.fuse(normed(CONV)).report
    assert batchnorm_folding.RULE not in report.counts
    assert not report.changes_values


def test_the_report_tells_what_was_folded() -> None:
    report = graphopt.fuse(normed(f"c = Conv (x, w, b) n = {NORM} y = Relu (n)"), fold_batchnorm=True).report
    assert report.counts[batchnorm_folding.RULE] == 1
    assert report.fusions[0].replaces == ("c", "n")
    assert (report.nodes_before, report.nodes_after) == (3, 2)
    assert report.ops_before == {"BatchNormalization": 1, "Conv": 1, "Relu": 1}


def break_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets that the mean must be scaled."""

    def wrong(scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float) -> tuple[Array, Array]:
        factor, _ = folded_weights.factor_and_shift(scale, bias, mean, variance, epsilon)
        return factor, bias - mean.astype(np.float64)

    monkeypatch.setattr(batchnorm_folding, "factor_and_shift", wrong)


def test_a_wrong_fold_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    break_the_fold(monkeypatch)
    with pytest.raises(VerificationError, match=r"the first that differs is 'n', made by Conv") as caught:
        graphopt.fuse(normed(f"c = Conv (x, w, b) n = {NORM} y = Neg (n)"), fold_batchnorm=True)
    assert caught.value.result is not None
    assert caught.value.result.verification is not None
    assert not caught.value.result.verification.ok


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(normed(f"c = Conv (x, w, b) n = {NORM} y = Relu (n)"), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["graphopt", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


ARGUMENTS = ("fuse", "m.onnx", "--rules", "extended", "--fold-batchnorm", "--report", "r.json", "--shape", "x:1,4,8,8")


def test_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, *ARGUMENTS) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 BatchNormalization was folded into weights, which changes how numbers are rounded" in shown
    assert "Proven: 1 output is the same expression of the inputs as in the folded model." in shown
    assert "Fed x of shape 1x4x8x8" in shown
    assert "values agree with onnxruntime on the original" in shown
    report = json.loads((folder / "r.json").read_text())
    assert report["changes_values"] is True
    assert report["verification"]["ok"] is True
    assert nodes(onnx.load(folder / "m.fused.onnx")) == ["y = ai.ngine.ConvRelu (x, n.weight, n.bias)"]


def test_the_command_line_shows_what_failed_and_writes_no_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_the_fold(monkeypatch)
    assert command(monkeypatch, *ARGUMENTS) == 1
    captured = capsys.readouterr()
    assert "values differ" in captured.out
    assert "gives other numbers than the original; nothing was written" in captured.err
    assert json.loads((folder / "r.json").read_text())["verification"]["ok"] is False
    assert not (folder / "m.fused.onnx").exists()


def test_explain_tells_of_each_what_became_of_it() -> None:
    source = normed(f"c = Conv (x, w, b) n = {NORM} d = Relu (n) y = BatchNormalization (d, s, o, m, v)")
    explanations, _ = graphopt.explain(source, fold_batchnorm=True)
    assert [(one.anchor, one.outcome, one.sentence) for one in explanations] == [
        ("n", "fused", "it is folded into 'c'"),
        ("y", "refused", "'d' is made by Relu 'd', not by a Conv, ConvTranspose or Gemm"),
    ]
    assert [verdict.holds for verdict in explanations[1].verdicts] == [False, None, None, None, None, None]
    ((one,), _) = graphopt.explain(source, "y", fold_batchnorm=True)
    assert one == explanations[1]


def test_explain_on_the_command_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "explain", "m.onnx", "n", "--rules", "extended", "--fold-batchnorm") == 0
    assert "n as FoldBatchNormalization: fused, it is folded into 'c'" in capsys.readouterr().out
