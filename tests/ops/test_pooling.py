"""AveragePool and MaxPool against ONNX's own cases, onnxruntime, and the specification."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.node_cases import NodeCase, assert_same, check_node_case, node_cases
from support.one_node import check_every_use, onnxruntime_outputs
from support.sweeps import sweep

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.registry import Array, get


@pytest.mark.parametrize("case", node_cases("AveragePool"), ids=lambda case: case.name)
def test_onnx_case(case: NodeCase):
    check_node_case(case)
    check_every_use("AveragePool", case.inputs, case.attributes, opset=case.opset)


@pytest.mark.parametrize("case", node_cases("MaxPool"), ids=lambda case: case.name)
def test_onnx_case_of_max_pool(case: NodeCase):
    check_node_case(case)
    check_every_use("MaxPool", case.inputs, case.attributes, opset=case.opset, output_count=len(case.outputs))


def row(*numbers: float) -> Array:
    return np.array([[numbers]], np.float32)


@st.composite
def poolings(draw: st.DrawFn) -> tuple[Array, dict[str, Any]]:
    """What onnxruntime computes as ONNX says: without dilations under SAME padding, and with kernels that fit."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    kernel = each(1, 4)
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    for name in ("ceil_mode", "count_include_pad"):
        if draw(st.booleans()):
            attributes[name] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        attributes["strides"] = each(1, 4)
    auto_pad = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if auto_pad != "NOTSET" or draw(st.booleans()):
        attributes["auto_pad"] = auto_pad
    if not auto_pad.startswith("SAME") and draw(st.booleans()):
        attributes["dilations"] = each(1, 3)
    pads = [0] * (2 * rank)
    if auto_pad == "NOTSET" and draw(st.booleans()):
        pads = attributes["pads"] = [draw(st.integers(0, size - 1)) for size in kernel * 2]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, attributes.get("dilations", [1] * rank), strict=True)]
    least = [max(1, e - before - after) for e, before, after in zip(extents, pads[:rank], pads[rank:], strict=True)]
    spatial = [draw(st.integers(size, max(size, 30 if rank < 3 else 8))) for size in least]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.standard_normal((draw(st.integers(0, 3)), draw(st.integers(1, 5)), *spatial)).astype("f4"), attributes


def check_against_onnxruntime(x: Array, attributes: dict[str, Any]) -> None:
    (expected,) = onnxruntime_outputs("AveragePool", [x], attributes, 19)
    assert_same(get("AveragePool")([x], attributes)[0], expected, rtol=1e-5, atol=1e-6)


@given(poolings())
@settings(max_examples=150, deadline=None)
def test_random_pooling(drawn: tuple[Array, dict[str, Any]]):
    check_against_onnxruntime(*drawn)
    check_every_use("AveragePool", [drawn[0]], drawn[1])


@pytest.mark.long
@given(poolings())
@settings(max_examples=2000, deadline=None)
def test_many_random_poolings(drawn: tuple[Array, dict[str, Any]]):
    check_against_onnxruntime(*drawn)


@sweep(poolings(), st.sampled_from([np.float32, np.float32, np.float64, np.int8, np.uint8]), examples=100)
def test_random_max_pooling(drawn: tuple[Array, dict[str, Any]], dtype: Any):
    x, attributes = drawn
    x = (100 * np.abs(x)).clip(0, 120).astype(dtype) if np.dtype(dtype).kind in "iu" else x.astype(dtype)
    attributes = _for_max_pool(attributes)
    (expected,) = onnxruntime_outputs("MaxPool", [x], attributes, 19)
    assert_same(_seen(get("MaxPool")([x], attributes)[0]), _seen(expected))
    check_every_use("MaxPool", [x], attributes)


@sweep(poolings(), st.integers(0, 1), examples=40)
def test_random_places_of_maxima(drawn: tuple[Array, dict[str, Any]], storage_order: int):
    x, attributes = drawn
    x = np.round(x)  # so that there are equals
    attributes = _for_max_pool(attributes)
    attributes["storage_order"] = storage_order
    largest, places = get("MaxPool")([x], attributes, output_count=2)
    assert_same(largest, get("MaxPool")([x], attributes)[0])
    spatial = x.shape[2:]
    flat = x if storage_order == 0 else x.transpose(0, 1, *reversed(range(2, x.ndim)))
    seen = np.isfinite(largest)
    np.testing.assert_array_equal(flat.reshape(-1)[places[seen]], largest[seen])
    if storage_order == 0 or len(spatial) == 2:
        _, expected = onnxruntime_outputs("MaxPool", [x], attributes, 19, output_count=2)
        np.testing.assert_array_equal(places[seen], expected[seen])


def _for_max_pool(attributes: dict[str, Any]) -> dict[str, Any]:
    """The same for MaxPool, for which onnxruntime refuses negative SAME padding (a stride larger than the kernel)."""
    attributes = {name: value for name, value in attributes.items() if name != "count_include_pad"}
    if attributes.get("auto_pad", "").startswith("SAME") and "strides" in attributes:
        attributes["strides"] = list(map(min, attributes["strides"], attributes["kernel_shape"]))
    return attributes


def _seen(maxima: Array) -> Array:
    """Where a window sees no cell ONNX says nothing: onnxruntime has the lowest finite number, we have -inf."""
    return np.where(maxima == np.finfo(maxima.dtype).min, -np.inf, maxima) if maxima.dtype.kind == "f" else maxima


@pytest.mark.parametrize(
    ("x", "attributes", "expected"),
    [
        # Padding is never the largest, be it below zero all round.
        (row(-3, -2, -5), {"kernel_shape": [2], "pads": [1, 1]}, row(-3, -2, -2, -5)),
        (row(-1, np.nan, 7), {"kernel_shape": [2]}, row(np.nan, np.nan)),
        (row(-np.inf, -np.inf), {"kernel_shape": [2]}, row(-np.inf)),
        (row(1, 2), {"kernel_shape": [2], "dilations": [3], "pads": [1, 1]}, row(-np.inf)),
        (row(4, 1, 2, 3), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}, row(4, 3)),
        (row(1, 5, 2, 4, 3), {"kernel_shape": [3], "dilations": [2], "auto_pad": "SAME_UPPER"}, row(2, 5, 3, 5, 3)),
    ],
)
def test_borders_of_max_pool(x: Array, attributes: dict[str, Any], expected: Array):
    assert_same(get("MaxPool")([x], attributes)[0], expected)


@pytest.mark.parametrize(
    ("x", "attributes", "expected"),
    [
        # The last window reaches beyond the padding: those cells never count, padding does if it is to be included.
        (row(1, 2, 3, 4), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}, row(2, 3.5)),
        (row(1, 2, 3, 4), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1, "pads": [1, 1]}, row(1.5, 3, 4)),
        (
            row(1, 2, 3, 4),
            {"kernel_shape": [3], "strides": [2], "ceil_mode": 1, "pads": [1, 1], "count_include_pad": 1},
            row(1, 3, 2),
        ),
        # A window that would start behind the data is dropped.
        (row(1, 2, 3), {"kernel_shape": [1], "strides": [3], "ceil_mode": 1, "pads": [0, 0]}, row(1)),
        (row(1, 2, 3), {"kernel_shape": [2], "strides": [3], "ceil_mode": 1, "pads": [0, 1]}, row(1.5)),
        # Dilated SAME padding, where onnxruntime forgets the dilation.
        (row(1, 2, 3, 4, 5), {"kernel_shape": [3], "dilations": [2], "auto_pad": "SAME_UPPER"}, row(2, 3, 3, 3, 4)),
        # An odd padding cell goes to the end or to the begin.
        (row(1, 2, 3, 4), {"kernel_shape": [2], "auto_pad": "SAME_UPPER"}, row(1.5, 2.5, 3.5, 4)),
        (row(1, 2, 3, 4), {"kernel_shape": [2], "auto_pad": "SAME_LOWER"}, row(1, 1.5, 2.5, 3.5)),
        # SAME padding is negative by ONNX's formula where the stride is larger than the kernel.
        (row(1, 2, 3, 4, 5, 6, 7, 8), {"kernel_shape": [1], "strides": [4], "auto_pad": "SAME_UPPER"}, row(2, 6)),
        # A window with every tap outside the data.
        (row(1, 2), {"kernel_shape": [2], "dilations": [3], "pads": [1, 1]}, row(0)),
        # A kernel that does not fit has no windows; onnxruntime rounds towards zero and finds one.
        (row(1, 2), {"kernel_shape": [3], "strides": [4]}, row()),
    ],
)
def test_borders(x: Array, attributes: dict[str, Any], expected: Array):
    assert_same(get("AveragePool")([x], attributes)[0], expected, rtol=1e-7)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 5e-4), (ml_dtypes.bfloat16, 4e-3), (np.float64, 1e-15)])
def test_other_floats_are_rounded_once(dtype: Any, tolerance: float):
    x = np.random.default_rng(1).uniform(1, 2, (2, 300, 20, 20)).astype(dtype)
    (actual,) = get("AveragePool")([x], {"kernel_shape": [16, 16]})
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (16, 16), (2, 3))
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual.astype(np.float64), windows.mean((-2, -1)), rtol=tolerance)


@pytest.mark.parametrize("op_type", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize(
    ("shape", "attributes", "words"),
    [
        ((1, 2, 4, 4), {"kernel_shape": [2]}, ["[2]", "(1, 2, 4, 4)"]),
        ((1, 2), {"kernel_shape": []}, ["(1, 2)"]),
        ((1, 2, 4), {"kernel_shape": [0]}, ["[0]"]),
        ((1, 2, 4), {"kernel_shape": [2], "pads": [1]}, ["pads", "[1]"]),
        ((1, 2, 1), {"kernel_shape": [4]}, ["[4]", "[1]"]),
        ((1, 2, 4), {"kernel_shape": [2], "pads": [0, 1 << 45]}, [f"{(1 << 45) + 3}"]),
        ((1, 2, 4), {"kernel_shape": [1 << 62], "auto_pad": "SAME_UPPER"}, [str(1 << 62)]),
    ],
)
def test_shapes_that_do_not_fit(shape: tuple[int, ...], attributes: dict[str, Any], words: list[str], op_type: str):
    with pytest.raises(ShapeError, match=op_type) as caught:
        get(op_type)([np.ones(shape, np.float32)], attributes)
    assert all(word in str(caught.value) for word in words)


def test_what_an_opset_lacks():
    x = np.ones((1, 1, 4), np.float32)
    with pytest.raises(OperatorError, match="dilations"):
        get("AveragePool")([x], {"kernel_shape": [2], "dilations": [2]}, opset=18)
    with pytest.raises(OperatorError, match="ceil_mode"):
        get("AveragePool")([x], {"kernel_shape": [2], "ceil_mode": 1}, opset=9)
    with pytest.raises(OperatorError, match="kernel_shape"):
        get("AveragePool")([x], {})
    with pytest.raises(OperatorError, match="int32"):
        get("AveragePool")([x.astype(np.int32)], {"kernel_shape": [2]})
    with pytest.raises(OperatorError, match="dilations"):
        get("MaxPool")([x], {"kernel_shape": [2], "dilations": [2]}, opset=8)
    with pytest.raises(OperatorError, match="storage_order is 2"):
        get("MaxPool")([x], {"kernel_shape": [2], "storage_order": 2})


def test_a_kernel_far_larger_than_the_padded_input_takes_no_time():
    x = row(1, 3, 2)
    attributes = {"kernel_shape": [1 << 36], "auto_pad": "SAME_LOWER"}
    assert_same(get("MaxPool")([x], attributes)[0], row(3, 3, 3))
    assert_same(get("AveragePool")([x], attributes)[0], row(2, 2, 2))
