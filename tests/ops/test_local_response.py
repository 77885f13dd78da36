"""LRN and GlobalMaxPool against loops written from the specification, and against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from support.one_node import onnxruntime_outputs
from support.text_models import Array

from ngine_ref import get
from ngine_ref.errors import ShapeError


def image(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(-30, 30, shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 20])
def test_lrn_sums_over_neighbouring_channels(size: int) -> None:
    x = image(2, 7, 3, 2)
    expected = np.empty(x.shape)
    for c in range(7):
        first, last = max(0, c - (size - 1) // 2), min(6, c + -(-(size - 1) // 2))
        total = (x[:, first : last + 1].astype(np.float64) ** 2).sum(1)
        expected[:, c] = x[:, c] / (2.0 + 0.5 / size * total) ** 0.75
    (found,) = get("LRN")([x], {"size": size, "alpha": 0.5, "beta": 0.75, "bias": 2.0})
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_lrn_like_onnxruntime() -> None:
    x = image(1, 16, 4, 4)
    attributes = {"size": 5, "alpha": 0.01, "beta": 0.75, "bias": 1.0}
    (found,) = get("LRN")([x], attributes)
    np.testing.assert_allclose(found, onnxruntime_outputs("LRN", [x], attributes)[0], rtol=1e-5)


def test_lrn_of_float16_is_summed_in_float32() -> None:
    (found,) = get("LRN")([np.full((1, 5, 1), 200, np.float16)], {"size": 5, "alpha": 1e-4})
    assert found.dtype == np.float16
    np.testing.assert_allclose(found[0, 2, 0], 200 / (1 + 4) ** 0.75, rtol=1e-3)


def test_lrn_without_channels() -> None:
    with pytest.raises(ShapeError, match="LRN needs"):
        get("LRN")([np.ones(3, np.float32)], {"size": 3})


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 2)])
def test_global_max_pool_of_every_rank(shape: tuple[int, ...]) -> None:
    x = image(*shape)
    (found,) = get("GlobalMaxPool")([x])
    assert found.shape == (2, 3, *(1 for _ in shape[2:]))
    np.testing.assert_array_equal(found.ravel(), x.reshape(2, 3, -1).max(2).ravel())
    if len(shape) > 2:
        np.testing.assert_array_equal(found, onnxruntime_outputs("GlobalMaxPool", [x], {})[0])


def test_global_max_pool_of_nothing_and_of_nan() -> None:
    assert get("GlobalMaxPool")([np.ones((1, 1, 0), np.float32)])[0] == -np.inf
    assert np.isnan(get("GlobalMaxPool")([np.array([[[1.0, np.nan]]], np.float32)])[0])
