"""Runs a region program: instances of it, one for each size of picture and each run that goes on at the same time.

    Region ---- weights, transformed once ---- Instance (batch, height, width) ---- one part a worker
                                                                                    maps, registers, instructions
    run:  pack the inputs | step 0 | step 1 | ... | unpack the outputs

A step of a part: first the tile rows whose windows lie inside the part, then, once the parts beside it have finished
the step before, a copy of their border rows and the tile rows that need them.

    part above                 a step reads rows of its own part  ..........   inner tile rows
    ---------- border          and one row of the part beside it  ==========   outer tile rows, done last
    part below
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from ngine_ref.blas import one_thread_each
from ngine_ref.fast.arithmetic import Instruction
from ngine_ref.fast.filters import AHEAD, PassingFilters, keep_filters, kept_bytes, pointwise_filters
from ngine_ref.fast.instances import Instances
from ngine_ref.fast.instructions import execute
from ngine_ref.fast.layout import FeatureMap, Grid
from ngine_ref.fast.memory import Arena
from ngine_ref.fast.program import Program, fold_scales
from ngine_ref.fast.schedule import Placed, Schedule, schedule
from ngine_ref.fast.steps import StepBuilder
from ngine_ref.fast.teamwork import Helpers, Progress, run_team
from ngine_ref.fast.tiling import PARTS, cut, joined, pictures_at_once
from ngine_ref.fast.winograd import TILE, Float32

LARGE_FILTERS = 32 << 20
"""Bytes of filters from which it matters whether they are kept."""
MANY_TILES = 768
"""Tiles from which making filters anew costs only a few percent of a step."""


@dataclass(frozen=True, slots=True)
class PartStep:
    """One step of one part."""

    inner: tuple[Instruction, ...]
    outer: tuple[Instruction, ...]
    """What has to wait for the other parts."""


class Part:
    """The buffers and instructions of one part of the picture."""

    def __init__(self, plan: Schedule, grid: Grid) -> None:
        self.grid = grid
        self.arena = arena = Arena()
        slots = {slot.index: slot for slot in plan.slots.values()}
        buffers = {index: FeatureMap(grid, slot.channels, arena) for index, slot in slots.items()}
        self.maps = {name: buffers[slot.index] for name, slot in plan.slots.items()}
        self.builder = StepBuilder(plan, grid, self.maps, arena)
        self.above: Part | None = None
        self.below: Part | None = None

    def build(self, placed: Placed, filters: Float32, making: Sequence[Instruction]) -> PartStep:
        """The instructions of one step, which also does its share of `making` filters for a later one."""
        rows = range(self.grid.tile_rows)
        # In every step, whether it reads border rows or not: another part may still be reading what these rows hold
        # from before, because the step may write into a buffer that was last read one step ago.
        outer = sorted(({rows[0]} if self.above else set()) | ({rows[-1]} if self.below else set()))
        inner = [row for row in rows if row not in outer]
        borders = [instruction for name in placed.transforms for instruction in self._fetch_borders(name)]
        last = [
            instruction
            for name in placed.step.made()
            if name in self.builder.plan.slots and name in self.builder.plan.bordered
            for instruction in self.builder.writer.border_rows(self.maps[name])
        ]
        inner_calls = [call for row in inner for call in self.builder.tile_row(placed, filters, row)]
        outer_calls = [call for row in outer for call in self.builder.tile_row(placed, filters, row)]
        return PartStep((*making, *inner_calls), (*borders, *outer_calls, *last))

    def _fetch_borders(self, name: str) -> list[Instruction]:
        own = self.maps[name].by_lane()
        calls: list[Instruction] = []
        if self.above:
            theirs = self.above.maps[name].by_lane()
            calls.append(partial(np.copyto, own[0, :, :, :, 0], theirs[-2, :, :, :, -1]))
        if self.below:
            theirs = self.below.maps[name].by_lane()
            calls.append(partial(np.copyto, own[-1, :, :, :, -1], theirs[1, :, :, :, 0]))
        return calls


class Instance:
    """A program made ready for one size of picture; for one run at a time.

    Args:
        plan: the program's schedule.
        kept: the filters of every step; None to make them anew in each run.
        grids: the parts.
    """

    def __init__(self, plan: Schedule, kept: Sequence[Float32] | None, grids: Sequence[Grid]) -> None:
        self.plan = plan
        self.parts = [Part(plan, grid) for grid in grids]
        for above, below in pairwise(self.parts):
            if joined(above.grid, below.grid):
                above.below, below.above = below, above
        steps = [placed.step for placed in plan.steps]
        arena = Arena()
        passing = PassingFilters(steps, len(self.parts), arena) if kept is None else None
        self._passing_bytes = arena.bytes
        self.first: list[tuple[Instruction, ...]] = []
        """What each part does before the first step."""
        self.steps: list[list[PartStep]] = [[] for _ in self.parts]
        for number, part in enumerate(self.parts):
            early = [passing.make(step, number) for step in range(AHEAD)] if passing else []
            self.first.append(tuple(call for calls in early for call in calls))
            for index, placed in enumerate(plan.steps):
                if kept is not None:
                    filters = kept[index]
                else:
                    assert passing is not None, "made above"
                    filters = pointwise_filters(placed.step) if placed.step.pointwise else passing.bank(index)
                making = passing.make(index + AHEAD, number) if passing else []
                self.steps[number].append(part.build(placed, filters, making))

    @property
    def bytes(self) -> int:
        """How much memory the buffers take."""
        return self._passing_bytes + sum(part.arena.bytes for part in self.parts)

    def run(self, inputs: Sequence[Float32], outputs: Sequence[Float32], helpers: Helpers | None = None) -> None:
        """Fill `outputs` from `inputs`, in the order of the program's names, all [batch, channels, height, width]."""
        progress = Progress(len(self.parts))
        program = self.plan.program

        def work(share: list[int]) -> None:
            with np.errstate(all="ignore"):
                for part in share:
                    execute(self.first[part])
                    for name, images in zip(program.inputs, inputs, strict=True):
                        self.parts[part].maps[name].pack(images)
                    progress.finish(part)
                # The filters of the first step were made by all parts.
                progress.wait(1)
                for number in range(len(self.plan.steps)):
                    self._step(number, share, progress)
                for part in share:
                    for name, images in zip(program.outputs, outputs, strict=True):
                        self.parts[part].maps[name].unpack(images)

        with one_thread_each():
            run_team(work, len(self.parts), helpers, progress)

    def _step(self, number: int, share: list[int], progress: Progress) -> None:
        for part in share:
            execute(self.steps[part][number].inner)
        progress.wait(number + 1)
        for part in share:
            execute(self.steps[part][number].outer)
        for part in share:
            progress.finish(part)


class Region:
    """A program with its weights.

    Args:
        program: what to compute.
        keep_filters: whether to keep the transformed filters; None: unless they are large and the picture is, too.
    """

    def __init__(self, program: Program, keep_filters: bool | None = None) -> None:
        self.plan = schedule(fold_scales(program))
        self._steps = [placed.step for placed in self.plan.steps]
        self._keep = keep_filters

    def bind(self, batch: int, height: int, width: int, parts: int = PARTS) -> BoundRegion:
        """The program for pictures of that size, in at most `parts` parts."""
        at_once = pictures_at_once(batch, height, width, parts)
        tiles = at_once * -(-height // TILE) * -(-width // TILE)
        large = kept_bytes(self._steps) > LARGE_FILTERS and tiles >= MANY_TILES
        keep = not large if self._keep is None else self._keep
        portions = [min(at_once, batch - first) for first in range(0, batch, at_once)]
        grids = {count: cut(count, height, width, parts) for count in portions}
        return BoundRegion(self.plan, keep, portions, grids)


class BoundRegion:
    """A program for one size of picture, some pictures of a batch at a time. Safe to use from several threads."""

    def __init__(
        self, plan: Schedule, keep: bool, portions: Sequence[int], grids: Mapping[int, tuple[Grid, ...]]
    ) -> None:
        steps = [placed.step for placed in plan.steps]
        arena = Arena()
        self._kept = {step: keep_filters(step, arena) for step in steps if not step.pointwise} if keep else None
        filters = None
        if self._kept is not None:
            filters = [pointwise_filters(step) if step.pointwise else self._kept[step].bank for step in steps]
        self._portions = portions
        self.instances: dict[int, Instances[Instance]] = {
            count: Instances(partial(Instance, plan, filters, grid)) for count, grid in grids.items()
        }

    def run(self, inputs: Sequence[Float32], outputs: Sequence[Float32], helpers: Helpers | None = None) -> int:
        """Fill `outputs` from `inputs`: float32 [batch, channels, height, width], in the program's order.

        Returns:
            how many bytes the buffers and filters take.
        """
        first = 0
        taken = dict.fromkeys(self._portions, 0)
        for count in self._portions:
            some = slice(first, first + count)
            with self.instances[count].one() as instance:
                instance.run([images[some] for images in inputs], [images[some] for images in outputs], helpers)
                taken[count] = instance.bytes
            first += count
        return sum(taken.values()) + sum(kept.bank.nbytes for kept in (self._kept or {}).values())
