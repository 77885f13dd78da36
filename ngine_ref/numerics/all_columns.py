"""The columns of a block in one matrix, for one large product.

    [tap * channel, position]

Every cell is copied once for each window that sees it, and BLAS packs the operands again before it multiplies: right
for images too small for `row_buffer`, and for pointwise convolutions, where the image is that matrix already.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ngine_ref.numerics.columns import Geometry, even_part, first_cells
from ngine_ref.numerics.scratch import Request
from ngine_ref.numerics.sliding_windows import copy_cells, spatial_view
from ngine_ref.registry import Array

POSITIONS = 1024
"""Most output positions in a block: enough to make up for what a block costs, few enough to stay in the cache."""
COLUMN_BYTES = 2 << 20
"""Most bytes of columns in a block, as far as one row allows."""


@dataclass(frozen=True)
class AllColumns:
    """All taps and positions of a block in one matrix a group."""

    geometry: Geometry

    @cached_property
    def _taps(self) -> list[tuple[int, ...]]:
        return list(itertools.product(*map(range, self.geometry.windows.kernel)))

    @cached_property
    def _depth(self) -> int:
        return len(self._taps) * self.geometry.w[1]

    @cached_property
    def weights_request(self) -> Request:
        """`[group, filter, tap * channel]`."""
        return (self.geometry.group, self.geometry.filters, self._depth), self.geometry.accumulator

    def pack(self, w: Array, packed: Array) -> None:
        """Move the channels behind the taps."""
        ordered = np.moveaxis(w, 1, -1)
        packed.reshape(ordered.shape)[...] = ordered

    @cached_property
    def block(self) -> tuple[int, int]:
        """As many positions as `POSITIONS` and `COLUMN_BYTES` allow, at least one vector unit's worth."""
        bytes_each = max(1, self._depth * self.geometry.group * self.geometry.accumulator.itemsize)
        most = min(POSITIONS, max(64, COLUMN_BYTES // bytes_each))
        height, width = self.geometry.windows.output[-2:]
        columns = even_part(width, most)
        return even_part(height, most // columns), columns

    @property
    def lane_requests(self) -> list[Request]:
        """Columns and sums."""
        g = self.geometry
        positions = self.block[0] * self.block[1]
        return [((g.group * self._depth * positions,), g.accumulator), ((g.w[0] * positions,), g.accumulator)]

    def lane(self, weights: Array, bias: Array | None, arrays: Sequence[Array]) -> MatrixLane:
        """Make a lane."""
        return MatrixLane(self.geometry, self._taps, weights, bias, arrays)


class MatrixLane:
    """Computes blocks by one product a group each."""

    def __init__(
        self,
        geometry: Geometry,
        taps: Sequence[tuple[int, ...]],
        weights: Array,
        bias: Array | None,
        arrays: Sequence[Array],
    ) -> None:
        self._geometry = geometry
        self._taps = taps
        self._weights = weights
        self._bias = None if bias is None else bias.astype(geometry.accumulator, copy=False)[:, None, None]
        self._columns, self._sums = arrays

    def compute(self, image: Array, region: Sequence[slice], out: Array) -> None:
        """Compute a block, see `columns.Lane`."""
        g = self._geometry
        shape = (g.group, len(self._taps), g.w[1], *out.shape[1:])
        columns = self._columns[: math.prod(shape)].reshape(shape)
        sums = self._sums[: out.size].reshape(g.group, g.filters, math.prod(out.shape[1:]))
        np.matmul(self._weights, self._matrices(image, region, columns), out=sums)
        if self._bias is None:
            out[...] = sums.reshape(out.shape)
        else:
            np.add(sums.reshape(out.shape), self._bias, out=out, casting="unsafe")

    def _matrices(self, image: Array, region: Sequence[slice], columns: Array) -> Array:
        """The columns, `[group, tap * channel, position]`; where each is a cell of the input, that is the input."""
        windows = self._geometry.windows
        group, taps, channels, rows, width = columns.shape
        if windows.is_pointwise and image.dtype == columns.dtype:
            cells = spatial_view(image, region, len(region))
            if cells.strides[-1] == cells.itemsize and (rows == 1 or cells.strides[-2] == width * cells.itemsize):
                return cells.reshape(group, channels, rows * width)
        for index, tap in enumerate(self._taps):
            target = columns[:, index].reshape(group, channels, *(1 for _ in region[:-2]), rows, width)
            copy_cells(target, image, first_cells(windows, region, tap), windows.strides)
        return columns.reshape(group, taps * channels, rows * width)
