"""Gemm and MatMul."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.one_node import check_against_onnxruntime
from support.strategies import arrays
from support.sweeps import sweep

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.registry import Array, get

FACTORS = (1.0, 0.0, 0.5, -2.0)


def random(*shape: int, dtype: object = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


@sweep(
    st.data(),
    st.tuples(*[st.integers(0, 6)] * 3),
    st.tuples(st.integers(0, 1), st.integers(0, 1)),
    st.tuples(st.sampled_from(FACTORS), st.sampled_from(FACTORS)),
    st.sampled_from((np.float32, np.float64)),
    st.sampled_from((7, 9, 11, 13)),
    examples=200,
)
def test_gemm_against_onnxruntime(data, sizes, transposed, factors, dtype, opset):
    rows, inner, columns = sizes
    a = (inner, rows) if transposed[0] else (rows, inner)
    b = (columns, inner) if transposed[1] else (inner, columns)
    addends = [(rows, columns), (columns,), (1, columns), (rows, 1), (1,), (1, 1), ()]
    c = data.draw(st.sampled_from([*addends, None] if opset >= 11 else addends))
    inputs = [data.draw(arrays(shape, dtype, special=False)) for shape in (a, b)]
    inputs += [] if c is None else [data.draw(arrays(c, dtype, special=False))]
    attributes = dict(zip(("transA", "transB", "alpha", "beta"), (*transposed, *factors), strict=True))
    # Products of numbers up to about 60, scaled, are thousands: their rounding stays where they cancel.
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    check_against_onnxruntime("Gemm", inputs, attributes, opset=opset, rtol=tolerance, atol=100 * tolerance)


@sweep(st.data(), st.sampled_from((np.float32, np.float64, np.int32, np.int64)), examples=100)
def test_matmul_against_onnxruntime(data: st.DataObject, dtype: type[np.generic]):
    rows, inner, columns = (data.draw(st.integers(1, 5)) for _ in range(3))
    batch = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    a = data.draw(st.sampled_from([(inner,), (rows, inner), (*batch, rows, inner)]))
    b = data.draw(st.sampled_from([(inner,), (inner, columns), (*batch, inner, columns)]))
    inputs = [data.draw(arrays(shape, dtype, special=False)) for shape in (a, b)]
    # Five products of numbers up to about 60 add up to 18,000: their rounding stays where they cancel.
    tolerance = 0.0 if np.dtype(dtype).kind == "i" else 2.0**-24 if dtype == np.float32 else 2.0**-53
    check_against_onnxruntime("MatMul", inputs, rtol=20 * tolerance, atol=5 * 18_000 * tolerance)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_summed_in_float32_and_rounded_once(dtype):
    a, b, c = random(3, 500, dtype=dtype), random(500, 4, dtype=dtype), random(4, dtype=dtype)
    wide = [array.astype(np.float32) for array in (a, b, c)]
    product = wide[0] @ wide[1]
    assert_same(get("MatMul")([a, b])[0], product.astype(dtype))
    gemm = get("Gemm")([a, b, c], {"alpha": 0.5, "beta": 3.0})[0]
    assert_same(gemm, (product * np.float32(0.5) + wide[2] * np.float32(3)).astype(dtype))


def wrapped(value: int) -> int:
    """The int32 that has the value's lowest 32 bits."""
    return (value + 2**31) % 2**32 - 2**31


def test_integers_wrap():
    a, b = np.full((1, 2), 2**30, np.int32), np.full((2, 1), 3, np.int32)
    assert get("MatMul")([a, b])[0].item() == wrapped(6 * 2**30)
    assert get("Gemm")([a, b, np.int32([[5]])], {"alpha": 2.0, "beta": -1.0})[0].item() == wrapped(12 * 2**30 - 5)
    half = get("Gemm")([np.int32([[3]]), np.int32([[-1]]), np.int32([[1]])], {"alpha": 0.5})[0]
    assert half.dtype == np.int32
    assert half.item() == 0  # -1.5 + 1 = -0.5, truncated


def test_nothing_to_sum_leaves_the_addend():
    sums = get("Gemm")([np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32), np.float32([1, 2, 3])])[0]
    assert sums.tolist() == [[1, 2, 3]] * 2


def test_beta_zero_does_not_read_the_addend():
    ones = np.ones((1, 1), np.float32)
    assert get("Gemm")([ones, ones, ones * np.nan], {"beta": 0.0})[0].item() == 1


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2, 3\) with transA=0, transB=0"):
        get("Gemm")([random(2, 3), random(2, 3)])
    assert get("Gemm")([random(2, 3), random(2, 3)], {"transB": 1})[0].shape == (2, 2)
    with pytest.raises(ShapeError, match=r"C of shape \(3,\) to \(2, 2\)"):
        get("Gemm")([random(2, 3), random(3, 2), random(3)])
    with pytest.raises(ShapeError, match=r"C of shape \(1, 2, 2\)"):
        get("Gemm")([random(2, 3), random(3, 2), random(1, 2, 2)])
    with pytest.raises(ShapeError, match="two matrices"):
        get("Gemm")([random(2), random(2, 3)])
    with pytest.raises(ShapeError, match=r"MatMul cannot multiply the shapes \(2, 3\) and \(2,\)"):
        get("MatMul")([random(2, 3), random(2)])
    with pytest.raises(ShapeError, match="MatMul cannot broadcast"):
        get("MatMul")([random(2, 1, 3), random(3, 3, 1)])
    with pytest.raises(ShapeError, match="MatMul cannot multiply"):
        get("MatMul")([random(), random(2)])
    with pytest.raises(OperatorError, match="needs its input 'C'"):
        get("Gemm")([random(2, 3), random(3, 2)], opset=10)
