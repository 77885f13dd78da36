"""Elementwise operators on registers: what follows a convolution, done while its result is in cache.

A register is a small array [4 rows, 4 phases, channels and lanes]: one tile row of a value that has no feature map.
A value's register is free for another one after its last reader. Constants with one number a channel are spelled out
over the lanes once, because NumPy is fast on long rows and slow on many short ones:

    slope [C]    s0 s1 s2   --->   s0 s0 ... s0 s1 s1 ... s1 s2 s2 ... s2       (each repeated once a lane)

A leaky slope of at most 1 is max(y, slope * y): two passes instead of a comparison and a choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.fast.layout import Grid
from ngine_ref.fast.memory import Arena
from ngine_ref.fast.program import ELEMENTWISE, Elementwise, Operand, Step
from ngine_ref.fast.winograd import TILE, Float32

Instruction = Callable[[], Any]
"""A NumPy function with its arguments and its output bound to it."""
ZERO = np.float32(0.0)
ONE = np.float32(1.0)

_BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}


class Registers:
    """The registers of one worker, and which value is in which, for one tile row of one step at a time."""

    def __init__(self, grid: Grid, most_channels: int, arena: Arena) -> None:
        self._arena = arena
        self._grid = grid
        self._most = most_channels * grid.lanes
        self._arrays: list[Float32] = []
        self._constants: dict[int, tuple[Operand, Any]] = {}
        self._free: list[int] = []
        self._held: dict[str, int] = {}
        self._readers: Counter[str] = Counter()
        self._channels = 0

    def begin(self, step: Step) -> None:
        """Forget all values; the step's values are made next."""
        self._free = list(range(len(self._arrays)))
        self._held = {}
        self._channels = step.channels
        self._readers = Counter(operand for e in step.after for operand in e.inputs if isinstance(operand, str))

    def holds(self, name: str) -> bool:
        """Whether a value of this step is in a register."""
        return name in self._held

    def of(self, name: str) -> Float32:
        """The register of a value."""
        return self._view(self._held[name])

    def make(self, name: str) -> Float32:
        """A register for a new value."""
        self._held[name] = self._take()
        return self.of(name)

    def spare(self) -> Float32:
        """A register for a moment: the next value may have it."""
        register = self._take()
        self._free.append(register)
        return self._view(register)

    def beside(self, other: Float32) -> Float32:
        """Before any value is made: a register shaped like another one that is not it."""
        channels = other.shape[-1] // self._grid.lanes
        index = next((n for n, array in enumerate(self._arrays) if not np.shares_memory(array, other)), None)
        if index is None:
            index = len(self._arrays)
            self._arrays.append(self._arena.zeros(TILE * TILE * self._most))
        return self._arrays[index][: other.size].reshape(TILE, TILE, channels * self._grid.lanes)

    def _take(self) -> int:
        if not self._free:
            self._free.append(len(self._arrays))
            self._arrays.append(self._arena.zeros(TILE * TILE * self._most))
        # Not the latest to be freed, but the first there is: steps that go the same way then use the same registers.
        register = min(self._free)
        self._free.remove(register)
        return register

    def _view(self, register: int) -> Float32:
        row = self._channels * self._grid.lanes
        return self._arrays[register][: TILE * TILE * row].reshape(TILE, TILE, row)

    def apply(self, operation: Elementwise, operands: Sequence[Operand]) -> list[Instruction]:
        """The instructions of one operator; its operands are names of registers, views of maps, or constants."""
        values = [self._value(operand) for operand in operands]
        if operation.op_type == "PRelu":
            # Both the value and its product with the slope are needed to the end.
            result = self.make(operation.output)
            instructions = _slope(values[0], values[1], result, self.spare())
            self._release(operation)
            return instructions
        # Reads an element before it writes it: the result may take the place of an operand that dies here.
        self._release(operation)
        return _calls(operation.op_type, values, self.make(operation.output))

    def _release(self, operation: Elementwise) -> None:
        for operand in operation.inputs:
            if isinstance(operand, str) and operand in self._held:
                self._readers[operand] -= 1
                if self._readers[operand] == 0:
                    self._free.append(self._held[operand])

    def _value(self, operand: Operand) -> Any:
        if isinstance(operand, str):
            return self.of(operand)
        return self.constant(operand) if operand.ndim <= 1 else operand

    def constant(self, operand: Float32) -> Any:
        """A scalar, or one number a channel repeated for each lane; made once for each array."""
        if operand.ndim == 0:
            return np.float32(operand)
        if id(operand) not in self._constants:
            self._constants[id(operand)] = (operand, np.repeat(operand, self._grid.lanes).astype(np.float32))
        return self._constants[id(operand)][1]


def _slope(value: Float32, slope: Any, result: Float32, spare: Float32) -> list[Instruction]:
    """`value` where it is positive, else `slope * value`."""
    if np.all(slope <= ONE):
        return [partial(np.multiply, value, slope, result), partial(np.maximum, value, result, out=result)]
    return [
        partial(np.minimum, value, ZERO, out=result),
        partial(np.multiply, result, slope, result),
        partial(np.maximum, value, ZERO, out=spare),
        partial(np.add, result, spare, result),
    ]


def _calls(op_type: str, values: list[Any], result: Float32) -> list[Instruction]:
    if op_type in _BINARY:
        return [partial(_BINARY[op_type], values[0], values[1], result)]
    if op_type == "Relu":
        return [partial(np.maximum, values[0], ZERO, out=result)]
    if op_type == "Sigmoid":
        return [
            partial(np.negative, values[0], result),
            partial(np.exp, result, result),
            partial(np.add, result, ONE, result),
            partial(np.divide, ONE, result, result),
        ]
    raise OperatorError(f"A region cannot carry {op_type}; it knows {', '.join(ELEMENTWISE)}.")


def apply_after(step: Step, pixels: Float32) -> Float32:
    """What follows a convolution, on its result [N, rows, width] as an ordinary array, which is overwritten.

    The step may only read its own values and constants.
    """
    values: dict[str, Float32] = {step.output: pixels}
    for operation in step.after:
        operands = [
            values[operand] if isinstance(operand, str) else _by_channel(operand) for operand in operation.inputs
        ]
        result = np.empty(pixels.shape, np.float32)
        values[operation.output] = result
        if operation.op_type == "PRelu":
            calls = _slope(operands[0], operands[1], result, np.empty_like(result))
        else:
            calls = _calls(operation.op_type, operands, result)
        for call in calls:
            call()
        pixels = result
    return pixels


def _by_channel(constant: Float32) -> Float32:
    return constant[:, None, None] if constant.ndim == 1 else constant
