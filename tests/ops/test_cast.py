"""Cast between every pair of element types."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.one_node import check_against_onnxruntime, check_every_use
from support.strategies import FLOATS, INTEGERS, arrays, shapes
from support.sweeps import sweep

from ngine_ref.errors import OperatorError
from ngine_ref.numerics.dtypes import dtype_of, element_type_of, largest
from ngine_ref.registry import Array, Call, TensorSpec, find, get

T = onnx.TensorProto
FLOAT8 = (T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ)
EVERY_TYPE = [number for number in T.DataType.values() if number not in (T.UNDEFINED, T.COMPLEX64, T.COMPLEX128)]


def cast(x: Array, to: int, **attributes: object) -> Array:
    return get("Cast")([x], {"to": to, **attributes})[0]


@sweep(
    st.data(),
    shapes,
    st.sampled_from((*FLOATS, *INTEGERS, np.bool_)),
    st.sampled_from((*FLOATS, *INTEGERS, np.bool_)),
    examples=150,
)
def test_against_onnxruntime(data, shape, source, target):
    into_integer = np.dtype(source).kind == "f" and np.dtype(target).kind in "iu"
    x = data.draw(arrays(shape, source, special=not into_integer))
    if into_integer:  # what is out of range is undefined
        x = np.asarray(np.clip(np.abs(x), 0, 100))
    check_against_onnxruntime("Cast", [x], {"to": element_type_of(np.dtype(target))})


@sweep(st.data(), shapes, st.sampled_from(FLOAT8), st.booleans(), examples=60)
def test_float8_against_the_table(data: st.DataObject, shape: tuple[int, ...], to: int, saturate: bool):
    x = data.draw(arrays(shape, np.float32)) * np.float32(data.draw(st.sampled_from((0.001, 1.0, 100.0, 1e4))))
    dtype = dtype_of(to)
    actual = cast(x, to, saturate=int(saturate)).astype(np.float32).reshape(-1)
    for value, got in zip(x.reshape(-1).tolist(), actual.tolist(), strict=True):
        beyond = abs(value) >= overflow_of(dtype)
        if math.isnan(value):
            assert math.isnan(got)
        elif beyond and saturate:
            assert got == math.copysign(largest(dtype), value)
        elif beyond and to == T.FLOAT8E5M2:
            assert got == math.copysign(math.inf, value)
        elif beyond:
            assert math.isnan(got)
        else:
            assert got == nearest(value, dtype)


def overflow_of(dtype: np.dtype) -> float:
    """The smallest number that rounds beyond the largest one: half a step above it (a tie goes to the even one)."""
    top = largest(dtype)
    finite = finite_values(dtype)
    step = top - finite[-2]
    tie = top + step / 2
    tie_is_beyond = finite.index(top) % 2 == 1
    return tie if tie_is_beyond else math.nextafter(tie, math.inf)


def finite_values(dtype: np.dtype) -> list[float]:
    """Every finite value of a type of one byte that is not negative, in ascending order."""
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    return sorted({abs(value) for value in values.tolist() if math.isfinite(value)})


def nearest(value: float, dtype: np.dtype) -> float:
    """The value rounded to nearest, ties to the value of even index, by exact arithmetic."""
    values = finite_values(dtype)
    index = min(range(len(values)), key=lambda i: (abs(Fraction(values[i]) - abs(Fraction(value))), i % 2))
    return math.copysign(values[index], value)


def test_special_numbers_and_float8():
    x = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30])
    for to in FLOAT8:
        top = largest(dtype_of(to))
        assert_same(cast(x, to).astype(np.float32), np.float32([top, -top, np.nan, top, -top]))
        kept = np.inf if to == T.FLOAT8E5M2 else np.nan
        assert_same(cast(x, to, saturate=0).astype(np.float32), np.float32([kept, -kept, np.nan, kept, -kept]))


def test_float8_e8m0_rounds_to_powers_of_two():
    x = np.float32([1.0, 1.1, 1.5, 1.9, 0.75, 3e38, 0.0, np.inf, np.nan, -1.1])
    up = [1, 2, 2, 2, 1, 2.0**127, 2.0**-127, 2.0**127, np.nan, 2]
    down = [1, 1, 1, 1, 0.5, 2.0**127, 2.0**-127, 2.0**127, np.nan, 1]
    nearest_power = [1, 1, 2, 2, 1, 2.0**127, 2.0**-127, 2.0**127, np.nan, 1]
    for mode, expected in (("up", up), ("down", down), ("nearest", nearest_power)):
        assert_same(cast(x, T.FLOAT8E8M0, round_mode=mode).astype(np.float64), np.float64(expected))
    lost = cast(x, T.FLOAT8E8M0, round_mode="nearest", saturate=0).astype(np.float64)
    assert_same(lost, np.float64([1, 1, 2, 2, 1, np.nan, np.nan, np.nan, np.nan, 1]))
    with pytest.raises(OperatorError, match="round_mode"):
        cast(x, T.FLOAT8E8M0, round_mode="sideways")


@pytest.mark.parametrize("to", [T.BFLOAT16, T.FLOAT16, *FLOAT8])
def test_float64_is_rounded_once(to: int):
    step = float(ml_dtypes.finfo(dtype_of(to)).eps)
    x = np.array([1 + step / 2, 1 + step / 2 + 1e-12, 1 + step / 2 - 1e-12, -1 - 1.5 * step + 1e-12])
    assert_same(cast(x, to).astype(np.float64), np.float64([1, 1 + step, 1, -1 - step]))


def test_wide_integers_are_rounded_once():
    assert cast(np.int64([2**24 + 2**16 + 1]), T.BFLOAT16).astype(np.float64).tolist() == [2**24 + 2**17]


@pytest.mark.parametrize("source", EVERY_TYPE)
def test_small_numbers_survive_every_pair(source: int):
    for target in EVERY_TYPE:
        values = [1.0, 1.0] if T.FLOAT8E8M0 in (source, target) else [1.0, 0.0]  # that type has no 0
        x = cast(np.float32(values), source)
        got = cast(x, target)
        assert got.dtype == dtype_of(target)
        if target == T.STRING:
            assert got.tolist() == [f"{value:.0f}" for value in values]
        else:
            assert got.astype(np.float64).tolist() == values
        check_every_use("Cast", [x], {"to": target})


def test_integers_wrap_and_floats_overflow():
    assert cast(np.int16([200, -129, 256]), T.INT8).tolist() == [-56, 127, 0]
    assert cast(np.int32([-200, 300, 7, 15]), T.INT4).astype(int).tolist() == [-8, -4, 7, -1]
    assert cast(np.int32([-1, 17]), T.UINT4).astype(int).tolist() == [15, 1]
    assert cast(np.float32([1e6, -1e6]), T.FLOAT16).tolist() == [np.inf, -np.inf]
    assert cast(np.int32([10**6]), T.FLOAT16).tolist() == [np.inf]
    assert cast(np.float32([-2.7, 2.7]), T.INT32).tolist() == [-2, 2]


def test_truth():
    assert cast(np.float32([0.0, -0.0, 0.3, np.nan, np.inf]), T.BOOL).tolist() == [False, False, True, True, True]
    assert cast(np.array([True, False]), T.FLOAT).tolist() == [1.0, 0.0]


def test_numbers_become_text():
    assert cast(np.float32([314.15926, 1, -0.5, 1e20]), T.STRING).tolist() == ["314.15927", "1", "-0.5", "1e+20"]
    assert cast(np.float64([np.nan, np.inf, -np.inf, 0.1]), T.STRING).tolist() == ["NaN", "INF", "-INF", "0.1"]
    assert cast(np.array([True, False]), T.STRING).tolist() == ["1", "0"]
    assert cast(np.int64([-(2**63)]), T.STRING).tolist() == ["-9223372036854775808"]
    assert cast(np.array(2, np.int8), T.STRING).tolist() == "2"


def test_text_becomes_numbers():
    words = np.array(["1e-5", "+INF", "inf", "-Inf", "nAN", "3.14"], object)
    assert_same(cast(words, T.DOUBLE), np.array([1e-5, np.inf, np.inf, -np.inf, np.nan, 3.14]))
    assert cast(np.array(["9223372036854775807", "-1"], object), T.INT64).tolist() == [2**63 - 1, -1]
    assert cast(np.array(["100.5", "300", "-1"], object), T.UINT8).tolist() == [100, 44, 255]
    assert cast(np.array(["0", "2"], object), T.BOOL).tolist() == [False, True]
    assert cast(np.array(["1000", "1"], object), T.FLOAT8E4M3FN).astype(float).tolist() == [448, 1]
    assert cast(np.array(["a"], object), T.STRING).tolist() == ["a"]
    for to in (T.FLOAT, T.INT32):
        with pytest.raises(OperatorError, match="'Hello'"):
            cast(np.array(["Hello"], object), to)
    with pytest.raises(OperatorError, match="'inf'"):
        cast(np.array(["inf"], object), T.INT32)


def test_a_cast_to_the_same_type_is_a_view():
    x = np.zeros(3, np.float32)
    operator = find("Cast")
    assert operator is not None
    kernel = operator.bind(Call("Cast", [TensorSpec(x.shape, x.dtype)], {"to": T.FLOAT}))
    assert kernel.view is not None
    assert np.shares_memory(kernel.view(x), x)


def test_unknown_types_are_refused():
    with pytest.raises(OperatorError, match="99 is no element type"):
        cast(np.zeros(1, np.float32), 99)
    with pytest.raises(OperatorError, match="needs its attribute 'to'"):
        get("Cast")([np.zeros(1, np.float32)])
    with pytest.raises(OperatorError, match="Cast-13 has no attribute 'saturate'"):
        get("Cast")([np.zeros(1, np.float32)], {"to": T.FLOAT16, "saturate": 1}, opset=13)


def test_names_of_types_before_opset_6():
    assert get("Cast")([np.float32([1.5])], {"to": "INT32"}, opset=5)[0].tolist() == [1]
