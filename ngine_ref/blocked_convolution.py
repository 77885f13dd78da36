"""One convolution, block by block: columns, matrix products, bias, epilogue, each while the block is in the cache.

A block is a rectangle of output positions of one image, for all output channels:

    input x --copy_cells--> columns [group, tap * channel, position] --matmul--> sums [group, channel, position]
      sums + bias --round to the output's dtype--> values --epilogue, in place--> output

Where the kernel moves down by single rows, the input rows of a block are put into columns once, and each row of the
kernel sees them through a view that starts further down:

    columns  | row 0 | row 1 | row 2 | row 3 |       block of two rows, kernel of three
    kernel 0 |===============|                       sums  = w[0] @ view 0
    kernel 1         |===============|               sums += w[1] @ view 1
    kernel 2                 |===============|       sums += w[2] @ view 2

Otherwise all taps of the kernel become columns of a single product. The partition into blocks depends on shapes and
element type alone, and everything in a block lies in scratch memory of one layout. So the result has the same bits
whatever the epilogue, wherever the output lies, and whoever computes which block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ngine_ref.dtypes import DType, wide
from ngine_ref.registry import Array
from ngine_ref.scratch import Request, carve
from ngine_ref.sliding_windows import Windows, copy_cells, spatial_view

POSITIONS = 1024
"""Most output positions in a block: enough for BLAS to be fast, few enough for sums and values to stay in cache."""
WIDTH = 128
"""Most positions in a row of a block, where there are several rows: more rows share more of their columns."""
COLUMN_BYTES = 2 << 20
"""Most bytes of columns in a block, as far as one row allows."""

Region = tuple[slice, ...]
"""A block's place in the output: one slice each for batch and spatial axes."""


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
        places = (batch, slice(None), *spatial)[-operand.ndim or len(self.region) + 1 :]
        piece = operand[tuple(slice(None) if n == 1 else at for n, at in zip(operand.shape, places, strict=True))]
        return piece[0] if piece.ndim > len(self.region) else piece


Epilogue = Callable[[Block], None]
"""Changes the values of a block in place."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution bound to shapes; spatial axes are at least two (`flat` says that the first one is made up)."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    windows: Windows
    group: int
    dtype: DType
    flat: bool

    @classmethod
    def of(cls, x: tuple[int, ...], w: tuple[int, ...], windows: Windows, group: int, dtype: DType) -> Convolution:
        """The convolution of an image of shape `x` with weights of shape `w`, both as ONNX has them."""
        if len(x) > 3:
            return cls(x, w, windows, group, dtype, flat=False)
        (kernel,), (stride,), (dilation,) = windows.kernel, windows.strides, windows.dilations
        widened = Windows(
            (1, kernel),
            (1, stride),
            (1, dilation),
            (0, *windows.pads_begin),
            (0, *windows.pads_end),
            (1, *windows.output),
        )
        return cls((*x[:2], 1, x[2]), (*w[:2], 1, w[2]), widened, group, dtype, flat=True)

    @property
    def shares_rows(self) -> bool:
        """Whether kernel rows see one set of columns. Adding up their products must cost less than the copies saved."""
        channels, width = self.w[1], self.w[-1]
        return self.w[-2] > 1 and self.windows.strides[-2] == 1 and channels * width >= max(64, self.w[0] // self.group)

    @property
    def kernel_rows(self) -> int:
        """How many matrix products make up a block."""
        return self.w[-2] if self.shares_rows else 1

    @property
    def halo(self) -> int:
        """How many more rows of columns than of output a block has."""
        return (self.kernel_rows - 1) * self.windows.dilations[-2]

    @property
    def taps(self) -> list[tuple[int, ...]]:
        """The places in the kernel that have columns of their own."""
        sizes = list(self.windows.kernel)
        if self.shares_rows:
            sizes[-2] = 1
        return list(itertools.product(*map(range, sizes)))

    @property
    def packed_request(self) -> Request:
        """The weights, rearranged: `[kernel row, group, channel of the group, tap * input channel]`."""
        depth = self.w[1] * math.prod(self.windows.kernel) // self.kernel_rows
        return (self.kernel_rows, self.group, self.w[0] // self.group, depth), wide(self.dtype)

    def pack(self, w: Array, packed: Array) -> None:
        """Rearrange the weights so that each kernel row is one matrix a group; narrow floats become float32."""
        kernel = self.windows.kernel
        spatial = list(range(3, 3 + len(kernel)))
        rows = [spatial.pop(-2)] if self.shares_rows else []
        weights = w.reshape(self.group, -1 if w.size else self.w[0] // self.group, self.w[1], *kernel)
        ordered = weights.transpose(*rows, 0, 1, *spatial, 2)
        packed.reshape(ordered.shape)[...] = ordered

    @property
    def block_shape(self) -> tuple[int, ...]:
        """How many output positions a block has along each spatial axis; blocks at the end may have fewer."""
        *leading, height, width = self.windows.output
        bytes_each = max(1, len(self.taps) * self.x[1] * wide(self.dtype).itemsize)
        limit = POSITIONS if height == 1 or self.windows.is_pointwise else WIDTH
        columns = _even_part(width, min(limit, max(64, COLUMN_BYTES // bytes_each)))
        rows = min(POSITIONS // columns, COLUMN_BYTES // (bytes_each * columns) - self.halo)
        return (*(1 for _ in leading), _even_part(height, rows), columns)

    def requests(self, shape: Sequence[int]) -> list[Request]:
        """The arrays that a block of this shape needs: columns, sums, one more product, rounded values."""
        *leading, height, width = shape
        accumulator = wide(self.dtype)
        channels = self.w[0]
        return [
            ((self.group, len(self.taps), self.w[1], *leading, height + self.halo, width), accumulator),
            ((self.group, channels // self.group, height * width), accumulator),
            ((self.group, channels // self.group, height * width if self.kernel_rows > 1 else 0), accumulator),
            ((channels, *shape) if accumulator != self.dtype else (0,), self.dtype),
        ]

    def regions(self) -> Iterator[Region]:
        """The blocks, which are independent of each other."""
        ranges = [
            [slice(start, min(start + step, size)) for start in range(0, size, step)]
            for size, step in zip(self.windows.output, self.block_shape, strict=True)
        ]
        batch = [slice(n, n + 1) for n in range(self.x[0])]
        return itertools.product(batch, *ranges)

    def spread(self, image: Array) -> Array:
        """An input or output as this convolution sees it, a view."""
        return image[:, :, None] if self.flat else image

    def compute_block(
        self,
        region: Region,
        packed: Array,
        operands: Sequence[Array | None],
        out: Array,
        epilogue: Epilogue | None,
        memory: Array,
    ) -> None:
        """Compute one block, from the node's inputs (x, w, bias, ...) to the output, in scratch memory of its own."""
        batch, *spatial = region
        shape = [part.stop - part.start for part in spatial]
        columns, sums, product, rounded = carve(memory, *self.requests(shape))
        x = operands[0]
        assert x is not None, "the input of a convolution is never absent"
        image = self.spread(x)[batch.start].reshape(self.group, self.w[1], *self.x[2:])
        self._multiply(packed, self._columns(image, spatial, columns), sums, product)
        values = sums.reshape(self.w[0], *shape)
        bias = operands[2] if len(operands) > 2 else None
        if bias is not None:
            values += bias.astype(values.dtype, copy=False).reshape(-1, *(1 for _ in shape))
        if rounded.size:
            rounded[...] = values
            values = rounded
        if epilogue:
            epilogue(Block(values, region, operands, self.flat))
        self.spread(out)[(batch.start, slice(None), *spatial)] = values

    def _columns(self, image: Array, spatial: Sequence[slice], columns: Array) -> Array:
        """The columns of a block, `[group, tap * channel, position]`."""
        windows = self.windows
        if windows.is_pointwise and image.dtype == columns.dtype:
            cells = spatial_view(image, spatial, len(spatial))
            height, width = cells.shape[-2:]
            if cells.strides[-1] == cells.itemsize and (height == 1 or cells.strides[-2] == width * cells.itemsize):
                return cells.reshape(self.group, self.w[1], height * width)
        for index, tap in enumerate(self.taps):
            starts = [
                part.start * stride + offset * dilation - pad
                for part, stride, offset, dilation, pad in zip(
                    spatial, windows.strides, tap, windows.dilations, windows.pads_begin, strict=True
                )
            ]
            copy_cells(columns[:, index], image, starts, windows.strides)
        positions = math.prod(columns.shape[3:])
        return columns.reshape(self.group, len(self.taps) * self.w[1], positions)

    def _multiply(self, packed: Array, columns: Array, sums: Array, product: Array) -> None:
        """Add up the products of all kernel rows with the columns that each one sees."""
        positions = sums.shape[-1]
        row = (columns.shape[-1] - positions) // self.halo if self.halo else 0
        for index, weights in enumerate(packed):
            start = index * row * self.windows.dilations[-2]
            np.matmul(weights, columns[:, :, start : start + positions], out=product if index else sums)
            if index:
                np.add(sums, product, out=sums)


def _even_part(size: int, most: int) -> int:
    """The size of equal parts of `size`, of at most `most` each (and at least 1)."""
    parts = -(-size // max(1, most))
    return -(-size // max(1, parts)) or 1
