"""The extended fused operators against the composition of their parts: the same bits; and as tails of a Concat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.convolution_strategies import ConvolutionCase, convolutions
from support.node_cases import assert_same
from support.producer_cases import FLOATS
from support.strategies import arrays

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.ops.convolution import PRODUCERS
from ngine_ref.registry import FUSED_DOMAIN, Array, get


@dataclass(frozen=True)
class Activation:
    """What follows the convolution, in standard operators."""

    op_type: str
    attributes: dict[str, Any]
    follows: str
    opset: int = 21


ACTIVATIONS = [
    Activation("ConvRelu", {}, "Relu"),
    Activation("ConvClip", {"min": 0.0, "max": 6.0}, "Clip", opset=10),
    Activation("ConvClip", {"max": 0.5}, "Clip", opset=10),
    Activation("ConvClip", {}, "Clip"),
    Activation("ConvSigmoid", {}, "Sigmoid"),
    Activation("ConvTanh", {}, "Tanh"),
    Activation("ConvHardSigmoid", {}, "HardSigmoid"),
    Activation("ConvHardSigmoid", {"alpha": 0.1, "beta": 0.3}, "HardSigmoid"),
    Activation("ConvHardSwish", {}, "HardSwish"),
    Activation("ConvMish", {}, "Mish"),
    Activation("ConvGelu", {}, "Gelu"),
    Activation("ConvGelu", {"approximate": "tanh"}, "Gelu"),
]


def convolved(case: ConvolutionCase) -> Array:
    return get("Conv")(case.inputs, case.attributes)[0]


def padded(case: ConvolutionCase) -> list[Array | None]:
    return [*case.inputs, *[None] * (3 - len(case.inputs))]


def as_tail(op_type: str, inputs: list[Array | None], attributes: dict[str, Any], expected: Array) -> None:
    """The same operator as the producer of a tail gives the same bits behind a prefix."""
    prefix = np.ones((expected.shape[0], 2, *expected.shape[2:]), expected.dtype)
    joining = attributes | {"prefix_count": 1, "producer_op": op_type}
    (joint,) = get("ConcatFusedTail")([prefix, *inputs], joining)
    assert_same(joint, np.concatenate([prefix, expected], 1))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_activation_has_the_bits_of_its_parts(activation: Activation, data: st.DataObject):
    dtype = data.draw(st.sampled_from(FLOATS))
    case = data.draw(convolutions(dtype=dtype))
    (expected,) = get(activation.follows)([convolved(case)], activation.attributes, opset=activation.opset)
    attributes = case.attributes | activation.attributes
    assert_same(get(activation.op_type)(case.inputs, attributes)[0], expected)
    as_tail(activation.op_type, case.inputs, attributes, expected)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_silu_is_a_product_with_the_sigmoid(data: st.DataObject):
    case = data.draw(convolutions(dtype=data.draw(st.sampled_from(FLOATS))))
    c = convolved(case)
    (expected,) = get("Mul")([c, get("Sigmoid")([c])[0]])
    assert_same(get("ConvSiLU")(case.inputs, case.attributes)[0], expected)
    as_tail("ConvSiLU", case.inputs, case.attributes, expected)


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (None, 0.5), (-0.5, None), (None, None), (2.0, 1.0)])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_clip_with_bounds_as_inputs(low: float | None, high: float | None, data: st.DataObject):
    dtype = data.draw(st.sampled_from(FLOATS))
    case = data.draw(convolutions(dtype=dtype))
    shape = data.draw(st.sampled_from([(), (1,)]))
    bounds = [None if bound is None else np.full(shape, bound, dtype) for bound in (low, high)]
    (expected,) = get("Clip")([convolved(case), *bounds])
    assert_same(get("ConvClip")([*padded(case), *bounds], case.attributes)[0], expected)
    as_tail("ConvClip", [*padded(case), *bounds], case.attributes, expected)


@st.composite
def operand_shapes(draw: st.DrawFn, output: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts with the output's; now and then it is the larger one."""
    kept = output[draw(st.integers(0, len(output))) :]
    shape = tuple(1 if draw(st.booleans()) else size for size in kept)
    if len(shape) == len(output) and draw(st.integers(0, 3)) == 0:
        shape = (2, *shape)
    if len(shape) != len(output):
        return shape
    return tuple(3 if whole == 1 and draw(st.booleans()) else size for size, whole in zip(shape, output, strict=True))


@pytest.mark.parametrize("op_type", ["ConvAdd", "ConvAddRelu", "ConvMulAdd"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_arithmetic_has_the_bits_of_its_parts(op_type: str, data: st.DataObject):
    dtype = data.draw(st.sampled_from(FLOATS))
    case = data.draw(convolutions(dtype=dtype))
    c = convolved(case)
    count = 2 if op_type == "ConvMulAdd" else 1
    first = data.draw(operand_shapes(c.shape))
    shapes = [first, data.draw(operand_shapes(np.broadcast_shapes(c.shape, first)))][:count]
    operands = [data.draw(arrays(shape, np.float32, special=False)).astype(dtype) for shape in shapes]
    expected = c if op_type != "ConvMulAdd" else get("Mul")([c, operands[0]])[0]
    (expected,) = get("Add")([expected, operands[-1]])
    if op_type == "ConvAddRelu":
        (expected,) = get("Relu")([expected])
    inputs = [*padded(case), *operands]
    assert_same(get(op_type)(inputs, case.attributes)[0], expected)
    if expected.ndim == c.ndim:
        as_tail(op_type, inputs, case.attributes, expected)


def test_residual_of_several_blocks_and_batches():
    """Each block must take its own part of the operand."""
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((2, 32, 50, 70)).astype("f4"), rng.standard_normal((16, 32, 3, 3)).astype("f4")
    addend, scale = rng.standard_normal((2, 16, 50, 70)).astype("f4"), rng.standard_normal((16, 1, 1)).astype("f4")
    attributes = {"pads": [1, 1, 1, 1]}
    (c,) = get("Conv")([x, w], attributes)
    assert_same(get("ConvAdd")([x, w, None, addend], attributes)[0], c + addend)
    assert_same(get("ConvMulAdd")([x, w, None, scale, addend], attributes)[0], c * scale + addend)


def test_every_convolution_with_something_behind_it_may_make_a_tail():
    assert set(PRODUCERS) >= {"Conv", "ConvLeakyRelu", "ConvPRelu", "ConvSiLU", "ConvAdd", "ConvAddRelu", "ConvMulAdd"}
    assert set(PRODUCERS) >= {activation.op_type for activation in ACTIVATIONS}


def test_operands_that_do_not_fit():
    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 1, 1), np.float32)
    with pytest.raises(ShapeError, match=r"\(1, 3, 4, 4\).*\(5,\)"):
        get("ConvAdd")([x, w, None, np.ones(5, np.float32)])
    with pytest.raises(OperatorError, match="float64"):
        get("ConvAdd")([x, w, None, np.ones(4)])
    with pytest.raises(OperatorError, match="input 4"):
        get("ConvMulAdd")([x, w, None, np.ones(4, np.float32)])
    with pytest.raises(ShapeError, match=r"min.*\(2,\)"):
        get("ConvClip")([x, w, None, np.ones(2, np.float32)])
    with pytest.raises(OperatorError, match="max is float64"):
        get("ConvClip")([x, w, None, None, np.ones(())])
    with pytest.raises(OperatorError, match="approximate"):
        get("ConvGelu")([x, w], {"approximate": "erf"})


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_gemm_relu_has_the_bits_of_its_parts(data: st.DataObject):
    dtype = data.draw(st.sampled_from(FLOATS))
    m, k, n = (data.draw(st.integers(0, 6)) for _ in range(3))
    attributes = {"transA": data.draw(st.integers(0, 1)), "transB": data.draw(st.integers(0, 1)), "alpha": 0.5}
    a = data.draw(arrays((k, m) if attributes["transA"] else (m, k), np.float32)).astype(dtype)
    b = data.draw(arrays((n, k) if attributes["transB"] else (k, n), np.float32)).astype(dtype)
    c = [data.draw(arrays(data.draw(st.sampled_from([(), (n,), (m, 1), (m, n)])), np.float32)).astype(dtype)]
    inputs = [a, b, *(c if data.draw(st.booleans()) else [])]
    (expected,) = get("Relu")(get("Gemm")(inputs, attributes))
    assert_same(get("GemmRelu", FUSED_DOMAIN)(inputs, attributes)[0], expected)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_matmul_add_has_the_bits_of_its_parts(data: st.DataObject):
    dtype = data.draw(st.sampled_from([*FLOATS, np.int32]))
    m, k, n = (data.draw(st.integers(1, 6)) for _ in range(3))
    a = data.draw(arrays(data.draw(st.sampled_from([(m, k), (2, m, k), (k,)])), np.float32, special=False))
    b = data.draw(arrays(data.draw(st.sampled_from([(k, n), (2, k, n)])), np.float32, special=False))
    a, b = (3 * a).astype(dtype), (3 * b).astype(dtype)
    (product,) = get("MatMul")([a, b])
    shape = data.draw(st.sampled_from([(), (n,), product.shape, (3, *[1] * product.ndim), (2, 2, m, n)]))
    c = data.draw(arrays(shape, np.float32, special=False)).astype(dtype)
    try:
        np.broadcast_shapes(product.shape, shape)
    except ValueError:
        with pytest.raises(ShapeError):
            get("MatMulAdd")([a, b, c])
        return
    assert_same(get("MatMulAdd", FUSED_DOMAIN)([a, b, c])[0], get("Add")([product, c])[0])
    with pytest.raises(OperatorError, match="one element type"):
        get("MatMulAdd")([a, b, c.astype(np.int64)])
