"""Weights of convolutions, rearranged once and shared.

A session keeps a plan for each combination of input shapes, and every plan binds the same constant weights. What they
are rearranged to depends on few of those shapes, so that plans share it as long as one of them lives.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np

from ngine_ref.numerics.columns import Columns
from ngine_ref.numerics.dtypes import DType
from ngine_ref.registry import Array


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """Constant weights as a layout of columns wants them."""

    source: Array
    """The weights as the model has them; held so that their identity stays theirs."""
    packed: Array


_Key = tuple[int, tuple[int, ...], DType]
_shared: WeakValueDictionary[_Key, PackedWeights] = WeakValueDictionary()
_lock = threading.Lock()


def packed_weights(columns: Columns, w: Array) -> PackedWeights:
    """The rearranged weights: those that another kernel has already, if nobody can have written to `w` since."""
    shape, dtype = columns.weights_request
    if w.flags.writeable:
        return _pack(columns, w)
    key = id(w), tuple(shape), dtype
    with _lock:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = _pack(columns, w)
        return found


def _pack(columns: Columns, w: Array) -> PackedWeights:
    packed = np.empty(*columns.weights_request)
    columns.pack(w, packed)
    return PackedWeights(w, packed)
