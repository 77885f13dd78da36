"""Add, Sub, Mul, Div and Equal."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.one_node import check_against_onnxruntime
from support.strategies import FLOATS, INTEGERS, arrays, broadcastable
from support.sweeps import sweep

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.registry import get

ARITHMETIC = ("Add", "Sub", "Mul")


def compare(data: st.DataObject, op_type: str, dtype: type[np.generic]) -> None:
    a, b = data.draw(broadcastable(2))
    check_against_onnxruntime(op_type, [data.draw(arrays(a, dtype)), data.draw(arrays(b, dtype))])


@sweep(st.data(), st.sampled_from(ARITHMETIC), st.sampled_from((*FLOATS, *INTEGERS)), examples=150)
def test_arithmetic_against_onnxruntime(data: st.DataObject, op_type: str, dtype: type[np.generic]):
    compare(data, op_type, dtype)


@sweep(st.data(), st.sampled_from(FLOATS), examples=60)
def test_division_of_floats_against_onnxruntime(data: st.DataObject, dtype: type[np.generic]):
    compare(data, "Div", dtype)


@sweep(st.data(), st.sampled_from((np.int32, np.int64, np.uint8)), examples=60)
def test_division_of_integers_against_onnxruntime(data: st.DataObject, dtype: type[np.generic]):
    a, b = data.draw(broadcastable(2))
    divisor = data.draw(arrays(b, dtype))
    divisor[divisor == 0] = 3
    check_against_onnxruntime("Div", [data.draw(arrays(a, dtype)), divisor])


@sweep(st.data(), st.sampled_from((np.float32, np.float64, np.int32, np.int64, np.bool_)), examples=100)
def test_equal_against_onnxruntime(data: st.DataObject, dtype: type[np.generic]):
    a, b = data.draw(broadcastable(2))
    left, right = data.draw(arrays(a, dtype)), data.draw(arrays(b, dtype))
    if dtype != np.bool_:  # few different values, so that some are equal
        with np.errstate(invalid="ignore"):
            left, right = (np.asarray(side % dtype(3), dtype) for side in (left, right))
    check_against_onnxruntime("Equal", [left, right])


def test_integers_wrap():
    large = np.array([2**31 - 1, -(2**31)], np.int32)
    assert get("Add")([large, np.int32([1, -1])])[0].tolist() == [-(2**31), 2**31 - 1]
    assert get("Mul")([np.array(200, np.uint8), np.array(2, np.uint8)])[0] == 144
    assert get("Sub")([np.array(0, np.uint8), np.array(1, np.uint8)])[0] == 255


def test_integers_divide_towards_zero():
    quotient = get("Div")([np.int32([7, -7, 7, -7, 6, -(2**31)]), np.int32([2, 2, -2, -2, 3, -1])])[0]
    assert quotient.tolist() == [3, -3, -3, 3, 2, -(2**31)]


def test_no_broadcast_of_bfloat16_widens_it():
    a, b = np.array([1.5, np.nan], ml_dtypes.bfloat16), np.array(0.01, ml_dtypes.bfloat16)
    assert_same(get("Add")([a, b])[0], np.array([1.5078125, np.nan], ml_dtypes.bfloat16))


def test_equal_compares_text_and_holds_nan_equal_to_nothing():
    assert get("Equal")([np.array(["a", "b"], object), np.array("a", object)])[0].tolist() == [True, False]
    assert get("Equal")([np.float32([np.nan, 0.0]), np.float32([np.nan, -0.0])])[0].tolist() == [False, True]


def test_rank_0_and_zero_size():
    assert get("Add")([np.float32(1).reshape(()), np.float32(2).reshape(())])[0].shape == ()
    assert get("Add")([np.zeros((0, 3), np.float32), np.zeros((1, 3), np.float32)])[0].shape == (0, 3)


@pytest.mark.parametrize("op_type", [*ARITHMETIC, "Div", "Equal"])
def test_shapes_that_do_not_fit_are_named(op_type: str):
    with pytest.raises(ShapeError, match=rf"{op_type}.*\(2, 3\) and \(2,\)"):
        get(op_type)([np.zeros((2, 3), np.float32), np.zeros(2, np.float32)])


def test_mixed_and_foreign_element_types_are_refused():
    with pytest.raises(OperatorError, match="one element type, got float and double"):
        get("Add")([np.zeros(2, np.float32), np.zeros(2, np.float64)])
    with pytest.raises(OperatorError, match="takes no bool"):
        get("Mul")([np.zeros(2, bool), np.zeros(2, bool)])
    with pytest.raises(OperatorError, match="no attribute 'axis'"):
        get("Add")([np.zeros(2, np.float32), np.zeros(2, np.float32)], {"axis": 0})


def test_broadcast_before_opset_7():
    a, b = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.arange(3, dtype=np.float32)
    aligned = get("Add")([a, b], {"broadcast": 1, "axis": 1}, opset=6)[0]
    assert_same(aligned, a + b[:, None])
    suffix = get("Add")([a, a[0]], {"broadcast": 1}, opset=6)[0]
    assert_same(suffix, a + a[0])
    with pytest.raises(ShapeError, match="unless broadcast=1"):
        get("Add")([a, b], {}, opset=6)
    with pytest.raises(ShapeError, match="from axis 2"):
        get("Add")([a, b], {"broadcast": 1}, opset=6)
