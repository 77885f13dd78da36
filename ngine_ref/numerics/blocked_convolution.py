"""One convolution, block by block: products, bias, epilogue, each while the block is in the cache.

A block is a rectangle of output positions of one image, for all output channels:

    input x --Columns.multiply--> sums --add bias, round to the output's dtype--> values --epilogue--> output

Blocks are independent of each other, and each is computed in scratch memory of its own. So the result has the same
bits whatever the epilogue, wherever the output lies, and whoever computes which block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ngine_ref.numerics.all_columns import AllColumns
from ngine_ref.numerics.columns import Columns, Geometry, Lane
from ngine_ref.numerics.row_buffer import RowBuffer, suits
from ngine_ref.numerics.scratch import Request, bytes_needed, carve
from ngine_ref.numerics.sliding_windows import Windows
from ngine_ref.registry import Array

Region = tuple[slice, ...]
"""A block's place in the output: a slice for the batch (of length 1) and one for each spatial axis."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the output, finished but for the epilogue."""

    values: Array
    """`[channel, *spatial]`, contiguous, of the output's element type; the epilogue changes it in place."""
    region: Region
    operands: Sequence[Array | None]
    """All inputs of the node."""
    flat: bool
    """Whether a spatial axis of size 1 was put in front of the only one there is."""

    def part(self, slot: int) -> Array:
        """What of input `slot`, which broadcasts to the output, lies on this block: it broadcasts to `values`."""
        operand = self.operands[slot]
        assert operand is not None, f"input {slot} is bound as present"
        if self.flat and operand.ndim:
            operand = np.expand_dims(operand, -2)
        batch, *spatial = self.region
        places = [batch, slice(None), *spatial][1 + len(self.region) - operand.ndim :]
        piece = operand[tuple(slice(None) if n == 1 else at for n, at in zip(operand.shape, places, strict=True))]
        return piece[0] if piece.ndim > len(self.region) else piece


Epilogue = Callable[[Block], None]
"""Changes the values of a block in place."""


@dataclass(frozen=True)
class BlockedConvolution:
    """A convolution bound to shapes."""

    geometry: Geometry
    columns: Columns
    flat: bool
    """The image has one spatial axis; another one of size 1 is put in front of it."""

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """`[batch, filter, *windows]`, as the operator's caller sees it."""
        spatial = self.geometry.windows.output
        return (self.geometry.x[0], self.geometry.w[0], *(spatial[1:] if self.flat else spatial))

    @cached_property
    def lane_bytes(self) -> int:
        """How much scratch memory a lane needs."""
        return bytes_needed(self._values_request, *self.columns.lane_requests)

    @cached_property
    def regions(self) -> list[Region]:
        """The blocks."""
        ranges = [
            [slice(start, min(start + step, size)) for start in range(0, size, step)]
            for size, step in zip(self.geometry.windows.output, self._block_shape, strict=True)
        ]
        return list(itertools.product([slice(n, n + 1) for n in range(self.geometry.x[0])], *ranges))

    def lane(self, operands: Sequence[Array | None], weights: Array, memory: Array) -> BlockLane:
        """Somebody to compute blocks from the node's inputs (x, w, bias, ...) and the packed weights."""
        values, *arrays = carve(memory, self._values_request, *self.columns.lane_requests)
        bias = operands[2] if len(operands) > 2 else None
        return BlockLane(self, self.columns.lane(weights, bias, arrays), operands, values)

    @cached_property
    def _block_shape(self) -> tuple[int, ...]:
        return (*(1 for _ in self.geometry.w[4:]), *self.columns.block)

    @cached_property
    def _values_request(self) -> Request:
        return (self.geometry.w[0] * math.prod(self._block_shape),), self.geometry.dtype

    def spread(self, image: Array) -> Array:
        """An input or output with at least two spatial axes, a view."""
        return image[:, :, None] if self.flat else image


class BlockLane:
    """Computes blocks one after the other, in memory of its own."""

    def __init__(
        self, convolution: BlockedConvolution, sums: Lane, operands: Sequence[Array | None], values: Array
    ) -> None:
        g, x = convolution.geometry, operands[0]
        assert x is not None, "the input of a convolution is never absent"
        self._convolution = convolution
        self._sums = sums
        self._operands = operands
        self._values = values
        self._images = convolution.spread(x).reshape(g.x[0], g.group, g.w[1], *g.x[2:])

    def compute(self, region: Region, out: Array, epilogue: Epilogue | None) -> None:
        """Compute one block of the output and what follows it."""
        batch, *spatial = region
        shape = [self._convolution.geometry.w[0], *(part.stop - part.start for part in spatial)]
        place = self._convolution.spread(out)[(batch.start, slice(None), *spatial)]
        flat = (shape[0], *shape[-2:])
        if epilogue is None:
            self._sums.compute(self._images[batch.start], spatial, place.reshape(flat))
            return
        values = self._values[: math.prod(shape)].reshape(shape)
        self._sums.compute(self._images[batch.start], spatial, values.reshape(flat))
        epilogue(Block(values, region, self._operands, self._convolution.flat))
        place[...] = values


def columns_of(geometry: Geometry) -> Columns:
    """The better layout for these shapes."""
    return RowBuffer(geometry) if suits(geometry) else AllColumns(geometry)


def blocked_convolution(geometry: Geometry) -> BlockedConvolution:
    """Lay out the blocks of a convolution, whose geometry may have a single spatial axis."""
    if len(geometry.x) > 3:
        return BlockedConvolution(geometry, columns_of(geometry), flat=False)
    x, w, windows = geometry.x, geometry.w, geometry.windows
    widened = Windows(
        kernel=(1, *windows.kernel),
        strides=(1, *windows.strides),
        dilations=(1, *windows.dilations),
        pads_begin=(0, *windows.pads_begin),
        pads_end=(0, *windows.pads_end),
        output=(1, *windows.output),
    )
    image = Geometry((*x[:2], 1, *x[2:]), (*w[:2], 1, *w[2:]), widened, geometry.group, geometry.dtype)
    return BlockedConvolution(image, columns_of(image), flat=True)
