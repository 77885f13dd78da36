"""Memory for buffers: large pages, cache lines, and no two buffers that get in each other's way.

    chunk of 8 MiB   | buffer 0 | skew | buffer 1 | skew | buffer 2 | ...          (a larger buffer is its own chunk)

Three facts make an arena worth it. Chunks this large get pages of 2 MiB (NumPy asks for them from 4 MiB on), which a
sweep over hundreds of megabytes of filter banks needs. Buffers start at a cache line. And they do not all start at
the same offset in a page, as separate allocations would: a core that loads and stores at equal offsets modulo 4096
takes the load for a reader of the store and waits, which made elementwise passes three times slower.
"""

from __future__ import annotations

import numpy as np

from ngine_ref.fast.winograd import Float32

CHUNK = 2 << 20
"""Floats in a chunk."""
LINE = 16
"""Floats in a cache line."""
SKEW = 13 * LINE
"""Floats between two buffers: odd in cache lines, so that equal sizes drift apart."""


class Arena:
    """Hands out zeroed buffers and lives as long as any of them."""

    def __init__(self, chunk: int = CHUNK) -> None:
        self._chunk_size = chunk
        self._chunk = np.zeros(0, np.float32)
        self._used = 0
        self.bytes = 0
        """What has been handed out."""

    def zeros(self, *shape: int) -> Float32:
        """A buffer of that shape."""
        count = int(np.prod(shape))
        self.bytes += 4 * count
        start = self._used + (-(self._chunk.ctypes.data // 4 + self._used)) % LINE
        if start + count > self._chunk.size:
            self._chunk = np.zeros(max(self._chunk_size, count) + LINE, np.float32)
            start = (-(self._chunk.ctypes.data // 4)) % LINE
        self._used = start + count + SKEW
        return self._chunk[start : start + count].reshape(shape)
