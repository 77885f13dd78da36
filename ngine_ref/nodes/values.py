"""What can be said of a value at run time, and done with it, whatever kind it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngine_ref.loading.graph import Value
from ngine_ref.registry import TensorSpec


def spec_of(value: Value) -> TensorSpec | None:
    """Shape and element type of a tensor; None for anything else."""
    return TensorSpec(value.shape, value.dtype) if isinstance(value, np.ndarray) else None


def size_of(value: Value) -> int:
    """Bytes of a tensor, or of all tensors of a sequence."""
    if isinstance(value, list):
        return sum(map(size_of, value))
    return value.nbytes if isinstance(value, np.ndarray) else 0


def copied(value: Value) -> Value:
    """A contiguous copy, also of the tensors in a sequence."""
    if isinstance(value, np.ndarray):
        return np.array(value, order="C")
    if isinstance(value, list):
        return [copied(item) for item in value]
    return dict(value) if isinstance(value, dict) else value


def detached(value: Value, sources: Sequence[Value]) -> Value:
    """The value, but with a copy of every tensor that may share memory with a source."""
    if isinstance(value, list):
        return [detached(item, sources) for item in value]
    if isinstance(value, np.ndarray):
        for source in sources:
            if isinstance(source, np.ndarray) and np.may_share_memory(value, source):
                return copied(value)
    return value
