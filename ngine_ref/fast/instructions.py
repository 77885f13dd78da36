"""The steps of a program as flat lists of NumPy calls on views that are built once.

An instruction is a NumPy function bound to its arguments and its output. Building a view costs as much as a small
GEMM, so a part's instructions are made when sizes are known and only called when data comes. For one tile row of one
convolution they are

    window of the map --B'--> rows --B'--> V        two small matmuls over long rows, only for new channels
    U @ V --> M                                     36 GEMMs in one call, then the bias on one plane
    M --A'--> half --A'--> y                        two small matmuls
    y --elementwise--> y'                           in registers: arrays small enough to stay in cache
    y' --> pixels of the map, its border columns    zeros first, where a tile sticks out of the picture
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ngine_ref.fast.arithmetic import Instruction
from ngine_ref.fast.layout import FeatureMap, Grid
from ngine_ref.fast.memory import Arena
from ngine_ref.fast.winograd import (
    BIAS_PLANE,
    OUTPUT_TRANSFORM,
    PLANES,
    TILE,
    WINDOW,
    WINDOW_TRANSFORM,
    Float32,
)


def execute(instructions: Iterable[Instruction]) -> None:
    """Call them one after another."""
    for instruction in instructions:
        instruction()


class Transforms:
    """Scratch memory of one worker: transformed windows V, products M and what lies between."""

    def __init__(self, grid: Grid, kept_channels: int, most_inputs: int, most_outputs: int, arena: Arena) -> None:
        self.grid = grid
        self.arena = arena
        items = grid.tile_rows * grid.blocks
        self.kept = self._windows(items, kept_channels) if kept_channels else None
        self.passing = self._windows(1, most_inputs)
        self.half_window = arena.zeros(PLANES * grid.pitch(most_inputs))
        self.products = arena.zeros(PLANES * grid.pitch(most_outputs))
        self.half_tile = arena.zeros(TILE * WINDOW * grid.pitch(most_outputs))

    def _windows(self, items: int, channels: int) -> Float32:
        """V [item, 6, 6, channels and lanes]."""
        return self.arena.zeros(items, WINDOW, WINDOW, self.grid.pitch(channels))

    def _item(self, kept: bool, item: int) -> Float32:
        windows: Float32 = self.passing[0]
        if kept:
            assert self.kept is not None, "the schedule says how many channels are kept"
            windows = self.kept[item]
        return windows

    def forward(
        self, source: FeatureMap, tile_row: int, block: int, kept: bool, first_channel: int
    ) -> list[Instruction]:
        """Transform the windows of all channels of a map into V from `first_channel` on."""
        lanes, pitch = self.grid.lanes, self.grid.pitch(source.channels)
        half = self.half_window[: PLANES * pitch]
        rows = half.reshape(WINDOW, WINDOW, pitch)[:, :, : source.channels * lanes]
        first = first_channel * lanes
        target = self._item(kept, tile_row * self.grid.blocks + block)[:, :, first : first + source.channels * lanes]
        return [
            partial(np.matmul, WINDOW_TRANSFORM, source.window(tile_row, block), half.reshape(WINDOW, WINDOW * pitch)),
            partial(np.matmul, WINDOW_TRANSFORM, rows, target),
        ]

    def multiply(
        self, filters: Float32, bias: Float32 | None, tile_row: int, block: int, kept: bool, result: Float32
    ) -> list[Instruction]:
        """Products with the filter bank [36, N, C], transformed back into `result` [4, 4, channels and lanes]."""
        _, outputs, inputs = filters.shape
        lanes, pitch = self.grid.lanes, self.grid.pitch(outputs)
        windows = self._item(kept, tile_row * self.grid.blocks + block)
        windows = windows.reshape(PLANES, -1)[:, : inputs * lanes].reshape(PLANES, inputs, lanes)
        products = self.products[: PLANES * pitch]
        half = self.half_tile[: TILE * WINDOW * pitch]
        by_plane = products.reshape(PLANES, pitch)[:, : outputs * lanes].reshape(PLANES, outputs, lanes)
        by_row = half.reshape(TILE, WINDOW, pitch)[:, :, : outputs * lanes]
        add_bias = [] if bias is None else [partial(np.add, by_plane[BIAS_PLANE], bias[:, None], by_plane[BIAS_PLANE])]
        return [
            partial(np.matmul, filters, windows, by_plane),
            *add_bias,
            partial(np.matmul, OUTPUT_TRANSFORM, products.reshape(WINDOW, -1), half.reshape(TILE, -1)),
            partial(np.matmul, OUTPUT_TRANSFORM, by_row, result),
        ]


class Writer:
    """Stores registers into feature maps, with zeros beyond the picture and copies of border columns."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._column_masks: dict[int, Float32] = {}
        self._row_masks_of: dict[int, tuple[Float32, Float32]] = {}

    def store(
        self, register: Float32, target: FeatureMap, tile_row: int, block: int, bordered: bool
    ) -> list[Instruction]:
        """Copy `register` [4, 4, channels and lanes] to a tile row of a map."""
        instructions = self._zero_outside(register, target.channels, tile_row, block)
        instructions.append(partial(np.copyto, target.centre(tile_row, block), register))
        if bordered:
            instructions += self._border_columns(register, target, tile_row, block)
        return instructions

    def _zero_outside(self, register: Float32, channels: int, tile_row: int, block: int) -> list[Instruction]:
        lanes = self.grid.by_lane(register, channels)
        views = []
        columns = self.grid.valid_columns(block)
        for phase in range(TILE):
            inside = max(0, -(-(columns - phase) // TILE))
            views.append(lanes[:, phase, :, :, inside:])
        for number, band in enumerate(self.grid.bands):
            inside = max(0, self.grid.valid_rows(band) - tile_row * TILE)
            views.append(lanes[inside:, :, :, number])
        return [partial(view.fill, 0.0) for view in views if view.size]

    def _border_columns(self, register: Float32, target: FeatureMap, tile_row: int, block: int) -> list[Instruction]:
        count = target.channels * self.grid.lanes - 1
        row, phase = register.strides[:2]
        item = register.itemsize
        # Phase 0 takes phase 4 of the tile to the left, phase 5 takes phase 1 of the tile to the right; the register
        # has phases 1 to 4 as 0 to 3. Read from the register: NumPy copies operands that interleave in one array.
        source = as_strided(register[0, TILE - 1], (TILE, 2, count), (row, item - (TILE - 1) * phase, item))
        mask = self._column_mask(target.channels)
        instructions: list[Instruction] = [partial(np.multiply, source, mask, target.border_columns(tile_row, block))]
        if block:
            lanes = target.by_lane()[1 + TILE * tile_row : 1 + TILE * (tile_row + 1)]
            left, right = lanes[:, block - 1], lanes[:, block]
            instructions.append(partial(np.copyto, right[:, 0, :, :, 0], left[:, TILE, :, :, -1]))
            instructions.append(partial(np.copyto, left[:, WINDOW - 1, :, :, -1], right[:, 1, :, :, 0]))
        return instructions

    def _column_mask(self, channels: int) -> Float32:
        """[2, n - 1]: 0 where a tile has no neighbour in its own band and block."""
        if channels not in self._column_masks:
            used = len(self.grid.bands) * self.grid.block_tiles
            lane = np.tile(np.arange(self.grid.lanes), channels)
            column = np.where(lane < used, lane % self.grid.block_tiles, 0)
            last = np.where(lane < used, column == self.grid.block_tiles - 1, True)
            self._column_masks[channels] = np.stack([column[1:] != 0, ~last[:-1]]).astype(np.float32)
        return self._column_masks[channels]

    def border_rows(self, target: FeatureMap) -> list[Instruction]:
        """After all tile rows: the border rows that bands of this grid have for each other.

        All bands at once: a row shifted by one band, times a mask that is 0 where there is no such neighbour.
        """
        if not any(self.grid.continues(upper) for upper in range(len(self.grid.bands) - 1)):
            return []
        rows = target.data.reshape(len(target.data), -1)
        shift = self.grid.block_tiles
        from_above, from_below = self._row_masks(target.channels)
        return [
            partial(np.multiply, rows[-2, :-shift], from_above, rows[0, shift:]),
            partial(np.multiply, rows[1, shift:], from_below, rows[-1, :-shift]),
        ]

    def _row_masks(self, channels: int) -> tuple[Float32, Float32]:
        if channels not in self._row_masks_of:
            masks = np.zeros((2, self.grid.blocks, WINDOW, self.grid.pitch(channels)), np.float32)
            above, below = self.grid.by_lane(masks, channels)
            for upper in range(len(self.grid.bands) - 1):
                if self.grid.continues(upper):
                    above[:, :, :, upper + 1] = 1.0
                    below[:, :, :, upper] = 1.0
            shift = self.grid.block_tiles
            self._row_masks_of[channels] = masks[0].reshape(-1)[shift:], masks[1].reshape(-1)[:-shift]
        return self._row_masks_of[channels]
