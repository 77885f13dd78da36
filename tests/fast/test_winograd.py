"""The transforms: exact identities first, then the error in float32."""

from __future__ import annotations

import numpy as np
from fast.reference import convolve

from ngine_ref.fast.winograd import (
    BIAS_PLANE,
    OUTPUT_TRANSFORM,
    PLANES,
    TILE,
    WINDOW,
    WINDOW_TRANSFORM,
    toom_cook,
    transformed_filters,
)


def test_the_three_matrices_correlate_exactly():
    """A' ((G g) * (B' d)) is the correlation of six numbers with three taps, for basis vectors: so for all."""
    output, filters, window = toom_cook()
    for tap in range(3):
        for place in range(WINDOW):
            product = output @ (filters[:, tap] * window[:, place])
            expected = [float(row + tap == place) for row in range(TILE)]
            np.testing.assert_allclose(product, expected, atol=1e-14)


def test_other_points_and_tiles_correlate_too():
    output, filters, window = toom_cook((0.0, 1.0, -1.0), tile=2)
    signal, taps = np.array([1.0, -2.0, 3.5, 4.0]), np.array([0.5, 2.0, -1.0])
    product = output @ ((filters @ taps) * (window @ signal))
    np.testing.assert_allclose(product, [signal[:3] @ taps, signal[1:] @ taps], atol=1e-14)


def test_float32_holds_the_picture_transforms_exactly():
    output, _, window = toom_cook()
    np.testing.assert_array_equal(OUTPUT_TRANSFORM, output)
    np.testing.assert_array_equal(WINDOW_TRANSFORM, window)


def test_a_number_on_the_bias_plane_spreads_over_the_tile():
    products = np.zeros(PLANES, np.float32)
    products[BIAS_PLANE] = 3.0
    tile = OUTPUT_TRANSFORM @ products.reshape(WINDOW, WINDOW) @ OUTPUT_TRANSFORM.T
    np.testing.assert_array_equal(tile, np.full((TILE, TILE), 3.0))


def test_one_window_in_float32():
    random = np.random.default_rng(0)
    weight = random.standard_normal((5, 7, 3, 3)).astype(np.float32)
    window = random.standard_normal((1, 7, WINDOW, WINDOW)).astype(np.float32)
    bank = transformed_filters(weight, scale=0.5)
    planes = np.einsum("ai,bj,cij->abc", WINDOW_TRANSFORM, WINDOW_TRANSFORM, window[0]).reshape(PLANES, 7)
    products = np.einsum("pnc,pc->np", bank, planes).reshape(5, WINDOW, WINDOW)
    tile = OUTPUT_TRANSFORM @ products @ OUTPUT_TRANSFORM.T
    expected = 0.5 * convolve(window, weight, None)[0, :, 1 : 1 + TILE, 1 : 1 + TILE]
    np.testing.assert_allclose(tile, expected, atol=2e-5)
