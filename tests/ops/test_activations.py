"""Relu, LeakyRelu, PRelu, HardSigmoid, HardSwish and Clip."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.one_node import check_against_onnxruntime
from support.strategies import FLOATS, arrays, broadcastable, shapes
from support.sweeps import sweep

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.blocks import BLOCK
from ngine_ref.ops.activations import leaky_relu_into, prelu_into
from ngine_ref.registry import Array, get

ODD = np.array([-np.inf, -2.0, -0.0, 0.0, 3.0, np.inf, np.nan])


def sloped(x: Array, slope: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(x < 0, slope * x, x)


@sweep(st.data(), shapes, st.sampled_from((*FLOATS, np.int8, np.int32)), examples=60)
def test_relu_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], dtype: type[np.generic]):
    check_against_onnxruntime("Relu", [data.draw(arrays(shape, dtype))])


@sweep(st.data(), shapes, st.sampled_from((-2.0, -0.3, 0.2, 1.0, 1.5)), st.sampled_from((6, 16, 21)), examples=100)
def test_leaky_relu_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], alpha: float, opset: int):
    check_against_onnxruntime("LeakyRelu", [data.draw(arrays(shape, np.float32))], {"alpha": alpha}, opset=opset)


@sweep(st.data(), st.sampled_from((9, 16)), examples=150)
def test_prelu_against_onnxruntime(data: st.DataObject, opset: int):
    x, slope = data.draw(broadcastable(2))
    x = np.broadcast_shapes(x, slope)
    values = [data.draw(arrays(x, np.float32)), data.draw(arrays(slope, np.float32, special=False))]
    check_against_onnxruntime("PRelu", values, opset=opset)


@sweep(
    st.data(),
    shapes,
    st.sampled_from((*FLOATS, np.int8, np.int32, np.uint64)),
    st.booleans(),
    st.booleans(),
    examples=100,
)
def test_clip_against_onnxruntime(data, shape, dtype, has_low, has_high):
    bounds = [data.draw(arrays((), dtype, special=False)) if given else None for given in (has_low, has_high)]
    check_against_onnxruntime("Clip", [data.draw(arrays(shape, dtype)), *bounds])


@sweep(st.data(), shapes, st.sampled_from((0.2, -0.7)), st.sampled_from((0.5, 0.1)), examples=60)
def test_hard_sigmoid_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], alpha: float, beta: float):
    x = data.draw(arrays(shape, np.float32))
    check_against_onnxruntime("HardSigmoid", [x], {"alpha": alpha, "beta": beta}, rtol=1e-6, atol=1e-6)


@sweep(st.data(), shapes, examples=40)
def test_hard_swish_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...]):
    x = data.draw(arrays(shape, np.float32, special=False))
    check_against_onnxruntime("HardSwish", [x], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_hard_activations_of_every_float(dtype):
    x = np.linspace(-6, 6, 41).astype(dtype)
    wide = x.astype(np.float64)
    hard = np.clip(wide * np.float32(0.2) + 0.5, 0, 1)
    swish = wide * np.clip(wide * np.float32(1 / 6) + 0.5, 0, 1)
    for op_type, exact in (("HardSigmoid", hard), ("HardSwish", swish)):
        got = get(op_type)([x])[0]
        assert_same(got, exact.astype(dtype), rtol=float(ml_dtypes.finfo(dtype).eps))
        assert np.isnan(get(op_type)([np.array([np.nan], dtype)])[0].astype(float)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("slope", [0.0, 0.25, 1.0, 2.0, -0.5, -3.0])
def test_odd_numbers_through_every_slope(dtype, slope: float):
    x = ODD.astype(dtype)
    expected = sloped(x, np.asarray(slope, dtype)).astype(dtype)
    assert_same(get("LeakyRelu")([x], {"alpha": slope})[0], expected)
    assert_same(get("PRelu")([x, np.asarray([slope], dtype)])[0], expected)


def test_infinite_and_missing_slopes_leave_what_is_not_negative():
    assert get("PRelu")([np.float32([0, 2, -1]), np.float32([np.inf])])[0].tolist() == [0, 2, -np.inf]
    assert get("PRelu")([np.float32([0, 2]), np.float32([np.nan])])[0].tolist() == [0, 2]


def test_integer_slopes_wrap():
    assert get("PRelu")([np.int32([-(2**30), 5]), np.int32([3])])[0].tolist() == [2**30, 5]
    assert get("PRelu")([np.int32([-(2**30), 5]), np.int32([-2])])[0].tolist() == [-(2**31), 5]
    assert get("PRelu")([np.int64([-7, 5]), np.int64([-2])])[0].tolist() == [14, 5]
    assert get("PRelu")([np.uint32([7]), np.uint32([2])])[0].tolist() == [7]


def test_slopes_on_both_sides_of_one_in_one_tensor():
    x = np.float32([[-1, 2], [-3, 4]])
    assert get("PRelu")([x, np.float32([[3.0], [-0.5]])])[0].tolist() == [[-3, 2], [1.5, 4]]


def test_alpha_is_rounded_as_a_model_stores_it():
    assert get("LeakyRelu")([np.float64([-1.0])], {"alpha": 0.1})[0][0] == -float(np.float32(0.1))
    assert get("LeakyRelu")([np.float64([-1.0])])[0][0] == -float(np.float32(0.01))
    assert get("LeakyRelu")([np.float16([-3.0])], {"alpha": 0.2})[0][0] == np.float16(0.2) * np.float16(-3.0)


@pytest.mark.parametrize("slope", [0.2, -0.7, 1.5])
def test_large_arrays_are_covered_once_in_place_and_elsewhere(slope: float):
    x = np.random.default_rng(1).normal(size=(2, 5, 97, 61)).astype(np.float32)
    assert x.size > 2 * BLOCK
    expected = sloped(x, np.float32(slope))
    out = np.empty_like(x)
    leaky_relu_into(x, slope, out)
    assert_same(out, expected)
    joint = np.zeros((2, 9, 97, 61), np.float32)
    leaky_relu_into(x, slope, joint[:, 4:])
    assert_same(joint[:, 4:], expected)
    assert not joint[:, :4].any()
    leaky_relu_into(x, slope, x)
    assert_same(x, expected)


def test_slopes_per_channel_go_with_their_blocks():
    x = np.random.default_rng(2).normal(size=(2, 7, 90, 80)).astype(np.float32)
    slope = np.linspace(-1, 2, 7, dtype=np.float32).reshape(7, 1, 1)
    out = np.empty_like(x)
    prelu_into(x, slope, out)
    assert_same(out, sloped(x, slope))


def test_a_slope_that_would_grow_its_input_is_refused():
    with pytest.raises(ShapeError, match=r"slope of shape \(3,\) to \(1, 3, 1, 1\)"):
        get("PRelu")([np.zeros((1, 3, 1, 1), np.float32), np.zeros(3, np.float32)])
    with pytest.raises(ShapeError, match="without growing it"):
        get("PRelu")([np.zeros(3, np.float32), np.zeros((1, 3), np.float32)])


def test_prelu_before_opset_7_has_slopes_per_channel():
    x = -np.ones((1, 2, 3), np.float32)
    assert get("PRelu")([x, np.float32([2, 3])], opset=6)[0].tolist() == [[[-2] * 3, [-3] * 3]]
    assert get("PRelu")([x, np.float32([2])], opset=6)[0].tolist() == [[[-2] * 3] * 2]
    with pytest.raises(ShapeError, match="one a channel"):
        get("PRelu")([x, np.float32([1, 2, 3])], opset=6)


def test_clip_with_crossed_absent_and_odd_bounds():
    x = np.float32([-5, 0, 5, np.nan, np.inf])
    assert get("Clip")([x, np.float32(2), np.float32(1)])[0].tolist()[:3] == [1, 1, 1]
    largest = np.finfo(np.float32).max
    assert_same(get("Clip")([x])[0], np.float32([-5, 0, 5, np.nan, largest]))
    assert_same(get("Clip")([-x, None, np.float32(1)])[0], np.float32([1, 0, -5, np.nan, -largest]))
    assert_same(get("Clip")([x, np.float32([0])])[0], np.float32([0, 0, 5, np.nan, largest]))
    assert_same(get("Clip")([np.int32([-5, 5]), np.int32(0)])[0], np.int32([0, 5]))
    with pytest.raises(ShapeError, match=r"scalar as its max, got the shape \(2,\)"):
        get("Clip")([x, None, np.zeros(2, np.float32)])


def test_clip_by_attributes():
    x = np.float32([-5, 0.5, 5])
    assert get("Clip")([x], {"min": 0.0, "max": 1.0}, opset=6)[0].tolist() == [0, 0.5, 1]
    assert get("Clip")([x], {"max": 1.0}, opset=6)[0].tolist() == [-5, 0.5, 1]
    assert get("Clip")([x], opset=10)[0].tolist() == x.tolist()
    with pytest.raises(OperatorError, match="at most 1 inputs"):
        get("Clip")([x, np.float32(0)], opset=6)
    with pytest.raises(OperatorError, match="Clip-13 has no attribute 'max'"):
        get("Clip")([x], {"max": 1.0})
