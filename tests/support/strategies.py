"""Random shapes and arrays for hypothesis: small, but of every rank, with size 1 and 0 among them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from ngine_ref.registry import Array

FLOATS = (np.float16, np.float32, np.float64)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
filled_shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], dtype: type[np.generic], *, special: bool = True) -> Array:
    """Random numbers of the whole range of an integer dtype, or floats around 0 with NaN and infinities among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
    values = rng.normal(size=shape) * draw(st.sampled_from([1.0, 20.0]))
    if special and draw(st.booleans()):
        odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
        values = np.where(rng.random(shape) < 0.3, odd, values)
    return np.asarray(values, kind)


@st.composite
def broadcastable(draw: st.DrawFn, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast with each other, some of them of lower rank."""
    full = draw(shapes)
    found = []
    for _ in range(count):
        kept = full[draw(st.integers(0, len(full))) :]
        found.append(tuple(1 if draw(st.booleans()) else size for size in kept))
    return found
