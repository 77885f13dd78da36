"""MulSub, and the one pass that a product and another operand take."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.strategies import FLOATS, INTEGERS, arrays, broadcastable
from support.sweeps import sweep

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.blocks import BLOCK
from ngine_ref.ops.multiply_then import multiply_then_into
from ngine_ref.registry import FUSED_DOMAIN, Array, get


def in_two_steps(a: Array, b: Array, c: Array) -> Array:
    return get("Sub")([get("Mul")([a, b])[0], c])[0]


@sweep(st.data(), st.sampled_from((*FLOATS, *INTEGERS, ml_dtypes.bfloat16)), examples=150)
def test_mul_sub_has_the_bits_of_mul_and_sub(data: st.DataObject, dtype: type[np.generic]):
    drawn = np.float32 if dtype is ml_dtypes.bfloat16 else dtype
    a, b, c = (data.draw(arrays(shape, drawn)).astype(dtype) for shape in data.draw(broadcastable(3)))
    assert_same(get("MulSub", FUSED_DOMAIN)([a, b, c])[0], in_two_steps(a, b, c))


@pytest.mark.parametrize("ufunc", [np.add, np.subtract])
@pytest.mark.parametrize(
    ("b_shape", "c_shape"),
    [((), (2, 3, 90, 70)), ((1, 3, 1, 1), (2, 3, 90, 70)), ((2, 3, 90, 70), (70,)), ((90, 1), (1, 1, 1, 1))],
)
def test_blocks_in_place_of_any_operand(ufunc: np.ufunc, b_shape: tuple[int, ...], c_shape: tuple[int, ...]):
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=shape).astype(np.float16) for shape in ((2, 3, 90, 70), b_shape, c_shape))
    assert a.size > 2 * BLOCK
    expected = ufunc(a * b, c)
    for slot in range(3):
        operands = [a.copy(), b.copy(), c.copy()]
        out = operands[slot] if operands[slot].shape == a.shape else np.empty_like(a)
        multiply_then_into(ufunc, *operands, out)
        assert_same(out, expected)


def test_what_does_not_fit_is_refused():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"MulSub cannot broadcast the shapes \(2, 3\) and \(2, 3\) and \(2,\)"):
        get("MulSub")([x, x, x[:, 0]])
    with pytest.raises(OperatorError, match="one element type, got float32, float32, float64"):
        get("MulSub")([x, x, x.astype(np.float64)])
    with pytest.raises(OperatorError, match="needs its input 2"):
        get("MulSub")([x, x])
