"""A program's steps as flat lists of instructions, made once for a part of a picture.

    item    one step, one tile row, one block: forward transforms | GEMMs | inverse | arithmetic and stores
    step    all its items, tile row by tile row

A network repeats itself: the 345 convolutions of RRDBNet-23 differ in their weights, but they read and write the same
few buffers in the same ways. Instructions that do not touch weights are therefore made once for each way, and shared
by all steps that go the same way; only the GEMM and the bias are a step's own.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ngine_ref.fast.arithmetic import Instruction, Registers
from ngine_ref.fast.instructions import Transforms, Writer
from ngine_ref.fast.layout import FeatureMap, Grid
from ngine_ref.fast.memory import Arena
from ngine_ref.fast.program import Operand, Step
from ngine_ref.fast.schedule import Placed, Schedule
from ngine_ref.fast.winograd import Float32

Item = tuple[list[Instruction], Float32]
"""Instructions, and the register that holds the step's last value after them."""


class StepBuilder:
    """Makes the instructions of a part's steps."""

    def __init__(self, plan: Schedule, grid: Grid, maps: dict[str, FeatureMap], arena: Arena) -> None:
        steps = plan.program.steps
        counts = plan.program.channels()
        self.plan, self.grid, self.maps = plan, grid, maps
        most_inputs = max((sum(counts[name] for name in step.inputs) for step in steps), default=1)
        most_outputs = max((step.channels for step in steps), default=1)
        self.transforms = Transforms(grid, plan.kept_channels, most_inputs, most_outputs, arena)
        self.registers = Registers(grid, most_outputs, arena)
        self.writer = Writer(grid)
        self._forward: dict[Hashable, list[Instruction]] = {}
        self._after: dict[Hashable, tuple[Float32, list[Instruction], Float32]] = {}

    def tile_row(self, placed: Placed, filters: Float32, tile_row: int) -> list[Instruction]:
        """The instructions of one step for one tile row, all blocks."""
        items = [self.item(placed, filters, tile_row, block)[0] for block in range(self.grid.blocks)]
        return [instruction for item in items for instruction in item]

    def item(self, placed: Placed, filters: Float32, tile_row: int, block: int) -> Item:
        """One step for one tile row of one block."""
        result, after, last = self._arithmetic(placed.step, tile_row, block)
        if placed.step.pointwise:
            return [*self._pointwise(placed.step, filters, tile_row, block, result), *after], last
        product = self.transforms.multiply(filters, placed.step.bias, tile_row, block, placed.kept, result)
        return [*self._forward_transforms(placed, tile_row, block), *product, *after], last

    def _forward_transforms(self, placed: Placed, tile_row: int, block: int) -> list[Instruction]:
        slots = tuple(self.plan.slots[name].index for name in placed.transforms)
        way = (tile_row, block, placed.kept, placed.first_channel, slots)
        if way not in self._forward:
            instructions: list[Instruction] = []
            first = placed.first_channel
            for name in placed.transforms:
                instructions += self.transforms.forward(self.maps[name], tile_row, block, placed.kept, first)
                first += self.maps[name].channels
            self._forward[way] = instructions
        return self._forward[way]

    def _arithmetic(self, step: Step, tile_row: int, block: int) -> tuple[Float32, list[Instruction], Float32]:
        """The register for the convolution's result, what is done with it, and the register of the last value."""
        way = (tile_row, block, self._way(step))
        if way not in self._after:
            self._after[way] = self._new_arithmetic(step, tile_row, block)
        return self._after[way]

    def _way(self, step: Step) -> Hashable:
        """What a step's arithmetic depends on, with the names of values left out."""
        own = {name: number for number, name in enumerate(step.made())}

        def described(operand: Operand) -> Hashable:
            if not isinstance(operand, str):
                return ("number", float(operand)) if operand.ndim == 0 else ("constant", id(operand))
            return own[operand] if operand in own else ("map", self.plan.slots[operand].index)

        operations = tuple((operation.op_type, *map(described, operation.inputs)) for operation in step.after)
        stored = tuple((self.plan.slots.get(name), name in self.plan.bordered) for name in own)
        return step.channels, operations, stored

    def _new_arithmetic(self, step: Step, tile_row: int, block: int) -> tuple[Float32, list[Instruction], Float32]:
        registers = self.registers
        registers.begin(step)
        result = last = registers.make(step.output)
        instructions = self._stored(step.output, result, tile_row, block)
        for operation in step.after:
            operands = [
                self.maps[operand].centre(tile_row, block)
                if isinstance(operand, str) and not registers.holds(operand)
                else operand
                for operand in operation.inputs
            ]
            instructions += registers.apply(operation, operands)
            last = registers.of(operation.output)
            instructions += self._stored(operation.output, last, tile_row, block)
        return result, instructions, last

    def _stored(self, name: str, register: Float32, tile_row: int, block: int) -> list[Instruction]:
        if name not in self.plan.slots:
            return []
        return self.writer.store(register, self.maps[name], tile_row, block, name in self.plan.bordered)

    def _pointwise(self, step: Step, filters: Float32, tile_row: int, block: int, result: Float32) -> list[Instruction]:
        """A 1x1 convolution: one GEMM a pixel of the tile, an input map at a time."""
        lanes, channels = self.grid.lanes, step.channels
        by_channel = _split(result, channels, lanes)
        share = self.registers.beside(result)
        instructions: list[Instruction] = []
        first = 0
        for name in step.inputs:
            source = self.maps[name]
            weights = filters[:, first : first + source.channels]
            pixels = _split(source.centre(tile_row, block), source.channels, lanes)
            if first == 0:
                instructions.append(partial(np.matmul, weights, pixels, by_channel))
            else:
                instructions.append(partial(np.matmul, weights, pixels, _split(share, channels, lanes)))
                instructions.append(partial(np.add, result, share, result))
            first += source.channels
        if step.bias is not None:
            instructions.append(partial(np.add, result, self.registers.constant(step.bias), result))
        return instructions


def _split(rows: Float32, channels: int, lanes: int) -> Float32:
    """Rows [..., channels and lanes] as [..., channels, lanes], a view."""
    item = rows.itemsize
    return as_strided(rows, (*rows.shape[:-1], channels, lanes), (*rows.strides[:-1], lanes * item, item))
