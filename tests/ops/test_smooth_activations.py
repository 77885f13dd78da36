"""Sigmoid, Tanh, Softplus, Mish, Erf and Gelu."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.one_node import check_against_onnxruntime
from support.strategies import arrays, shapes
from support.sweeps import sweep

from ngine_ref.errors import OperatorError
from ngine_ref.numerics.blocks import BLOCK
from ngine_ref.ops.smooth_activations import silu_into
from ngine_ref.registry import get

LINE = np.concatenate([np.linspace(-30, 30, 4001), np.linspace(-1.5, 1.5, 1001), [-1e-30, 0.0, 1e-30]])


def sigmoid(x: float) -> float:
    return math.exp(x) / (1 + math.exp(x)) if x < 0 else 1 / (1 + math.exp(-x))


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def mish_ratio(x: float) -> float:
    e = math.exp(min(x, 300.0))
    return 1.0 if x > 300 else e * (e + 2) / (e * (e + 2) + 2)


EXACT = {
    "Sigmoid": sigmoid,
    "Tanh": math.tanh,
    "Softplus": softplus,
    "Mish": lambda x: x * mish_ratio(x),
    "Erf": math.erf,
    "Gelu": lambda x: x * math.erfc(-x * math.sqrt(0.5)) / 2,
}


@pytest.mark.parametrize("op_type", EXACT)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_against_exact_values(op_type: str, dtype: type[np.generic], rtol: float):
    x = LINE.astype(dtype)
    exact = np.array([EXACT[op_type](value) for value in x.astype(np.float64)])
    if op_type == "Gelu":  # exp(-x * x) carries the rounding of its argument
        x, exact = x[x > -6], exact[x > -6]
        rtol *= 10
    # Results below the smallest normal number have fewer digits.
    assert_same(get(op_type)([x])[0], exact.astype(dtype), rtol=rtol, atol=float(np.finfo(dtype).tiny))


@pytest.mark.parametrize("op_type", EXACT)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(op_type: str, dtype):
    x = LINE.astype(dtype)
    expected = get(op_type)([x.astype(np.float32)])[0].astype(dtype)
    assert_same(get(op_type)([x])[0], expected)
    assert_same(get(op_type)([x.reshape(-1, 1)[:1].reshape(())])[0], expected[:1].reshape(()))


@pytest.mark.parametrize("op_type", EXACT)
def test_blocks_and_odd_numbers(op_type: str):
    x = np.random.default_rng(0).normal(size=2 * BLOCK + 3).astype(np.float32)
    whole = get(op_type)([x])[0]
    pieces = [get(op_type)([part])[0] for part in np.array_split(x, 7)]
    assert_same(whole, np.concatenate(pieces), rtol=3e-7)
    assert np.isnan(get(op_type)([np.float32([np.nan])])[0]).all()
    top = get(op_type)([np.float32([np.inf])])[0][0]
    assert top == (1 if op_type in ("Sigmoid", "Tanh", "Erf") else np.inf)


COMPARED = [
    ("Sigmoid", np.float64, {}, 13),
    # onnxruntime's own float32 Sigmoid is only that good below -10.
    ("Sigmoid", np.float32, {}, 13),
    ("Tanh", np.float32, {}, 13),
    ("Softplus", np.float32, {}, 21),
    ("Erf", np.float32, {}, 13),
    ("Gelu", np.float32, {}, 20),
    ("Gelu", np.float32, {"approximate": "tanh"}, 20),
    ("Mish", np.float32, {}, 18),
]


@sweep(st.data(), shapes, st.sampled_from(COMPARED), examples=200)
def test_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], compared):
    op_type, dtype, attributes, opset = compared
    x = data.draw(arrays(shape, dtype, special=op_type in ("Sigmoid", "Tanh")))
    # onnxruntime's Gelu computes 1 + tanh or 1 + erf, whose error of 1e-7 is then multiplied by x.
    atol = 5e-7 + (1e-7 * float(np.abs(x).max(initial=0)) if op_type == "Gelu" else 0)
    check_against_onnxruntime(op_type, [x], attributes, opset=opset, rtol=3e-6, atol=atol)


def test_gelu_with_tanh_against_its_formula():
    x = LINE[np.abs(LINE) < 3]
    formula = x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert_same(get("Gelu")([x], {"approximate": "tanh"})[0], formula, rtol=1e-12, atol=1e-15)
    with pytest.raises(OperatorError, match="none or tanh, got 'quick'"):
        get("Gelu")([x], {"approximate": "quick"})


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_silu_has_the_bits_of_sigmoid_and_mul(dtype):
    x = LINE.astype(dtype)
    expected = get("Mul")([x, get("Sigmoid")([x])[0]])[0]
    silu_into(x, x)
    assert_same(x, expected)


def test_sigmoid_is_the_true_function_at_both_ends():
    x = np.array([-100.0, -88.75, -20.0, 0.0, 20.0, 100.0, np.inf, -np.inf])
    exact = np.array([math.exp(v) / (1 + math.exp(v)) if v < 0 else 1 / (1 + math.exp(-v)) for v in x])
    assert_same(get("Sigmoid")([x])[0], exact, rtol=1e-15)
    # Below the smallest normal float32, neighbours are 1.4e-45 apart.
    assert_same(get("Sigmoid")([x.astype(np.float32)])[0], exact.astype(np.float32), rtol=3e-7, atol=3e-45)
    assert get("Sigmoid")([np.float64([-740.0])])[0][0] == pytest.approx(math.exp(-740.0), rel=1e-2)
    assert np.isnan(get("Sigmoid")([np.float32([np.nan])])[0][0])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sigmoid_of_narrow_floats_is_rounded_once(dtype):
    x = np.linspace(-12, 12, 333).astype(dtype)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert_same(get("Sigmoid")([x])[0], exact.astype(np.float32).astype(dtype))
