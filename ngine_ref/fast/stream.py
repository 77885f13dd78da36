"""Short chains, strip by strip: nothing as large as the picture is held between two convolutions.

A stream is an optional nearest x2 enlargement with its convolution, an optional 3x3 convolution (Winograd), and an
optional 3x3 convolution to few channels. At the end of a super-resolution network these work on the enlarged picture,
where one feature map can be a hundred megabytes. Each strip of rows is taken through all of them; the rows a later
convolution needs beyond the strip are computed twice:

    source, small     enlarged map P        middle conv           result
    |            |    |   y-2 .. y+R+2 |    |  y-1 .. y+R+1  |    |              |
    |  7 rows    | -> |   strip + 4    | -> |  strip + 2     | -> |  R rows      |
    |            |    | (phases, 4n+2) |    |  (4n rows)     |    |              |

Strips know nothing of each other: workers share them out, and there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ngine_ref.blas import one_thread_each
from ngine_ref.fast.arithmetic import Instruction, apply_after
from ngine_ref.fast.enlarge import EnlargedConvolution
from ngine_ref.fast.few_outputs import FewOutputs
from ngine_ref.fast.instances import Instances
from ngine_ref.fast.instructions import execute
from ngine_ref.fast.layout import Band, FeatureMap, Grid
from ngine_ref.fast.memory import Arena
from ngine_ref.fast.program import Program, Step
from ngine_ref.fast.schedule import schedule
from ngine_ref.fast.steps import StepBuilder
from ngine_ref.fast.teamwork import Helpers, Progress, run_team
from ngine_ref.fast.tiling import PARTS, block_width
from ngine_ref.fast.winograd import TILE, WINDOW, Float32, transformed_filters

MOST_ROWS = 32
"""Rows of a strip of the middle convolution."""
ENLARGED_PIXELS = 2048
"""Pixels the enlargement takes at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """What to compute: at least one of `enlarge` and `middle`; `few` only after `middle`.

    Each step reads one map: the source, or the last value of the step before.
    """

    enlarge: Step | None = None
    middle: Step | None = None
    few: Step | None = None

    @property
    def last(self) -> Step:
        """The step that makes the result."""
        found = self.few or self.middle or self.enlarge
        assert found is not None, "a stream has a step"
        return found


class StreamRegion:
    """A stream with its weights prepared."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.enlarge: EnlargedConvolution | None = None
        self.filters: Float32 | None = None
        self.few: FewOutputs | None = None
        if stream.enlarge:
            self.enlarge = EnlargedConvolution(stream.enlarge.weight, stream.enlarge.bias)
        if stream.middle:
            self.filters = transformed_filters(stream.middle.weight)
        if stream.few:
            self.few = FewOutputs(stream.few.weight, stream.few.bias)
        self.scale = 2 if stream.enlarge else 1

    def bind(self, batch: int, height: int, width: int, parts: int = PARTS) -> BoundStream:
        """The stream for pictures of that size, its strips shared among `parts` workers."""
        return BoundStream(self, batch, self.scale * height, self.scale * width, parts)


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers of one run."""

    workers: list[StripWorker]

    @property
    def bytes(self) -> int:
        """How much memory their buffers take."""
        return sum(worker.arena.bytes for worker in self.workers)


class BoundStream:
    """A stream for one size of result. Safe to use from several threads."""

    def __init__(self, region: StreamRegion, batch: int, height: int, width: int, parts: int) -> None:
        self._crews: Instances[Crew] = Instances(
            lambda: Crew([StripWorker(region, height, width, parts) for _ in range(parts)])
        )
        self._batch, self._height = batch, height
        self._filter_bytes = 0 if region.filters is None else region.filters.nbytes

    def run(self, inputs: Sequence[Float32], outputs: Sequence[Float32], helpers: Helpers | None = None) -> int:
        """Fill the one output [batch, N, scale * height, scale * width] from the one input.

        Returns:
            how many bytes the buffers and filters take.
        """
        images, result = inputs[0], outputs[0]
        with self._crews.one() as crew:
            workers = crew.workers
            strips = [(image, row) for image in range(self._batch) for row in range(0, self._height, workers[0].rows)]

            def work(share: list[int]) -> None:
                with np.errstate(all="ignore"):
                    for part in share:
                        for image, row in strips[part :: len(workers)]:
                            workers[part].strip(images[image], result[image], row)

            with one_thread_each():
                run_team(work, len(workers), helpers, Progress(len(workers)))
            return crew.bytes + self._filter_bytes


class StripWorker:
    """The buffers of one worker for one size of result."""

    def __init__(self, region: StreamRegion, height: int, width: int, parts: int) -> None:
        self.region, self.height, self.width = region, height, width
        self.margin = 1 if region.few else 0
        strips = parts * -(-height // (parts * MOST_ROWS))
        tile_rows = -(-(-(-height // strips) + 2 * self.margin) // TILE)
        self.rows = TILE * tile_rows - 2 * self.margin
        """Rows of the result that a strip makes."""
        blocks, block_tiles = block_width(width, tile_rows)
        self.grid = Grid(TILE * tile_rows, width, tile_rows, blocks, block_tiles, (Band(0, 0),))
        self.arena = arena = Arena()
        self.products: Float32 | None = None
        if region.few:
            self.products = arena.zeros(region.few.products, self.grid.rows, width + 2)
        if region.stream.middle:
            self._build(region.stream.middle, arena)

    def _build(self, middle: Step, arena: Arena) -> None:
        assert self.region.filters is not None, "the region prepares the filters of its steps"
        name = middle.inputs[0]
        plan = schedule(Program({name: int(middle.weight.shape[1])}, (middle,), ()))
        self.map = FeatureMap(self.grid, int(middle.weight.shape[1]), arena)
        builder = StepBuilder(plan, self.grid, {name: self.map}, arena)
        self.items: list[tuple[int, int, list[Instruction], Float32]] = []
        for tile_row in range(self.grid.tile_rows):
            for block in range(self.grid.blocks):
                calls, register = builder.item(plan.steps[0], self.region.filters, tile_row, block)
                self.items.append((tile_row, block, calls, register))

    def strip(self, image: Float32, result: Float32, row: int) -> None:
        """Rows `row` to `row + self.rows` of one picture's result."""
        last = min(row + self.rows, self.height)
        if self.region.stream.middle is None:
            self._enlarge(image, row, last, partial(_into_picture, result))
            return
        first = row - self.margin
        if self.region.stream.enlarge:
            self.map.data[:] = 0.0
            bottom = min(self.height, first + self.grid.rows + 1)
            self._enlarge(image, max(0, first - 1), bottom, partial(self._into_map, first - 1))
        else:
            self.map.pack(image[None], (Band(0, first),))
        if self.region.few is None:
            self._middle(partial(self._plain, result, first))
            return
        self._middle(self._few)
        assert self.products is not None, "made with the few outputs"
        self.products[:, : max(0, -first)] = 0.0
        self.products[:, self.height - first :] = 0.0
        outputs = self.region.few.add_up(self.products, last - row)
        result[:, row:last] = apply_after(self.region.stream.last, outputs)

    def _middle(self, sink: Callable[[int, int, Float32], None]) -> None:
        for tile_row, block, calls, register in self.items:
            execute(calls)
            sink(tile_row, block, register)

    def _plain(self, result: Float32, first: int, tile_row: int, block: int, register: Float32) -> None:
        """Store a tile row into the result."""
        top = first + TILE * tile_row
        rows = result[:, top : min(top + TILE, self.height)].transpose(1, 0, 2)
        pixels = self.grid.by_lane(register, result.shape[0])
        for phase in range(TILE):
            target, _ = self.grid.of_phase(rows, block, 1 + phase)
            target[:] = pixels[: len(rows), phase, :, 0, : target.shape[2]]

    def _few(self, tile_row: int, block: int, register: Float32) -> None:
        """Store the products of a tile row with all taps of the last convolution."""
        assert self.region.few is not None
        assert self.products is not None
        rows = self.products[:, TILE * tile_row : TILE * (tile_row + 1), 1:-1].transpose(1, 0, 2)
        products = self.region.few.multiply(register, self.grid.lanes)
        for phase in range(TILE):
            target, _ = self.grid.of_phase(rows, block, 1 + phase)
            target[:] = products[:, phase, :, : target.shape[2]]

    def _enlarge(self, image: Float32, first: int, last: int, store: Callable[[int, int, Float32], None]) -> None:
        """Rows `first` to `last` of the enlarged convolution, some rows of the source at a time."""
        stream = self.region.stream
        assert self.region.enlarge is not None
        assert stream.enlarge is not None
        channels, height, width = image.shape
        step = max(1, ENLARGED_PIXELS // (width + 2))
        for top in range(first // 2, -(-last // 2), step):
            bottom = min(top + step, -(-last // 2))
            padded = np.zeros((channels, bottom - top + 2, width + 2), np.float32)
            above, below = max(0, top - 1), min(height, bottom + 1)
            padded[:, above - (top - 1) : below - (top - 1), 1:-1] = image[:, above:below]
            for a, c, pixels in self.region.enlarge.rows(padded):
                wanted = [2 * row + a for row in range(top, bottom) if first <= 2 * row + a < last]
                if wanted:
                    skipped = (wanted[0] - a) // 2 - top
                    store(wanted[0], c, apply_after(stream.enlarge, pixels[:, skipped : skipped + len(wanted)]))

    def _into_map(self, origin: int, first: int, c: int, pixels: Float32) -> None:
        """Store every second pixel of rows first, first + 2, ... into the map whose row 0 is row `origin`."""
        top = first - origin
        lanes = self.map.by_lane()[top : top + 2 * pixels.shape[1] - 1 : 2, :, :, :, 0]
        for block in range(self.grid.blocks):
            for phase in range(1 - c, WINDOW, 2):
                column = (block * self.grid.block_tiles * TILE + phase - 1 - c) // 2
                skipped = 1 if column < 0 else 0
                source = pixels[:, :, column + 2 * skipped : column + 2 * self.grid.block_tiles : 2]
                lanes[:, block, phase, :, skipped : skipped + source.shape[2]] = source.transpose(1, 0, 2)


def _into_picture(result: Float32, first: int, c: int, pixels: Float32) -> None:
    """Store every second pixel of rows first, first + 2, ... of a picture."""
    result[:, first : first + 2 * pixels.shape[1] - 1 : 2, c::2] = pixels
