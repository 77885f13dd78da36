"""The rows of a block, copied once: every column of a convolution is seen in them through a view.

The buffer holds, for each input row that the block sees, all channels one below the other, padding included:

    row 0   channel 0 | . . . . . .                 kernel column 0 sees   |=======|
            channel 1 | . . . . . .                 kernel column 1 sees     |=======|
    row 1   channel 0 | . . . . . .                 kernel column 2 sees       |=======|
            channel 1 | . . . . . .
    row 2   channel 0 | . . . . . .
            ...

The rows below each other that a kernel sees, with all their channels, are one matrix `[kernel row * channel, column]`
with a constant distance between its rows. So a column of the kernel is one product, nothing is copied for it, and three
products make a 3x3 convolution. Products are kept so small that BLAS reads both operands where they lie, instead of
packing them first: they run at the processor's peak. With a stride, cells are dealt out to as many places behind each
other, so that those of one kernel column are neighbours again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ngine_ref.numerics.columns import Geometry, even_part, first_cells
from ngine_ref.numerics.scratch import ALIGNMENT, Request, bytes_needed
from ngine_ref.numerics.sliding_windows import Windows, copy_cells, places_inside
from ngine_ref.registry import Array

BLOCK_BYTES = 5 << 18
"""Most bytes of rows and sums in a block, as far as one row allows."""
POSITIONS = 1024
"""Most positions in a block, so that there are enough blocks to share."""
SHARES = 4
"""Where there are several blocks one below the other, their number is a multiple of this: two or four threads are done
at the same time."""
BLOCK_WIDTH = 256
"""Most positions in a row of a block."""
TILE_WIDTH = 64
"""Most positions in a product: four vectors of 16."""
LEAST_WIDTH = 16
"""Fewest positions that make a product worth its while."""
MOST_FILTERS = 96
LEAST_DEPTH = 16
MOST_PRODUCTS = 32
MOST_BYTES = 8 << 20
"""Most bytes that a single row of output may need: with large strides or dilations, there is much between its cells."""
SMALL_PRODUCT = 1_000_000
"""Most multiplications in a product that BLAS does without packing."""


def suits(geometry: Geometry) -> bool:
    """Whether rows are long enough, the kernel's rows lie one below the other, and few filters meet many cells: with
    many, packing pays, and with few cells, adding up what the kernel's columns give costs more than copying. Each of
    those columns has sums of its own, so they must not be too many either."""
    windows = geometry.windows
    height, width = windows.output[-2:]
    depth = geometry.w[1] * geometry.w[-2]
    products = math.prod(geometry.w[2:-2]) * geometry.w[-1]
    are_long = height > 1 and width >= LEAST_WIDTH and max(geometry.w[2:]) > 1 and windows.dilations[-2] == 1
    are_few = 0 < geometry.filters <= MOST_FILTERS and depth >= LEAST_DEPTH and products <= MOST_PRODUCTS
    return are_long and are_few and RowBuffer(geometry).row_bytes <= MOST_BYTES


@dataclass(frozen=True)
class RowBuffer:
    """Rows of the input in a buffer, and small products of views into it."""

    geometry: Geometry

    @cached_property
    def _taps(self) -> list[tuple[int, ...]]:
        """The places of the kernel with a buffer of their own: those along the axes before the last two."""
        return list(itertools.product(*map(range, self.geometry.windows.kernel[:-2])))

    @cached_property
    def _depth(self) -> int:
        return self.geometry.w[-2] * self.geometry.w[1]

    @cached_property
    def _tile_filters(self) -> int:
        """How many filters a product has; a divisor of all where there is one of a good size."""
        filters = self.geometry.filters
        most = max(1, min(filters, SMALL_PRODUCT // (self._depth * TILE_WIDTH // 2)))
        least = most // 2 if self.geometry.group == 1 else 0
        return next((size for size in range(most, least, -1) if filters % size == 0), even_part(filters, most))

    @cached_property
    def _tiles(self) -> int:
        return -(-self.geometry.filters // self._tile_filters)

    @cached_property
    def weights_request(self) -> Request:
        """`[tap * kernel column, group, tile, filter, kernel row * channel]`."""
        g = self.geometry
        products = len(self._taps) * g.w[-1]
        return (products, g.group, self._tiles, self._tile_filters, self._depth), g.accumulator

    def pack(self, w: Array, packed: Array) -> None:
        """Move the kernel's last axis to the front, its rows before the channels; the last tile may end in zeros."""
        g = self.geometry
        products, group, tiles, size, depth = packed.shape
        ordered = np.moveaxis(w.reshape(g.group, g.filters, g.w[1], *g.w[2:]), (2, -2), (-1, -2))
        # [group, filter, *leading taps, kernel column, kernel row, channel]
        ordered = np.moveaxis(ordered, (0, 1), (-4, -3)).reshape(products, group, g.filters, depth)
        flat = packed.reshape(products, group, tiles * size, depth)
        flat[:, :, : g.filters] = ordered
        flat[:, :, g.filters :] = 0

    @cached_property
    def block(self) -> tuple[int, int]:
        """As many rows as `BLOCK_BYTES` and `POSITIONS` allow."""
        height, width = self.geometry.windows.output[-2:]
        columns = even_part(width, BLOCK_WIDTH)
        first, second = self.row_bytes, bytes_needed(*self._requests(2, columns))
        rows = min(POSITIONS // columns, 1 + max(0, BLOCK_BYTES - first) // max(1, second - first))
        blocks = -(-height // rows)
        if blocks > 1:
            blocks = -(-blocks // SHARES) * SHARES
        return -(-height // blocks), columns

    @cached_property
    def row_bytes(self) -> int:
        """How many bytes a block of one row needs."""
        return bytes_needed(*self._requests(1, even_part(self.geometry.windows.output[-1], BLOCK_WIDTH)))

    @property
    def lane_requests(self) -> list[Request]:
        """See `_requests`."""
        return self._requests(*self.block)

    def lane(self, weights: Array, bias: Array | None, arrays: Sequence[Array]) -> RowLane:
        """Make a lane."""
        buffer, products, wide = arrays
        rows, width = self.block[0], math.prod(self._parts(self.block[1]))
        products = products[:, :, : rows * width].reshape(*products.shape[:2], rows, width)
        sums = products[:, : self.geometry.w[0]]
        if bias is None:
            sums = sums[:-1]
        else:
            sums[-1] = bias[:, None, None]
        return RowLane(
            self.geometry.windows, self._cells(buffer), self._products(buffer, products, weights), sums, wide
        )

    def _parts(self, width: int) -> tuple[int, int]:
        """How many products make up a row, and how many positions each has. Together they may be more than the row."""
        most = min(TILE_WIDTH, SMALL_PRODUCT // (self._depth * self._tile_filters))
        size = even_part(width, max(LEAST_WIDTH, most))
        return -(-width // size), size

    @cached_property
    def _phases(self) -> list[int]:
        """Which of the places that a stride deals cells out to the kernel sees."""
        windows = self.geometry.windows
        return sorted({column * windows.dilations[-1] % windows.strides[-1] for column in range(windows.kernel[-1])})

    @cached_property
    def _reach(self) -> int:
        """How many places behind a position the last of its cells lies."""
        windows = self.geometry.windows
        return (windows.kernel[-1] - 1) * windows.dilations[-1] // windows.strides[-1]

    def _requests(self, rows: int, width: int) -> list[Request]:
        """The buffer, `[tap, group, row, channel, phase, cell]`; the sums of each product, and behind them the bias,
        `[product, filter, row and position]`; and what is added up, where the output's elements are narrower."""
        g, windows = self.geometry, self.geometry.windows
        computed = math.prod(self._parts(width))
        cells = self._odd_lines(computed + self._reach)
        filters = g.group * self._tiles * self._tile_filters
        return [
            ((len(self._taps), g.group, _seen(windows, rows), g.w[1], len(self._phases), cells), g.accumulator),
            ((len(self._taps) * g.w[-1] + 1, filters, self._odd_lines(rows * computed)), g.accumulator),
            ((g.w[0], rows, width) if g.dtype != g.accumulator else (0,), g.accumulator),
        ]

    def _odd_lines(self, count: int) -> int:
        """As many elements or some more, an odd number of cache lines: at a distance of the cache's size, rows of a
        matrix would push each other out of it."""
        line = ALIGNMENT // self.geometry.accumulator.itemsize
        return (-(-count // line) | 1) * line

    def _cells(self, buffer: Array) -> list[Cells]:
        """What is copied into the buffer for a block. Cells beside the image are set to zero here where they are the
        same in all blocks, since each block is as wide as the output."""
        windows = self.geometry.windows
        _, group, input_rows, channels, _, _ = buffer.shape
        count, stride = math.prod(self._parts(self.block[1])) + self._reach, windows.strides[-1]
        shape = (group, channels, *(1 for _ in windows.kernel[:-2]), input_rows, count)
        found = []
        for (place, tap), (index, phase) in itertools.product(enumerate(self._taps), enumerate(self._phases)):
            target = buffer[place, :, :, :, index, :count].transpose(0, 2, 1, 3).reshape(shape)
            first = 0
            if self.block[1] == windows.output[-1]:
                start = phase - windows.pads_begin[-1]
                first, last = places_inside(count, self.geometry.x[-1], start, stride)
                target[..., :first] = target[..., last:] = 0
                target = target[..., first:last]
            found.append(Cells((*tap, 0, 0), phase + first * stride, target))
        return found

    def _products(self, buffer: Array, products: Array, weights: Array) -> list[Product]:
        """The products of a whole block, as views."""
        windows = self.geometry.windows
        _, group, tiles, filters, depth = weights.shape
        rows = products.shape[2]
        parts, size = self._parts(self.block[1])
        item, (_, per_group, per_row, per_channel, per_phase, _) = buffer.itemsize, buffer.strides
        stride, dilation, columns = windows.strides[-1], windows.dilations[-1], windows.kernel[-1]
        # [product, row, group, tile, part, filter or depth, position]
        sums = products[:-1].reshape(-1, group, tiles, filters, rows, parts, size).transpose(0, 4, 1, 2, 5, 3, 6)
        # Without a stride, the cells of all kernel columns are equally far from each other: they make one call.
        together = columns if stride == 1 else 1
        shape = (together, rows, group, 1, parts, depth, size)
        strides = (dilation * item, per_row * windows.strides[-2], per_group, 0, size * item, per_channel, item)
        found = []
        for place, column in itertools.product(range(len(self._taps)), range(0, columns, together)):
            shift, phase = divmod(column * dilation, stride)
            offset = self._phases.index(phase) * per_phase + shift * item
            seen = np.ndarray(shape, buffer.dtype, buffer[place], offset, strides)
            chosen = slice(place * columns + column, place * columns + column + together)
            found.append(Product(weights[chosen, None, :, :, None], seen, sums[chosen]))
        return found


class Cells(NamedTuple):
    """Cells of the image that are copied into the buffer."""

    tap: tuple[int, ...]
    """Their place in the kernel, but for the last two axes."""
    shift: int
    """Which cell of a window's row is the first."""
    target: Array
    """`[group, channel, *ones, row, cell]`."""


class Product(NamedTuple):
    """One call of `matmul`, with one or several columns of the kernel."""

    filters: Array
    """`[kernel column, 1, group, tile, 1, filter, depth]`."""
    seen: Array
    """`[kernel column, output row, group, 1, part, depth, position]`."""
    sums: Array
    """`[kernel column, output row, group, tile, part, filter, position]`."""


class RowLane:
    """Computes blocks. Threads wait for each other whenever they come back from NumPy to the interpreter, so a block
    is few calls: a copy, a product and a sum."""

    def __init__(
        self, windows: Windows, cells: Sequence[Cells], products: Sequence[Product], sums: Array, wide: Array
    ) -> None:
        self._windows = windows
        self._cells = cells
        self._products = products
        self._sums = sums
        self._wide = wide

    def compute(self, image: Array, region: Sequence[slice], out: Array) -> None:
        """Compute a block, see `columns.Lane`."""
        windows = self._windows
        _, rows, width = out.shape
        seen, steps = _seen(windows, rows), (*windows.strides[:-2], 1, windows.strides[-1])
        for tap, shift, target in self._cells:
            *starts, last = first_cells(windows, region, tap)
            copy_cells(target[..., :seen, :], image, [*starts, last + shift], steps)
        for filters, cells, into in self._products:
            np.matmul(filters, cells[:, :rows], out=into[:, :rows])
        sums = self._sums[:, :, :rows, :width]
        total = out if out.dtype == sums.dtype else self._wide[:, :rows, :width]
        if len(sums) == 1:
            total[...] = sums[0]
        else:
            np.add.reduce(sums, axis=0, out=total)
        if total is not out:
            out[...] = total


def _seen(windows: Windows, rows: int) -> int:
    """How many input rows that many output rows see."""
    return (rows - 1) * windows.strides[-2] + windows.kernel[-2]
