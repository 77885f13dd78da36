"""The columns of a convolution: what its windows become so that matrix products can be made of them.

A *column* holds the input cells that one output position sees. There are two layouts, and blocks of output positions
are computed in either: `row_buffer` keeps rows of the image and sees the columns through views, `all_columns` copies
them into one matrix.

Which of the two, and how large blocks and products are, depends on shapes and element type alone; columns and sums lie
in scratch memory of one layout. So the sums have the same bits wherever the operator's input and output lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ngine_ref.numerics.dtypes import DType, wide
from ngine_ref.numerics.scratch import Request
from ngine_ref.numerics.sliding_windows import Windows
from ngine_ref.registry import Array


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


class Lane(Protocol):
    """One of those who compute blocks, one after the other, in memory of its own."""

    def compute(self, image: Array, region: Sequence[slice], out: Array) -> None:
        """Compute a block, bias included.

        Args:
            image: one image, `[group, channel of the group, *spatial]`.
            region: the block's place in the output, a slice for each spatial axis; all but the last two have length 1.
            out: where it goes, `[filter, row, column]`, of the output's element type.
        """


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

    @property
    def lane_requests(self) -> list[Request]:
        """The arrays that a lane needs."""

    def lane(self, weights: Array, bias: Array | None, arrays: Sequence[Array]) -> Lane:
        """Make a lane.

        Args:
            weights: as `pack` left them.
            bias: one number a filter.
            arrays: what `lane_requests` asked for; their content does not matter.
        """


def first_cells(windows: Windows, region: Sequence[slice], tap: Sequence[int]) -> list[int]:
    """Where in the input the cells begin that a block's windows have at this place of the kernel."""
    return [
        part.start * stride + place * dilation - pad
        for part, stride, place, dilation, pad in zip(
            region, windows.strides, tap, windows.dilations, windows.pads_begin, strict=True
        )
    ]


def even_part(size: int, most: int) -> int:
    """The size of equal parts of `size`, of at most `most` each (and at least 1)."""
    parts = -(-size // max(1, most))
    return -(-size // max(1, parts)) or 1
