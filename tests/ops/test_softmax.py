"""Softmax against ONNX's own cases, onnxruntime, and what they do at the borders."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from support.node_cases import NodeCase, assert_same, check_node_case, node_cases
from support.one_node import check_against_onnxruntime, check_every_use
from support.strategies import arrays, filled_shapes
from support.sweeps import sweep

from ngine_ref.errors import ShapeError
from ngine_ref.registry import get


@pytest.mark.parametrize("case", node_cases("Softmax"), ids=lambda case: case.name)
def test_onnx_case(case: NodeCase):
    check_node_case(case)
    check_every_use(case.node.op_type, case.inputs, case.attributes, opset=case.opset, rtol=1e-6)


@sweep(filled_shapes.filter(len), st.data(), st.sampled_from([11, 13]), examples=60)
def test_softmax_against_onnxruntime(shape: tuple[int, ...], data: st.DataObject, opset: int):
    x = data.draw(arrays(shape, np.float32, special=False))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    check_against_onnxruntime("Softmax", [x], {"axis": axis}, opset=opset, rtol=2e-6, atol=1e-12)


def test_large_numbers_do_not_overflow():
    for dtype in (np.float16, np.float32, ml_dtypes.bfloat16):
        large = ml_dtypes.finfo(dtype).max
        (y,) = get("Softmax")([np.array([[large, large, -large]], dtype)])
        assert_same(y, np.array([[0.5, 0.5, 0]], dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_after_every_step(dtype: type[np.generic]):
    x = np.linspace(-3, 3, 60).astype(dtype)
    parts = np.exp(x - x.max())
    assert_same(get("Softmax")([x])[0], parts / parts.sum(keepdims=True))


def test_empty_rows():
    assert get("Softmax")([np.zeros((2, 0), np.float32)])[0].shape == (2, 0)


def test_refusals():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ShapeError, match="axis from -2 to 1"):
        get("Softmax")([x], {"axis": 2})
