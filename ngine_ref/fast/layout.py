"""How a picture lies in memory while a region runs: in column phases, with many tiles side by side.

A feature map is an array  M[row][block][phase][channel, band, tile column]:

    picture, W = 8, two tiles a row         one row of M for one channel
    +----+----+                             phase 0   .  3        (3: a copy of its left neighbour's last pixel)
    |0123|4567|   band 0: rows 0 .. 4n-1    phase 1   0  4
    |    |    |                             phase 2   1  5
    +----+----+                             phase 3   2  6
    |    |    |   band 1: rows 4n ..        phase 4   3  7
    +----+----+                             phase 5   4  .        (4: a copy of its right neighbour's first pixel)

Rows 4t .. 4t+5 of M are the 6x6 windows of tile row t for every channel, band and tile column at once: a view, no
im2col. M has one row more at either end for what lies above and below a band. A *band* is n tile rows of one picture;
several bands lie side by side so that one GEMM sees about 64 tiles ("lanes") even where the picture is narrow; a wide
picture is cut into *blocks* of columns instead. Lanes are padded to a multiple of 16, where BLAS is fastest, and an
odd height or width to whole tiles; whatever lies beyond the picture is zero, as a convolution's padding wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from numpy.lib.stride_tricks import as_strided

from ngine_ref.fast.memory import Arena
from ngine_ref.fast.winograd import TILE, WINDOW, Float32

LANE_MULTIPLE = 16
ROW_PADDING = 16
"""Floats after each row, so that rows do not fall on the same cache sets."""


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of tile rows of one picture of the batch."""

    image: int
    first_row: int


@dataclass(frozen=True)
class Grid:
    """The part of a batch of pictures that one worker has: some bands, cut into blocks of columns."""

    height: int
    width: int
    tile_rows: int
    blocks: int
    block_tiles: int
    bands: tuple[Band, ...]

    @cached_property
    def lanes(self) -> int:
        """Tiles side by side, padding included."""
        return -(-len(self.bands) * self.block_tiles // LANE_MULTIPLE) * LANE_MULTIPLE

    @cached_property
    def rows(self) -> int:
        """Pixel rows of a band."""
        return TILE * self.tile_rows

    def pitch(self, channels: int) -> int:
        """Floats from one row of `channels` channels to the next."""
        return channels * self.lanes + ROW_PADDING

    def continues(self, upper: int) -> bool:
        """Whether the band after band `upper` lies below it in the same picture."""
        return self.bands[upper].image == self.bands[upper + 1].image

    def valid_rows(self, band: Band) -> int:
        """How many of a band's rows are inside the picture."""
        return max(0, min(self.rows, self.height - band.first_row))

    def valid_columns(self, block: int) -> int:
        """How many of a block's columns are inside the picture."""
        first = block * self.block_tiles * TILE
        return max(0, min(self.block_tiles * TILE, self.width - first))

    def of_phase(self, pixels: Float32, block: int, phase: int) -> tuple[Float32, int]:
        """The columns of pixels [..., width] that a block's phase (0 to 5) holds, and how many tiles they skip."""
        first = block * self.block_tiles * TILE + phase - 1
        skipped = 1 if first < 0 else 0
        return pixels[..., first + skipped * TILE : first + self.block_tiles * TILE : TILE], skipped

    def by_lane(self, rows: Float32, channels: int) -> Float32:
        """A view [..., channel, band, tile column] of rows [..., channel and lane (and padding)]."""
        item = rows.itemsize
        shape = (*rows.shape[:-1], channels, len(self.bands), self.block_tiles)
        return as_strided(rows, shape, (*rows.strides[:-1], self.lanes * item, self.block_tiles * item, item))


class FeatureMap:
    """One buffer for feature maps of a grid, and the views a convolution needs of it."""

    def __init__(self, grid: Grid, channels: int, arena: Arena) -> None:
        self.grid = grid
        self.channels = channels
        self.data = arena.zeros(grid.rows + 2, grid.blocks, WINDOW, grid.pitch(channels))

    def window(self, tile_row: int, block: int) -> Float32:
        """[6 rows, 6 phases and all channels and lanes]: the windows of a tile row."""
        rows = self.data[TILE * tile_row :, block]
        return as_strided(rows, (WINDOW, WINDOW * self.data.shape[-1]), (self.data.strides[0], self.data.itemsize))

    def centre(self, tile_row: int, block: int) -> Float32:
        """[4 rows, 4 phases, channels and lanes]: the pixels of a tile row, without borders."""
        first = 1 + TILE * tile_row
        return self.data[first : first + TILE, block, 1 : 1 + TILE, : self.channels * self.grid.lanes]

    def by_lane(self) -> Float32:
        """[row, block, phase, channel, band, tile column]."""
        return self.grid.by_lane(self.data, self.channels)

    def border_columns(self, tile_row: int, block: int) -> Float32:
        """[4 rows, 2, n - 1]: phase 0 from its second number on, and phase 5 up to its last but one."""
        row = self.data[1 + TILE * tile_row :, block]
        pitch = self.data.shape[-1]
        item = self.data.itemsize
        count = self.channels * self.grid.lanes - 1
        return as_strided(
            row[0, 0, 1:], (TILE, 2, count), (self.data.strides[0], ((WINDOW - 1) * pitch - 1) * item, item)
        )

    def pack(self, images: Float32, bands: tuple[Band, ...] | None = None) -> None:
        """Take over the grid's part of images [batch, channels, height, width], or other bands than the grid's own."""
        self.data[:] = 0.0
        lanes = self.by_lane()
        height = images.shape[2]
        for number, band in enumerate(bands or self.grid.bands):
            # Layout row r is picture row band.first_row - 1 + r.
            first, last = max(0, band.first_row - 1), min(height, band.first_row + self.grid.rows + 1)
            picture = images[band.image, :, first:last].transpose(1, 0, 2)
            offset = first - (band.first_row - 1)
            for block in range(self.grid.blocks):
                target = lanes[offset : offset + len(picture), block, :, :, number]
                for phase in range(WINDOW):
                    pixels, skipped = self.grid.of_phase(picture, block, phase)
                    target[:, phase, :, skipped : skipped + pixels.shape[2]] = pixels

    def unpack(self, images: Float32) -> None:
        """Write the grid's part of images [batch, channels, height, width]."""
        lanes = self.by_lane()
        for number, band in enumerate(self.grid.bands):
            rows = self.grid.valid_rows(band)
            picture = images[band.image, :, band.first_row : band.first_row + rows].transpose(1, 0, 2)
            for block in range(self.grid.blocks):
                for phase in range(1, 1 + TILE):
                    target, _ = self.grid.of_phase(picture, block, phase)
                    target[:] = lanes[1 : 1 + rows, block, phase, :, number, : target.shape[2]]
