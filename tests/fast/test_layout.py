"""Pictures cut into grids and back, and the windows that a convolution sees."""

from __future__ import annotations

import numpy as np
import pytest

from ngine_ref.fast.layout import FeatureMap, Grid
from ngine_ref.fast.memory import LINE, Arena
from ngine_ref.fast.tiling import MOST_TILES, block_width, cut, pictures_at_once
from ngine_ref.fast.winograd import TILE, WINDOW

SIZES = [(1, 1, 1), (1, 4, 4), (2, 5, 3), (1, 61, 83), (3, 7, 70), (1, 64, 64), (2, 3, 1100), (7, 2, 2), (1, 700, 5)]


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
def test_every_row_of_every_picture_is_in_one_band(batch, height, width, parts):
    grids = cut(batch, height, width, parts)
    assert 1 <= len(grids) <= parts
    assert len({grid.tile_rows for grid in grids}) == 1
    rows = [
        (band.image, band.first_row + row)
        for grid in grids
        for band in grid.bands
        for row in range(grid.valid_rows(band))
    ]
    assert rows == [(image, row) for image in range(batch) for row in range(height)]
    for grid in grids:
        assert sum(grid.valid_columns(block) for block in range(grid.blocks)) == width
        assert grid.valid_columns(grid.blocks - 1) > 0
        assert grid.lanes >= len(grid.bands) * grid.block_tiles


def test_wide_pictures_are_cut_into_blocks_and_narrow_ones_into_bands():
    (wide,) = cut(1, 64, 4096, 1)
    assert wide.blocks > 1
    assert wide.lanes <= MOST_TILES
    (narrow,) = cut(1, 256, 32, 1)
    assert narrow.blocks == 1
    assert len(narrow.bands) > 1


def test_a_large_batch_is_done_in_portions():
    """One picture at a time where it fills the lanes, several where it does not, and never a huge buffer."""
    assert pictures_at_once(8, 128, 128, 2) == 1
    assert pictures_at_once(1, 16, 16, 2) == 1
    assert 4 <= pictures_at_once(100, 16, 16, 2) <= 16
    for batch in (3, 30, 500):
        some = pictures_at_once(batch, 64, 64, 2)
        assert all(grid.lanes <= 128 for grid in cut(some, 64, 64, 2))


def test_a_strip_is_cut_into_blocks_that_cover_it():
    for width in (1, 3, 64, 255, 256, 1030, 9001):
        blocks, tiles = block_width(width, 8)
        assert (blocks - 1) * tiles * TILE < width <= blocks * tiles * TILE
        assert tiles <= 160


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
def test_what_is_packed_comes_back(batch, height, width, parts):
    images = np.random.default_rng(0).random((batch, 3, height, width), np.float32)
    back = np.full_like(images, np.nan)
    for grid in cut(batch, height, width, parts):
        buffer = FeatureMap(grid, 3, Arena())
        buffer.data[:] = np.nan
        buffer.pack(images)
        buffer.unpack(back)
    np.testing.assert_array_equal(back, images)


@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
def test_windows_are_those_of_the_padded_picture(batch, height, width):
    images = np.random.default_rng(1).random((batch, 2, height, width), np.float32)
    padded = np.pad(images, ((0, 0), (0, 0), (1, 2 * TILE + 800), (1, 2 * TILE + 800)))
    for grid in cut(batch, height, width, 2):
        buffer = FeatureMap(grid, 2, Arena())
        buffer.pack(images)
        for tile_row in range(grid.tile_rows):
            for block in range(grid.blocks):
                rows = buffer.window(tile_row, block).reshape(WINDOW, WINDOW, -1)
                windows = grid.by_lane(rows, 2)
                for number, band in enumerate(grid.bands):
                    top = band.first_row + TILE * tile_row
                    left = TILE * block * grid.block_tiles
                    for row in range(WINDOW):
                        for phase in range(WINDOW):
                            columns = slice(left + phase, left + phase + TILE * grid.block_tiles, TILE)
                            expected = padded[band.image, :, top + row, columns]
                            np.testing.assert_array_equal(windows[row, phase, :, number], expected)


def test_a_strip_takes_its_border_rows_from_the_picture():
    images = np.random.default_rng(2).random((1, 1, 20, 4), np.float32)
    grid = Grid(8, 4, 2, 1, 1, cut(1, 8, 4, 1)[0].bands[:1])
    buffer = FeatureMap(grid, 1, Arena())
    buffer.pack(images, (type(grid.bands[0])(0, 5),))
    np.testing.assert_array_equal(buffer.by_lane()[:, 0, 1, 0, 0, 0], images[0, 0, 4:14, 0])


def test_buffers_start_at_cache_lines_and_not_at_equal_offsets_in_a_page():
    arena = Arena()
    buffers = [arena.zeros(16, 2048) for _ in range(8)]
    starts = [buffer.ctypes.data for buffer in buffers]
    assert all(start % (4 * LINE) == 0 for start in starts)
    assert len({start % 4096 for start in starts}) == len(buffers)
    for number, buffer in enumerate(buffers):
        buffer[:] = number
    assert all((buffer == number).all() for number, buffer in enumerate(buffers))
