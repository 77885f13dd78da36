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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from ngine_ref.fast.arithmetic import Instruction
from ngine_ref.fast.blas import one_thread_each
from ngine_ref.fast.instances import Instances
from ngine_ref.fast.instructions import StepBuilder, execute
from ngine_ref.fast.layout import FeatureMap, Grid
from ngine_ref.fast.memory import Arena
from ngine_ref.fast.program import Program, fold_scales
from ngine_ref.fast.schedule import Placed, Schedule, schedule
from ngine_ref.fast.teamwork import Helpers, Progress, run_team
from ngine_ref.fast.tiling import PARTS, cut, joined
from ngine_ref.fast.winograd import PLANES, Float32, transformed_filters


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
        arena = Arena()
        slots = {slot.index: slot for slot in plan.slots.values()}
        buffers = {index: FeatureMap(grid, slot.channels, arena) for index, slot in slots.items()}
        self.maps = {name: buffers[slot.index] for name, slot in plan.slots.items()}
        self.builder = StepBuilder(plan, grid, self.maps, arena)
        self.above: Part | None = None
        self.below: Part | None = None

    def build(self, placed: Placed, filters: Float32) -> PartStep:
        """The instructions of one step."""
        rows = range(self.grid.tile_rows)
        outer: list[int] = []
        if placed.transforms:
            outer += [rows[0]] if self.above else []
            outer += [rows[-1]] if self.below and rows[-1] not in outer else []
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
        return PartStep(tuple(inner_calls), (*borders, *outer_calls, *last))

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
    """A program made ready for one batch, height and width; for one run at a time."""

    def __init__(self, plan: Schedule, filters: Sequence[Float32], batch: int, height: int, width: int) -> None:
        self.plan = plan
        self.parts = [Part(plan, grid) for grid in cut(batch, height, width, PARTS)]
        for above, below in pairwise(self.parts):
            if joined(above.grid, below.grid):
                above.below, below.above = below, above
        self.steps = [
            [part.build(placed, bank) for placed, bank in zip(plan.steps, filters, strict=True)] for part in self.parts
        ]

    def run(self, inputs: Sequence[Float32], outputs: Sequence[Float32], helpers: Helpers | None = None) -> None:
        """Fill `outputs` from `inputs`, in the order of the program's names, all [batch, channels, height, width]."""
        progress = Progress(len(self.parts))
        program = self.plan.program

        def work(share: list[int]) -> None:
            with np.errstate(all="ignore"):
                for part in share:
                    for name, images in zip(program.inputs, inputs, strict=True):
                        self.parts[part].maps[name].pack(images)
                    progress.finish(part)
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
    """A program with its weights transformed."""

    def __init__(self, program: Program) -> None:
        self.plan = schedule(fold_scales(program))
        arena = Arena()
        self.filters = [_bank(placed, arena) for placed in self.plan.steps]

    def bind(self, batch: int, height: int, width: int) -> BoundRegion:
        """The program for pictures of that size."""
        return BoundRegion(self, batch, height, width)


class BoundRegion:
    """A program for one size of picture. Safe to use from several threads."""

    def __init__(self, region: Region, batch: int, height: int, width: int) -> None:
        self.instances: Instances[Instance] = Instances(
            lambda: Instance(region.plan, region.filters, batch, height, width)
        )

    def run(self, inputs: Sequence[Float32], outputs: Sequence[Float32], helpers: Helpers | None = None) -> None:
        """Fill `outputs` from `inputs`: float32 [batch, channels, height, width], in the program's order."""
        with self.instances.one() as instance:
            instance.run(inputs, outputs, helpers)


def _bank(placed: Placed, arena: Arena) -> Float32:
    step = placed.step
    if step.pointwise:
        return np.ascontiguousarray(step.weight[:, :, 0, 0]) * np.float32(step.scale)
    bank = arena.zeros(PLANES, step.channels, step.weight.shape[1])
    bank[:] = transformed_filters(step.weight, step.scale)
    return bank
