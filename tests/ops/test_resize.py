"""Resize and Upsample against ONNX's own cases and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.node_cases import NodeCase, assert_same, check_node_case, node_cases
from support.one_node import check_every_use, onnxruntime_outputs

from ngine_ref.registry import Array, get

CASES = [*node_cases("Resize"), *node_cases("Upsample")]
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
TRANSFORMATIONS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_onnx_case(case: NodeCase):
    check_node_case(case)
    check_every_use(case.node.op_type, case.inputs, case.attributes, opset=case.opset)


@st.composite
def resizings(draw: st.DrawFn) -> tuple[list[Array | None], dict[str, Any]]:
    """What onnxruntime computes as ONNX says.

    It copies an axis (or all of them) that keeps its length, whatever the coordinates; it knows linear for certain
    ranks and cubic for images only; it takes the rounded length for align_corners; and it leaves negative axes out
    where it keeps the aspect ratio.
    """
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    rank, count = draw(
        st.sampled_from(
            {
                "nearest": [(1, 1), (2, 2), (3, 2), (4, 1), (4, 2), (4, 3), (5, 3)],
                "linear": [(2, 2), (4, 2), (4, 2), (5, 3)],
                "cubic": [(4, 2)],
            }[mode]
        )
    )
    transformation = draw(st.sampled_from(TRANSFORMATIONS))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transformation}
    if mode == "nearest":
        modes = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        attributes["nearest_mode"] = draw(st.sampled_from(modes))
    elif draw(st.booleans()):
        attributes["antialias"] = 1
    if mode == "cubic":
        attributes["cubic_coeff_a"] = draw(st.sampled_from([-0.75, -0.5]))
        attributes["exclude_outside"] = draw(st.integers(0, 1))
    shape = [draw(st.integers(1, 9)) for _ in range(rank)]
    changed = range(rank - count, rank)
    named = list(changed) if draw(st.booleans()) else list(range(rank))
    if len(named) != rank:
        attributes["axes"] = [axis - (rank if draw(st.booleans()) else 0) for axis in named]
    roi = None
    if transformation == "tf_crop_and_resize":
        low = [draw(st.integers(-30, 40)) / 100 if axis in changed else 0.0 for axis in named]
        high = [draw(st.integers(50, 130)) / 100 if axis in changed else 1.0 for axis in named]
        roi = np.array(low + high, np.float32)
        attributes["extrapolation_value"] = 9.0
    wholes = transformation == "align_corners"
    factors = st.sampled_from([2.0, 3.0]) if wholes else st.sampled_from([0.3, 0.5, 0.6, 1.3, 1.5, 1.7, 2.0, 2.5, 3.0])
    if draw(st.booleans()):
        scales = np.array([draw(factors) if axis in changed else 1.0 for axis in named], np.float32)
        inputs = [roi, scales]
        lengths = [int(np.float32(shape[axis]) * scale) for axis, scale in zip(named, scales, strict=True)]
    else:
        lengths = [draw(st.integers(1, 20)) if axis in changed else shape[axis] for axis in named]
        inputs = [roi, None, np.array(lengths)]
        if min(attributes.get("axes", [-1])) >= 0 and draw(st.booleans()) and roi is None:
            attributes["keep_aspect_ratio_policy"] = draw(st.sampled_from(["stretch", "not_larger", "not_smaller"]))
            scales = np.array(lengths, np.float32) / np.array([shape[axis] for axis in named], np.float32)
            extreme = {"stretch": scales, "not_larger": scales.min(), "not_smaller": scales.max()}
            factor = extreme[attributes["keep_aspect_ratio_policy"]]
            lengths = [int(n) for n in np.floor(np.float32([shape[axis] for axis in named]) * factor + np.float32(0.5))]
    for axis, length in zip(named, lengths, strict=True):
        if axis in changed and length in (0, shape[axis]):
            shape[axis] = 0  # marks a case that onnxruntime gets wrong or refuses
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return [rng.standard_normal(shape).astype(np.float32), *inputs], attributes


def check_against_onnxruntime(inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    (expected,) = onnxruntime_outputs("Resize", inputs, attributes, 19)
    # onnxruntime has float32 weights; without those outside, they are divided by a sum that may be small.
    tolerance = 5e-5 if attributes.get("exclude_outside") else 1e-5
    assert_same(get("Resize")(inputs, attributes)[0], expected, rtol=1e-5, atol=tolerance)


@given(resizings().filter(lambda drawn: drawn[0][0].size > 0))
@settings(max_examples=200, deadline=None)
def test_random_resizing(drawn: tuple[list[Array | None], dict[str, Any]]):
    check_against_onnxruntime(*drawn)


@pytest.mark.long
@given(resizings().filter(lambda drawn: drawn[0][0].size > 0))
@settings(max_examples=2000, deadline=None)
def test_many_random_resizings(drawn: tuple[list[Array | None], dict[str, Any]]):
    check_against_onnxruntime(*drawn)


@given(resizings().filter(lambda drawn: drawn[0][0].size > 0))
@settings(max_examples=50, deadline=None)
def test_memory_layout_does_not_matter(drawn: tuple[list[Array | None], dict[str, Any]]):
    (inputs, attributes) = drawn
    (expected,) = get("Resize")(inputs, attributes)
    wide = np.zeros([3 * size for size in expected.shape], np.float32)
    place = wide[tuple(slice(1, None, 3) for _ in expected.shape)]
    get("Resize")([np.asfortranarray(inputs[0]), *inputs[1:]], attributes, lambda shape, dtype: place)
    assert_same(place, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_linear_integers_against_onnxruntime(dtype: Any, data: st.DataObject):
    """onnxruntime computes them in float32, where a whole number may come out a little smaller and is cut off."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = [1, 2, data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))]
    sizes = np.array([1, 2, data.draw(st.integers(1, 15)), data.draw(st.integers(1, 15))])
    x = rng.integers(0, 255, shape).astype(dtype)
    attributes = {"mode": "linear"}
    if list(sizes) != shape:
        (expected,) = onnxruntime_outputs("Resize", [x, None, None, sizes], attributes, 19)
        (actual,) = get("Resize")([x, None, None, sizes], attributes)
        exact = get("Resize")([x.astype(np.float64), None, None, sizes], attributes)[0]
        differs = actual != expected
        assert np.abs(exact - np.rint(exact))[differs].max(initial=0) < 1e-4
        assert np.abs(actual.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_opset_10_and_upsample_against_onnxruntime(mode: str, data: st.DataObject):
    """Inputs X and scales; ONNX does not say which cell is nearest, onnxruntime is followed."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = [1, 2, data.draw(st.integers(2, 9)), data.draw(st.integers(2, 9))]
    x = rng.standard_normal(shape).astype(np.float32)
    down, up = [0.5, 0.6, 0.7], [1.0, 1.5, 1.7, 2.0, 3.0]
    factors = np.array([1, 1, *(data.draw(st.sampled_from(down + up)) for _ in range(2))], np.float32)
    kept = [int(n * f) == n and f != 1 for n, f in zip(shape, factors, strict=True)]
    if not any(kept):
        (expected,) = onnxruntime_outputs("Resize", [x, factors], {"mode": mode}, 10)
        assert_same(get("Resize")([x, factors], {"mode": mode}, opset=10)[0], expected, rtol=1e-5, atol=1e-6)
        if (factors >= 1).all():
            upsampled = get("Upsample")([x, factors], {"mode": mode}, opset=9)[0]
            assert_same(upsampled, expected, rtol=1e-5, atol=1e-6)
            attributes = {"mode": mode, "scales": [float(factor) for factor in factors]}
            assert_same(get("Upsample")([x], attributes, opset=7)[0], upsampled)
