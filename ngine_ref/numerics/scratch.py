"""Scratch memory of a kernel: how much it needs, and the arrays carved out of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngine_ref.registry import Array

ALIGNMENT = 64
"""Every carved array starts at a multiple of this many bytes, a cache line and the widest vector register."""

Request = tuple[Sequence[int], np.dtype[Any]]
"""The shape and element type of one array."""


def _aligned_size(request: Request) -> int:
    shape, dtype = request
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


def bytes_needed(*requests: Request) -> int:
    """How many bytes `carve` takes for these arrays."""
    return sum(map(_aligned_size, requests))


def carve(memory: Array, *requests: Request) -> list[Array]:
    """Contiguous, uninitialised arrays that lie one behind the other in `memory` (one-dimensional, uint8)."""
    arrays = []
    start = 0
    for request in requests:
        shape, dtype = request
        used = math.prod(shape) * dtype.itemsize
        arrays.append(memory[start : start + used].view(dtype).reshape(shape))
        start += _aligned_size(request)
    return arrays
