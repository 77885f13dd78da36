"""erf and erfc against the C library's."""

import math

import numpy as np
import pytest

from ngine_ref.numerics.error_function import erf, erfc

X = np.concatenate([np.linspace(-6, 6, 20_001), np.geomspace(1e-300, 1, 500), [0.0, 1.0, -1.0, 28.0, 40.0, np.inf]])


@pytest.mark.parametrize(("dtype", "ulps"), [(np.float64, 2), (np.float32, 3)])
def test_erf_to_the_last_places(dtype: type[np.floating], ulps: int):
    x = X.astype(dtype)
    exact = np.array([math.erf(value) for value in x.astype(np.float64)])
    error = np.abs(erf(x).astype(np.float64) - exact)
    assert erf(x).dtype == dtype
    assert (error <= ulps * np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_erfc_keeps_its_digits_in_the_tail(dtype: type[np.floating]):
    x = X[X < 9].astype(dtype)
    exact = np.array([math.erfc(value) for value in x.astype(np.float64)])
    allowed = (4 + 2 * x.astype(np.float64) ** 2) * np.finfo(dtype).eps * exact
    assert (np.abs(erfc(x).astype(np.float64) - exact) <= allowed + np.finfo(dtype).tiny).all()


def test_ends_and_nan():
    assert erf(np.array([-np.inf, np.inf, 1e300])).tolist() == [-1, 1, 1]
    assert erfc(np.array([-np.inf, np.inf, 1e300])).tolist() == [2, 0, 0]
    assert np.isnan(erf(np.array([np.nan]))).all()
    assert math.copysign(1, erf(np.array([-0.0]))[0]) == -1
