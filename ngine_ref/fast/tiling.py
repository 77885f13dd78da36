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
MANY = 128
TOO_MANY = 1.4
"""Cost of a lane where there are more than that: a tile row no longer fits the cache. It grows with their number."""
MEETING = 10.0
"""What it costs that parts wait for each other in every step, in lanes."""
SAVING = 1.04
"""How much slower fewer pictures at once may be, for the memory they save."""
MOST_TILES = 192
"""Tiles of a block beyond which none is tried."""


def _cost(lanes: int, rows_of_tiles: int) -> float:
    padded = -(-lanes // LANE_MULTIPLE) * LANE_MULTIPLE
    each = LANE_COST.get(padded, TOO_MANY * padded / MANY)
    return rows_of_tiles * (CALLS + padded * each)


def cut(batch: int, height: int, width: int, parts: int) -> tuple[Grid, ...]:
    """The cheapest cut of `batch` pictures into one grid, or into `parts` grids that work at the same time."""
    _, count, blocks, tile_rows = _cheapest(batch, height, width, parts)
    tall, wide = -(-height // TILE), -(-width // TILE)
    bands = [Band(image, row * TILE) for image in range(batch) for row in range(0, tall, tile_rows)]
    count = min(count, len(bands))
    edges = [len(bands) * part // count for part in range(count + 1)]
    return tuple(
        Grid(height, width, tile_rows, blocks, -(-wide // blocks), tuple(bands[first:last]))
        for first, last in pairwise(edges)
    )


def pictures_at_once(batch: int, height: int, width: int, parts: int) -> int:
    """How many pictures of a batch are best done at once: enough to fill the lanes, and no more memory than that."""
    counts = [1 << power for power in range((batch - 1).bit_length())] + [batch]

    def cost(count: int) -> float:
        rest = batch % count
        last = _cheapest(rest, height, width, parts)[0] if rest else 0.0
        return batch // count * _cheapest(count, height, width, parts)[0] + last

    costs = {count: cost(count) for count in counts}
    return next(count for count in counts if costs[count] <= SAVING * min(costs.values()))


def _cheapest(batch: int, height: int, width: int, parts: int) -> tuple[float, int, int, int]:
    """The cost of the best cut, its number of parts, of blocks, and of tile rows in a band."""
    tall, wide = -(-height // TILE), -(-width // TILE)
    options = []
    for count in sorted({1, min(parts, batch * tall)}):
        for blocks, block_tiles in _blocks(wide):
            for tile_rows in range(1, tall + 1):
                bands = -(-batch * -(-tall // tile_rows) // count)
                cost = _cost(bands * block_tiles, tile_rows * blocks) + MEETING * (count > 1)
                options.append((cost, count, blocks, tile_rows))
    return min(options)


def _blocks(wide: int) -> list[tuple[int, int]]:
    """Sensible numbers of blocks for a number of tiles, and how many tiles wide the blocks are then."""
    widths = {-(-wide // blocks) for blocks in range(1, wide + 1)}
    return [
        (-(-wide // tiles), tiles) for tiles in widths if tiles in range(LANE_MULTIPLE, MOST_TILES) or tiles == wide
    ]


def joined(above: Grid, below: Grid) -> bool:
    """Whether the last band of one grid and the first of the next lie one above the other in a picture."""
    return above.bands[-1].image == below.bands[0].image


def block_width(width: int, tile_rows: int) -> tuple[int, int]:
    """How many blocks of columns a single band is best cut into, and how many tiles wide they are."""
    options = _blocks(-(-width // TILE))
    return min(options, key=lambda option: _cost(option[1], option[0] * tile_rows))
