"""One convolution, block by block: products, bias, epilogue, each while the block is in the cache.

A block is a rectangle of output positions of one image, for all output channels:

    input x --Columns.multiply--> sums --add bias, round to the output's dtype--> values --epilogue--> output

Blocks are independent of each other, and each is computed in scratch memory of its own. So the result has the same
bits whatever the epilogue, wherever the output lies, and whoever computes which block.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ngine_ref.numerics.columns import Columns, Geometry, columns_of
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
    def block_bytes(self) -> int:
        """How much scratch memory a block needs."""
        return bytes_needed(*self._requests(self._block_shape))

    @cached_property
    def regions(self) -> list[Region]:
        """The blocks."""
        ranges = [
            [slice(start, min(start + step, size)) for start in range(0, size, step)]
            for size, step in zip(self.geometry.windows.output, self._block_shape, strict=True)
        ]
        return list(itertools.product([slice(n, n + 1) for n in range(self.geometry.x[0])], *ranges))

    def compute_block(
        self,
        region: Region,
        weights: Array,
        operands: Sequence[Array | None],
        out: Array,
        epilogue: Epilogue | None,
        memory: Array,
    ) -> None:
        """Compute one block of `out` from the node's inputs (x, w, bias, ...) and the packed weights."""
        batch, *spatial = region
        shape = [part.stop - part.start for part in spatial]
        values, *arrays = carve(memory, *self._requests(shape))
        x, bias = operands[0], operands[2] if len(operands) > 2 else None
        assert x is not None, "the input of a convolution is never absent"
        geometry = self.geometry
        image = self._spread(x)[batch.start].reshape(geometry.group, geometry.w[1], *geometry.x[2:])
        sums = self.columns.multiply(image, spatial, weights, arrays).reshape(values.shape)
        place = self._spread(out)[(batch.start, slice(None), *spatial)]
        finished = values if epilogue else place
        if bias is None:
            finished[...] = sums
        else:
            per_filter = bias.astype(sums.dtype, copy=False).reshape(-1, *(1 for _ in shape))
            np.add(sums, per_filter, out=finished, casting="unsafe")
        if epilogue:
            epilogue(Block(values, region, operands, self.flat))
            place[...] = values

    @cached_property
    def _block_shape(self) -> tuple[int, ...]:
        return (*(1 for _ in self.geometry.w[4:]), *self.columns.block)

    def _requests(self, shape: Sequence[int]) -> list[Request]:
        values = (self.geometry.w[0], *shape), self.geometry.dtype
        return [values, *self.columns.requests(shape[-2], shape[-1])]

    def _spread(self, image: Array) -> Array:
        """An input or output with at least two spatial axes, a view."""
        return image[:, :, None] if self.flat else image


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
