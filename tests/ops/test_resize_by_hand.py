"""Resize by the formulas of the specification, for every element type, and what it refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.node_cases import assert_same

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.registry import Array, Call, TensorSpec, find, get

CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}


def row(*numbers: float, dtype: Any = np.float32) -> Array:
    return np.array([[[numbers]]], dtype)


def scales(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


@pytest.mark.parametrize(
    ("x", "rest", "attributes", "expected"),
    [
        # The output has floor(5 * 1.3) = 6 cells, but coordinates use 1.3, not 6/5.
        (
            row(0, 1, 2, 3, 4),
            [None, scales(1, 1, 1, 1.3)],
            {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
            row(0, 0.7692308, 1.5384616, 2.3076923, 3.0769231, 3.8461538),
        ),
        # The length stays, the coordinates do not: onnxruntime copies.
        (
            row(0, 10, 20),
            [None, scales(1, 1, 1, 1.3)],
            {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
            row(0, 7.692308, 15.384615),
        ),
        # align_corners has the length that the scale asks for, 2.4, in its formula: so do ONNX's test cases.
        (
            row(1, 2, 3, 4),
            [None, scales(1, 1, 1, 0.6)],
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
            row(1, 3.142857),
        ),
        # One cell of output: pytorch_half_pixel reads at 0, half_pixel in the middle.
        (row(1, 2, 3, 4), [None, None, np.array([1, 1, 1, 1])], {"mode": "linear"}, row(2.5)),
        (
            row(1, 2, 3, 4),
            [None, None, np.array([1, 1, 1, 1])],
            {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
            row(1),
        ),
        # A single cell of a crop lies in its middle; beyond the input is the extrapolation value.
        (
            row(0, 1, 2, 3, 4),
            [scales(0, 0, 0, 0.5, 1, 1, 1, 1), None, np.array([1, 1, 1, 1])],
            {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
            row(3),
        ),
        (
            row(0, 1, 2, 3, 4),
            [scales(0, 0, 0, -0.25, 1, 1, 1, 1.25), None, np.array([1, 1, 1, 4])],
            {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -7.0},
            row(-7, 1, 3, -7),
        ),
        # The aspect ratio is kept along a negative axis too.
        (
            row(1, 2),
            [None, None, np.array([1, 4])],
            {"axes": [-2, 3], "keep_aspect_ratio_policy": "not_smaller"},
            np.array([[[[1, 1, 2, 2]] * 2]], np.float32),
        ),
        # Halves, each way.
        (row(0, 1, 2, 3), [None, scales(1, 1, 1, 0.5)], {"nearest_mode": "round_prefer_floor"}, row(0, 2)),
        (row(0, 1, 2, 3), [None, scales(1, 1, 1, 0.5)], {"nearest_mode": "round_prefer_ceil"}, row(1, 3)),
        # 0.1 + 8.5 / 2.5 - 0.5 is a whole number, also in binary.
        (
            row(1, 2, 3, 4, 5),
            [None, scales(1, 1, 1, 2.5)],
            {"coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": "ceil"},
            row(1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5),
        ),
        # The half that 1 / (2 / 7) should be in float32.
        (
            row(*range(7)),
            [None, None, np.array([1, 1, 1, 2])],
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "round_prefer_ceil"},
            row(0, 4),
        ),
        # Exporters of opset 11 write empty tensors for absent inputs.
        (row(1, 2), [scales(), scales(), np.array([1, 1, 1, 4])], {}, row(1, 1, 2, 2)),
        (row(1, 2), [scales(), scales(1, 1, 1, 2)], {}, row(1, 1, 2, 2)),
        # Linear integers are cut off, antialiased ones rounded.
        (
            row(0, 10, 20, dtype=np.uint8),
            [None, scales(1, 1, 1, 1.7)],
            {"mode": "linear"},
            row(0, 3, 9, 15, 20, dtype=np.uint8),
        ),
        (
            row(*range(0, 80, 10), dtype=np.int8),
            [None, scales(1, 1, 1, 0.25)],
            {"mode": "linear", "antialias": 1},
            row(17, 53, dtype=np.int8),
        ),
        (row(0, 255, 0, dtype=np.uint8), [None, scales(1, 1, 1, 3)], {"mode": "cubic"}, None),
    ],
)
def test_by_hand(x: Array, rest: list[Array | None], attributes: dict[str, Any], expected: Array | None):
    (actual,) = get("Resize")([x, *rest], attributes, opset=18)
    if expected is None:  # the overshoot of a cubic stays within the element type
        assert actual.max() == 255
        assert actual[0, 0, 0, 0] == 0
    else:
        assert_same(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "dtype",
    [
        *(np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.bool_),
        *(np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128, object),
    ],
)
@pytest.mark.parametrize(("factors", "indices"), [((2, 3), None), ((0.5, 1.5), ([1, 3], [0, 1, 1, 2, 3, 3]))])
def test_nearest_moves_every_element_type(dtype: Any, factors: tuple[float, float], indices: Any):
    x = np.arange(32).reshape(1, 2, 4, 4)
    x = np.vectorize(lambda n: f"text {n}", otypes=[object])(x) if dtype is object else x.astype(dtype)
    attributes = {"nearest_mode": "round_prefer_ceil", "axes": [2, 3]}
    (actual,) = get("Resize")([x, None, scales(*factors)], attributes)
    if indices is None:
        expected = x.repeat(2, 2).repeat(3, 3)
    else:
        coordinates = [(np.arange(n) + 0.5) / f - 0.5 for n, f in zip((2, 6), factors, strict=True)]
        rows, columns = (np.clip(np.floor(c + 0.5), 0, 3).astype(int) for c in coordinates)
        expected = x[:, :, rows[:, None], columns]
    assert actual.dtype == x.dtype
    assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float16, 5e-4), (ml_dtypes.bfloat16, 4e-3), (np.float64, 1e-12), (np.complex64, 1e-6), (np.complex128, 1e-12)],
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_other_numbers_are_rounded_once(dtype: Any, tolerance: float, mode: str):
    rng = np.random.default_rng(2)
    x = rng.uniform(1, 2, (2, 3, 7, 10))
    x = (x + 1j * x[::-1]).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    (actual,) = get("Resize")([x, None, scales(1, 1, 2, 0.5)], attributes)
    # Every other row is between two rows; every other column is left out.
    rows = x[..., ::2].astype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)
    assert actual.dtype == x.dtype
    np.testing.assert_allclose(actual[:, :, ::2].astype(rows.dtype), rows, rtol=tolerance)
    if mode == "linear":
        between = (rows[:, :, :-1] + rows[:, :, 1:]) / 2
        np.testing.assert_allclose(actual[:, :, 1:-1:2].astype(rows.dtype), between, rtol=tolerance)


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_nothing_in_gives_nothing_out(shape: tuple[int, ...], mode: str):
    (actual,) = get("Resize")([np.ones(shape, np.float32), None, scales(1, 1, 2, 2)], {"mode": mode})
    assert actual.shape == (*shape[:2], 2 * shape[2], 8)


def test_every_axis():
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    expected = [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    assert get("Resize")([x, None, scales(2, 2)], {})[0].tolist() == expected


def test_nan_stays_where_it_is():
    x = row(1, np.nan, 3)
    (actual,) = get("Resize")([x, None, scales(1, 1, 1, 3)], {"mode": "nearest"})
    assert np.isnan(actual[0, 0, 0]).tolist() == [False] * 3 + [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    ("rest", "attributes", "error", "words"),
    [
        ([None, scales(1, 2)], {}, ShapeError, ["scales", "(2,)", "4"]),
        ([None, None, np.array([1, 1, 4])], {}, ShapeError, ["sizes", "(3,)"]),
        ([scales(0, 1), None, np.array([1, 1, 4, 4])], CROP, ShapeError, ["roi"]),
        ([None, None, np.array([1, 1, 4, 4])], CROP, OperatorError, ["roi"]),
        ([None, scales(1, 1, 2, 2), np.array([1, 1, 4, 4])], {}, OperatorError, ["scales and sizes"]),
        ([], {}, OperatorError, ["scales and sizes"]),
        ([None, scales(1, 1, 0, 2)], {}, OperatorError, ["positive"]),
        ([None, scales(1, 1, np.nan, 2)], {}, OperatorError, ["positive"]),
        ([None, scales(1, 1, 2, 2)], {"mode": "lanczos"}, OperatorError, ["lanczos"]),
        ([None, scales(1, 1, 2, 2)], {"nearest_mode": "up"}, OperatorError, ["up"]),
        ([None, scales(1, 1, 2, 2)], {"coordinate_transformation_mode": "corner"}, OperatorError, ["corner"]),
        ([None, scales(2, 2)], {"axes": [2, 2]}, OperatorError, ["axes"]),
        ([None, scales(2, 2)], {"axes": [2, 4]}, OperatorError, ["axes"]),
        ([None, None, np.array([4, 4])], {"axes": [2, 3], "keep_aspect_ratio_policy": "crop"}, OperatorError, ["crop"]),
        ([None, None, np.array([1, 1, -4, 4])], {}, ShapeError, ["-4"]),
    ],
)  # fmt: skip
def test_refuses(rest: list[Array | None], attributes: dict[str, Any], error: type[Exception], words: list[str]):
    with pytest.raises(error) as caught:
        get("Resize")([np.ones((1, 1, 3, 3), np.float32), *rest], attributes)
    assert all(word in str(caught.value) for word in words)


def test_refuses_to_make_something_of_nothing():
    with pytest.raises(ShapeError, match="0 cells"):
        get("Resize")([np.ones((1, 1, 0, 3), np.float32), None, None, np.array([1, 1, 4, 4])])


@pytest.mark.parametrize("dtype", [np.bool_, object])
def test_only_numbers_are_interpolated(dtype: Any):
    with pytest.raises(OperatorError, match="numbers only"):
        get("Resize")([np.ones((1, 1, 2, 2)).astype(dtype), None, scales(1, 1, 2, 2)], {"mode": "linear"})


def test_inputs_that_decide_about_the_shape_are_named():
    operator = find("Resize")
    assert operator is not None
    assert operator.shape_inputs == (1, 2, 3)
    call = Call("Resize", [TensorSpec((1, 1, 2, 2), np.dtype("f4")), None, TensorSpec((4,), np.dtype("f4"))], {})
    with pytest.raises(OperatorError, match="scales"):
        operator.bind(call)


@pytest.mark.parametrize(
    ("scales", "sizes", "words"),
    [([1e38, 1e38], None, "too much"), ([1e13, 1e13], None, "bytes"), (None, [1 << 62, 1 << 62], "bytes")],
)
def test_absurd_sizes_are_refused_at_once(scales: list[float] | None, sizes: list[int] | None, words: str):
    given = [np.ones((20, 20), np.float32), None, None, None]
    given[2 if scales else 3] = np.array(scales, np.float32) if scales else np.array(sizes)
    with pytest.raises(ShapeError, match=words):
        get("Resize")(given, {"mode": "cubic", "antialias": 1})


def test_an_axis_may_shrink_to_nothing_with_antialias():
    given = [np.ones((2, 3), np.float32), None, None, np.array([0, 3])]
    assert get("Resize")(given, {"mode": "linear", "antialias": 1})[0].shape == (0, 3)
