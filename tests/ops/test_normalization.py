"""BatchNormalization in its five versions."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.one_node import check_against_onnxruntime
from support.sweeps import sweep

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.blocks import BLOCK
from ngine_ref.registry import Array, get


def batch(shape: tuple[int, ...], seed: int = 0, own: tuple[int, ...] | None = None) -> list[Array]:
    """X, scale, B, mean and var, with a variance that is not negative."""
    rng = np.random.default_rng(seed)
    parameters = rng.normal(size=(4, *(own or shape[1:2])))
    parameters[3] = np.abs(parameters[3])
    return [array.astype(np.float32) for array in (rng.normal(size=shape) * 3 + 1, *parameters)]


def normalized(x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float = 1e-5) -> Array:
    """The definition, in float64, channel by channel."""
    x, scale, bias, mean, var = (array.astype(np.float64) for array in (x, scale, bias, mean, var))
    along = (-1, *(1,) * (x.ndim - 2))
    scale, bias, mean, var = (array.reshape(along) for array in (scale, bias, mean, var))
    return (x - mean) / np.sqrt(var + epsilon) * scale + bias


@sweep(
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(0, 1000),
    st.sampled_from((1e-5, 1e-2)),
    st.sampled_from((7, 9, 14, 15)),
    examples=100,
)
def test_inference_against_onnxruntime(start, rest, seed, epsilon, opset):
    x = batch((*start, *rest), seed)
    check_against_onnxruntime("BatchNormalization", x, {"epsilon": epsilon}, opset=opset, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, 3), (0, 3, 4), (2, 3, 0), (2, 5, 70, 90)])
def test_inference_against_the_definition(shape: tuple[int, ...]):
    inputs = batch(shape)
    expected = normalized(*inputs).astype(np.float32)
    assert_same(get("BatchNormalization")(inputs)[0], expected, rtol=1e-5, atol=1e-5)
    assert shape[2:] != (70, 90) or inputs[0].size > 2 * BLOCK


def test_a_large_mean_costs_no_precision():
    mean, x = np.float32([1e6]), np.float32([[1e6 + 0.5], [1e6 - 0.25]])
    one, nought = np.float32([1]), np.float32([0])
    assert get("BatchNormalization")([x, one, nought, mean, one], {"epsilon": 0.0})[0].tolist() == [[0.5], [-0.25]]


def test_one_axis_is_one_channel():
    one = np.float32([2])
    assert get("BatchNormalization")([np.float32([1, 2, 3]), one, one, one, one], {"epsilon": 0.0})[0] == pytest.approx(
        (np.float32([1, 2, 3]) - 2) / np.sqrt(2) * 2 + 2
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(dtype):
    ulp = float(ml_dtypes.finfo(dtype).eps)  # float32 and float64 may lie on either side of a tie
    x, *parameters = batch((2, 3, 4))
    narrow = [array.astype(dtype) for array in (x, *parameters)]
    got = get("BatchNormalization")(narrow)[0]
    assert_same(got, normalized(*narrow).astype(np.float32).astype(dtype), rtol=ulp)
    mixed = get("BatchNormalization")([x.astype(dtype), *parameters])[0]
    assert_same(mixed, normalized(x.astype(dtype), *parameters).astype(np.float32).astype(dtype), rtol=ulp)


@pytest.mark.parametrize("opset", [14, 15])
def test_training_gives_running_statistics(opset: int):
    x, scale, bias, mean, var = batch((4, 3, 5, 2))
    attributes = {"training_mode": 1, "momentum": 0.7}
    y, running_mean, running_var = get("BatchNormalization")(
        [x, scale, bias, mean, var], attributes, opset=opset, output_count=3
    )
    current, spread = x.mean((0, 2, 3), np.float64), x.var((0, 2, 3), np.float64)
    assert_same(y, normalized(x, scale, bias, current, spread).astype(np.float32), rtol=1e-4, atol=1e-4)
    assert_same(running_mean, (mean * 0.7 + current * 0.3).astype(np.float32), rtol=1e-5, atol=1e-5)
    assert_same(running_var, (var * 0.7 + spread * 0.3).astype(np.float32), rtol=1e-5, atol=1e-5)


def test_training_in_float16_does_not_overflow():
    x = np.float16([[300.0], [-300.0], [300.0], [-300.0]])
    one, nought = np.float16([1]), np.float16([0])
    y, _, var = get("BatchNormalization")([x, one, nought, nought, one], {"training_mode": 1}, output_count=3)
    assert y.tolist() == [[1], [-1], [1], [-1]]
    assert var.dtype == np.float16
    assert var[0] == np.float16(0.9 + 0.1 * 90000)


def test_more_outputs_mean_training_before_opset_14():
    inputs = batch((4, 3, 5))
    outputs = get("BatchNormalization")(inputs, opset=9, output_count=5)
    x = inputs[0]
    assert_same(outputs[3], x.mean((0, 2), np.float64).astype(np.float32), rtol=1e-5, atol=1e-6)
    assert_same(outputs[4], x.var((0, 2), np.float64).astype(np.float32), rtol=1e-5, atol=1e-6)
    assert_same(outputs[1], inputs[3] * np.float32(0.9) + outputs[3] * np.float32(0.1), rtol=1e-5, atol=1e-6)


def test_parameters_for_every_position_in_opset_7():
    x, scale, bias, mean, var = batch((2, 3, 4), own=(3, 4))
    got = get("BatchNormalization")([x, scale, bias, mean, var], {"spatial": 0}, opset=7)[0]
    assert_same(got, (x - mean) / np.sqrt(var + np.float32(1e-5)) * scale + bias, rtol=1e-5, atol=1e-5)


def test_test_mode_is_an_attribute_in_opset_6():
    inputs = batch((4, 3, 5))
    tested = get("BatchNormalization")(inputs, {"is_test": 1}, opset=6)[0]
    assert_same(tested, get("BatchNormalization")(inputs)[0])
    trained = get("BatchNormalization")(inputs, opset=6)[0]
    assert_same(trained, get("BatchNormalization")(inputs, {"training_mode": 1})[0])


def test_what_does_not_fit_is_refused():
    x, scale, bias, mean, var = batch((2, 3, 4))
    with pytest.raises(ShapeError, match=r"needs mean of shape \(3,\), got \(2,\)"):
        get("BatchNormalization")([x, scale, bias, mean[:2], var])
    with pytest.raises(OperatorError, match="training_mode=0 has no 3 outputs"):
        get("BatchNormalization")([x, scale, bias, mean, var], output_count=3)
    with pytest.raises(OperatorError, match="no attribute 'spatial'"):
        get("BatchNormalization")([x, scale, bias, mean, var], {"spatial": 0})
    with pytest.raises(ShapeError, match="got a scalar"):
        get("BatchNormalization")([np.float32(1).reshape(()), scale, bias, mean, var])
