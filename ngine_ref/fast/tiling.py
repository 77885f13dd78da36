"""Cutting a batch of pictures into bands and blocks, one grid a worker.

    two workers, height 61 (16 tile rows), width 83 (21 tiles)

    worker 0   band 0   tile rows  0 .. 3   \\  side by side: 2 x 21 = 42 lanes, padded to 48
               band 1   tile rows  4 .. 7   /
    worker 1   band 2   tile rows  8 .. 11
               band 3   tile rows 12 .. 15

The number of lanes decides the speed: a GEMM wants about 64 of them, rows of numbers want to be long, and every tile
row costs some thirty calls into NumPy. The cost below was fitted to measurements of a 64-channel dense block; only
its ratios matter. The cut depends on the sizes and the number of parts alone, never on how many workers then turn
up, so that a run gives the same bits with one worker as with two.
"""

from __future__ import annotations

from itertools import pairwise

from ngine_ref.fast.layout import LANE_MULTIPLE, Band, Grid
from ngine_ref.fast.winograd import TILE
from ngine_ref.worker_pool import core_count

PARTS = min(core_count(), 16)
"""Parts a picture is cut into, one a core. The bits of a result depend on it, so it does not follow the number of
workers that a run gets."""
CALLS = 7.0
"""What the calls of one tile row cost, in lanes."""
LANE_COST = {16: 1.3, 32: 1.05, 48: 1.12, 64: 1.0, 80: 1.06, 96: 1.06, 112: 1.08, 128: 1.08}
"""Cost of a lane where a GEMM has that many."""
TOO_MANY = 1.4
"""Cost of a lane beyond 128: a tile row no longer fits the cache."""
MOST_LANES = 192


def _cost(lanes: int, rows_of_tiles: int) -> float:
    padded = -(-lanes // LANE_MULTIPLE) * LANE_MULTIPLE
    return rows_of_tiles * (CALLS + padded * LANE_COST.get(padded, TOO_MANY))


def cut(batch: int, height: int, width: int, parts: int) -> tuple[Grid, ...]:
    """The cheapest cut of `batch` pictures into at most `parts` grids (fewer where there are not enough tile rows)."""
    tall, wide = -(-height // TILE), -(-width // TILE)
    best: tuple[float, int, int] | None = None
    for blocks in range(1, wide + 1):
        block_tiles = -(-wide // blocks)
        if -(-wide // block_tiles) < blocks:
            continue
        if block_tiles > MOST_LANES:
            continue
        for tile_rows in range(1, tall + 1):
            lanes = -(-batch * -(-tall // tile_rows) // parts) * block_tiles
            if lanes > MOST_LANES and tile_rows < tall:
                continue
            cost = _cost(lanes, tile_rows * blocks)
            if best is None or cost < best[0]:
                best = (cost, blocks, tile_rows)
        if block_tiles < LANE_MULTIPLE:
            break
    assert best is not None, "blocks of 16 tiles always fit"
    _, blocks, tile_rows = best
    bands = [Band(image, row * TILE) for image in range(batch) for row in range(0, tall, tile_rows)]
    parts = min(parts, len(bands))
    edges = [len(bands) * part // parts for part in range(parts + 1)]
    return tuple(
        Grid(height, width, tile_rows, blocks, -(-wide // blocks), tuple(bands[first:last]))
        for first, last in pairwise(edges)
    )


def joined(above: Grid, below: Grid) -> bool:
    """Whether the last band of one grid and the first of the next lie one above the other in a picture."""
    return above.bands[-1].image == below.bands[0].image


def block_width(width: int, tile_rows: int) -> tuple[int, int]:
    """How many blocks of columns a single band is best cut into, and how many tiles wide they are."""
    wide = -(-width // TILE)
    candidates = {-(-wide // blocks) for blocks in range(1, wide + 1)}
    tiles = min(candidates, key=lambda tiles: (_cost(tiles, -(-wide // tiles) * tile_rows), tiles))
    return -(-wide // tiles), tiles
