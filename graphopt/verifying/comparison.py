"""When two arrays are the same result: the tolerances, written down, and how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Two numbers agree when |a - b| <= relative * |b| + absolute * max(1, the largest |b| of the tensor).

    The second part is what a whole network may add up to: an error made where numbers are large reaches small ones.
    """

    relative: float
    absolute: float


TOLERANCES: dict[np.dtype[Any], Tolerance] = {
    np.dtype(np.float64): Tolerance(1e-9, 1e-10),
    np.dtype(np.float32): Tolerance(1e-4, 1e-5),
    np.dtype(np.float16): Tolerance(1e-2, 2e-3),
    np.dtype(ml_dtypes.bfloat16): Tolerance(5e-2, 1e-2),
    np.dtype(np.complex64): Tolerance(1e-4, 1e-5),
    np.dtype(np.complex128): Tolerance(1e-9, 1e-10),
}
"""By element type. float16 and bfloat16: a few units in the last place, after a network that rounds at every node.
All other types, integers and booleans among them, must agree exactly."""

EXACT = Tolerance(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Difference:
    """How two arrays compare."""

    ok: bool
    max_abs_error: float
    max_rel_error: float
    of_tolerance: float
    """The largest error as a part of what is tolerated there; above 1 the arrays differ."""
    at: tuple[int, ...]
    """Where the error is largest, measured by what is tolerated there."""
    reason: str = ""
    """Why they cannot be compared element by element: another shape or element type."""


SAME = Difference(True, 0.0, 0.0, 0.0, ())


def compare(
    actual: Array, expected: Array, *, relative: float | None = None, absolute: float | None = None
) -> Difference:
    """Compare a result with the oracle's.

    Args:
        actual: what is judged.
        expected: the oracle's; its element type chooses the tolerance.
        relative: in place of the tolerance's relative part.
        absolute: in place of its absolute part.

    NaN agrees with NaN, and an infinity with itself.
    """
    if actual.shape != expected.shape:
        return Difference(False, np.inf, np.inf, np.inf, (), f"shape {list(actual.shape)}, not {list(expected.shape)}")
    if actual.dtype != expected.dtype:
        return Difference(False, np.inf, np.inf, np.inf, (), f"element type {actual.dtype}, not {expected.dtype}")
    if expected.size == 0:
        return SAME
    tolerance = TOLERANCES.get(expected.dtype, EXACT)
    if expected.dtype.kind in "OUSb":
        wrong = actual != expected
        return _whole(not wrong.any(), _where(wrong))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    with np.errstate(all="ignore"):
        error = np.asarray(np.abs(a - b))  # of scalars, NumPy makes a number that is no array
        error[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
        error[np.isnan(error)] = np.inf
        size = np.asarray(np.abs(b))
        finite = size[np.isfinite(size)]
        largest = float(finite.max()) if finite.size else 0.0
        bound = (tolerance.relative if relative is None else relative) * np.where(np.isfinite(size), size, 0.0)
        bound += (tolerance.absolute if absolute is None else absolute) * max(1.0, largest)
        relative_error = error / np.maximum(np.where(np.isfinite(size), size, 1.0), 1e-3 * max(largest, 1e-30))
        share = np.where(error > 0, error / bound, 0.0)
    return Difference(
        ok=bool((error <= bound).all()),
        max_abs_error=float(error.max()),
        max_rel_error=float(relative_error.max()),
        of_tolerance=float(share.max()),
        at=_where(share),
    )


def _whole(same: bool, at: tuple[int, ...] = ()) -> Difference:
    """The outcome for what is either the same or not."""
    return SAME if same else Difference(False, np.inf, np.inf, np.inf, at)


def _where(error: Array) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(int(np.argmax(error)), error.shape))


def compare_values(actual: Any, expected: Any, **tolerances: float | None) -> Difference:
    """Compare two values of any kind: tensors as by `compare`, sequences and maps part by part."""
    if isinstance(expected, np.ndarray | np.generic):
        return compare(np.asarray(actual), np.asarray(expected), **tolerances)
    if isinstance(expected, dict):
        actual, expected = list(actual.items()), list(expected.items())
    if isinstance(expected, Sequence) and not isinstance(expected, str | bytes):
        if not isinstance(actual, Sequence) or len(actual) != len(expected):
            return Difference(False, np.inf, np.inf, np.inf, (), "another number of parts")
        parts = [compare_values(one, other, **tolerances) for one, other in zip(actual, expected, strict=True)]
        return max(parts, key=lambda part: part.of_tolerance, default=SAME)
    return _whole(bool(actual == expected))
