"""BatchNormalization folded into the weights before it: what becomes of a model, and its numbers."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.batchnorm_models import CONV, NORM, assert_folds, normed, refused, statistics, weights
from support.text_models import IMAGE, feeds, nodes, random_array, run

import graphopt
from graphopt.errors import ModelError
from graphopt.folding import batchnorm_folding, folded_weights
from graphopt.model_files import model_io
from graphopt.verifying.comparison import compare

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
