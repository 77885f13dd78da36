"""The columns of a convolution: two ways to turn windows into matrices, and to multiply them with the weights.

A *column* holds the input cells that one output position sees. `Together` puts all taps of the kernel and all
positions of a block into one matrix, `[tap * channel, position]`, for one large product.

`ByRows` puts the input rows of a block into columns once, a matrix `[tap in a row * channel, column]` each, and every
row of the kernel sees them through a view:

    columns  | row 0 | row 1 | row 2 | row 3 |       block of two rows, kernel of three
    kernel 0 |===============|                       sums  = w[0] @ view 0
    kernel 1         |===============|               sums += w[1] @ view 1
    kernel 2                 |===============|       sums += w[2] @ view 2

That copies a third, and the products are small enough for BLAS to read both operands where they lie, instead of
packing them first, which for few output channels costs as much as multiplying.

Which of the two, and how large blocks and products are, depends on shapes and element type alone; columns and sums lie
in scratch memory of one layout. So the sums have the same bits wherever the operator's input and output lie.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ngine_ref.numerics.dtypes import DType, wide
from ngine_ref.numerics.scratch import Request
from ngine_ref.numerics.sliding_windows import Windows, copy_cells, spatial_view
from ngine_ref.registry import Array

POSITIONS = 1024
"""Most output positions in a block: enough to make up for what a block costs, few enough to stay in the cache."""
COLUMN_BYTES = 2 << 20
"""Most bytes of columns in a block, as far as one row allows."""
ROW_WIDTH = 64
"""Most positions in a row of a block by rows: four vectors of 16, and a row of columns fits into the first cache."""
SMALL_PRODUCT = 1_000_000
"""Most multiplications in a product that BLAS does without packing."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shapes of a convolution with at least two spatial axes."""

    x: tuple[int, ...]
    """`[batch, channel, *spatial]`."""
    w: tuple[int, ...]
    """`[filter, channel of a group, *kernel]`."""
    windows: Windows
    group: int
    dtype: DType

    @property
    def accumulator(self) -> DType:
        """The element type of columns, packed weights and sums."""
        return wide(self.dtype)

    @property
    def filters(self) -> int:
        """How many output channels a group has."""
        return self.w[0] // self.group


class Columns(Protocol):
    """One way to lay out columns."""

    @property
    def weights_request(self) -> Request:
        """What the packed weights need."""

    def pack(self, w: Array, packed: Array) -> None:
        """Rearrange the weights as the products want them; narrow floats become float32."""

    @property
    def block(self) -> tuple[int, int]:
        """How many rows and columns of output positions a block has; blocks at the end may have fewer."""

    def requests(self, rows: int, width: int) -> list[Request]:
        """The arrays that a block of this size needs."""

    def multiply(self, image: Array, region: Sequence[slice], weights: Array, arrays: Sequence[Array]) -> Array:
        """The sums `[filter, row, column]` of a block: a view into one of the arrays that `requests` asked for.

        Args:
            image: one image, `[group, channel of the group, *spatial]`.
            region: the block's place in the output, a slice for each spatial axis; all but the last two have length 1.
            weights: as `pack` left them.
            arrays: what `requests` asked for; their content does not matter.
        """


def columns_of(geometry: Geometry) -> Columns:
    """The better way for these shapes: by rows where rows are long, and many cells meet few output channels."""
    height, width = geometry.windows.output[-2:]
    depth = geometry.w[1] * geometry.w[-1]
    by_rows = height > 1 and width >= 16 and geometry.w[-2] > 1 and depth >= 9 and geometry.filters <= 96
    return ByRows(geometry) if by_rows else Together(geometry)


@dataclass(frozen=True)
class Together:
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
        columns = _even_part(width, most)
        return _even_part(height, most // columns), columns

    def requests(self, rows: int, width: int) -> list[Request]:
        """Columns and sums."""
        g = self.geometry
        return [
            ((g.group, len(self._taps), g.w[1], rows, width), g.accumulator),
            ((g.group, g.filters, rows * width), g.accumulator),
        ]

    def multiply(self, image: Array, region: Sequence[slice], weights: Array, arrays: Sequence[Array]) -> Array:
        """One product a group."""
        columns, sums = arrays
        rows, width = columns.shape[-2:]
        np.matmul(weights, self._matrices(image, region, columns), out=sums)
        return sums.reshape(self.geometry.w[0], rows, width)

    def _matrices(self, image: Array, region: Sequence[slice], columns: Array) -> Array:
        """The columns, `[group, tap * channel, position]`; where each is a cell of the input, that is the input."""
        windows = self.geometry.windows
        group, taps, channels, rows, width = columns.shape
        if windows.is_pointwise and image.dtype == columns.dtype:
            cells = spatial_view(image, region, len(region))
            if cells.strides[-1] == cells.itemsize and (rows == 1 or cells.strides[-2] == width * cells.itemsize):
                return cells.reshape(group, channels, rows * width)
        for index, tap in enumerate(self._taps):
            target = columns[:, index].reshape(group, channels, *(1 for _ in region[:-2]), rows, width)
            copy_cells(target, image, _starts(windows, region, tap), windows.strides)
        return columns.reshape(group, taps * channels, rows * width)


@dataclass(frozen=True)
class ByRows:
    """A matrix for each input row, `[tap in a row * channel, column]`, seen by every row of the kernel."""

    geometry: Geometry

    @cached_property
    def _taps(self) -> list[tuple[int, ...]]:
        *leading, _, width = map(range, self.geometry.windows.kernel)
        return list(itertools.product(*leading, range(1), width))

    @cached_property
    def _depth(self) -> int:
        return len(self._taps) * self.geometry.w[1]

    @cached_property
    def weights_request(self) -> Request:
        """`[kernel row, group, filter, tap * channel]`."""
        g = self.geometry
        return (g.w[-2], g.group, g.filters, self._depth), g.accumulator

    def pack(self, w: Array, packed: Array) -> None:
        """Move the kernel's rows to the front and the channels behind the other taps."""
        ordered = np.moveaxis(w, (-2, 1), (0, -1))
        packed.reshape(ordered.shape)[...] = ordered

    @cached_property
    def block(self) -> tuple[int, int]:
        """Rows of equal width, and as many as `POSITIONS` and `COLUMN_BYTES` allow."""
        height, width = self.geometry.windows.output[-2:]
        columns = _even_part(width, ROW_WIDTH)
        row_bytes = self._depth * self.geometry.group * columns * self.geometry.accumulator.itemsize
        rows = (COLUMN_BYTES // row_bytes - self._input_rows(1)) // self.geometry.windows.strides[-2] + 1
        return _even_part(height, min(POSITIONS // columns, rows)), columns

    def _input_rows(self, rows: int) -> int:
        """How many input rows that many output rows look at."""
        windows = self.geometry.windows
        return (rows - 1) * windows.strides[-2] + (windows.kernel[-2] - 1) * windows.dilations[-2] + 1

    def requests(self, rows: int, width: int) -> list[Request]:
        """Columns, sums, and one more product to add to them."""
        g = self.geometry
        sums = (rows, g.group, g.filters, width), g.accumulator
        return [((self._input_rows(rows), g.group, len(self._taps), g.w[1], width), g.accumulator), sums, sums]

    def multiply(self, image: Array, region: Sequence[slice], weights: Array, arrays: Sequence[Array]) -> Array:
        """Small products: a row of output, a row of the kernel, and as much of the depth as BLAS takes unpacked."""
        columns, sums, product = arrays
        windows = self.geometry.windows
        self._fill(image, region, columns)
        input_rows, group, taps, channels, width = columns.shape
        matrices = columns.reshape(input_rows, group, taps * channels, width)
        rows, stride, dilation = sums.shape[0], windows.strides[-2], windows.dilations[-2]
        depth = _even_part(self._depth, SMALL_PRODUCT // (self.geometry.filters * width))
        into = sums
        for kernel_row, start in itertools.product(range(len(weights)), range(0, self._depth, depth)):
            first, part = kernel_row * dilation, slice(start, start + depth)
            seen = matrices[first : first + (rows - 1) * stride + 1 : stride, :, part]
            np.matmul(weights[kernel_row, :, :, part], seen, out=into)
            if into is product:
                np.add(sums, product, out=sums)
            into = product
        return sums.reshape(rows, self.geometry.w[0], width).swapaxes(0, 1)

    def _fill(self, image: Array, region: Sequence[slice], columns: Array) -> None:
        windows = self.geometry.windows
        input_rows, group, _, channels, width = columns.shape
        steps = (*windows.strides[:-2], 1, windows.strides[-1])
        for index, tap in enumerate(self._taps):
            target = columns[:, :, index].transpose(1, 2, 0, 3)
            shape = (group, channels, *(1 for _ in region[:-2]), input_rows, width)
            copy_cells(target.reshape(shape), image, _starts(windows, region, tap), steps)


def _starts(windows: Windows, region: Sequence[slice], tap: Sequence[int]) -> list[int]:
    """Where in the input the cells begin that a block's windows have at this place of the kernel."""
    return [
        part.start * stride + place * dilation - pad
        for part, stride, place, dilation, pad in zip(
            region, windows.strides, tap, windows.dilations, windows.pads_begin, strict=True
        )
    ]


def _even_part(size: int, most: int) -> int:
    """The size of equal parts of `size`, of at most `most` each (and at least 1)."""
    parts = -(-size // max(1, most))
    return -(-size // max(1, parts)) or 1
