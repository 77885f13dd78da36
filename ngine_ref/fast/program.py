"""What is to be computed: a region program, free of layout, size and threads.

A program is a list of steps over named feature maps of one height and width, in single assignment (a name is made
once). A step is one convolution and the elementwise arithmetic that follows it, done while its result is in cache:

    x ----> Conv3x3 --PRelu--> x1          steps = (
    x, x1 -> Conv3x3 --PRelu--> x2             Step(("x",), w1, b1, (Elementwise("PRelu", ("c1", slope), "x1"),), "c1"),
    x, x1, x2 -> Conv3x3 *0.2 +x -> y          Step(("x", "x1"), w2, b2, ...), ...)

The inputs of a convolution are joined along the channels, in order; nothing is copied for it. Names of values that
no later step reads and that are no output never leave the cache. `executor.py` runs a program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.fast.winograd import Float32

Operand = str | Float32
"""A value's name, or a constant: a scalar (0-d), or one number a channel [C]."""

ELEMENTWISE = ("Add", "Sub", "Mul", "PRelu", "Relu", "Sigmoid")
"""Operators of ONNX that a step may carry. A LeakyRelu is a PRelu with one slope."""


@dataclass(frozen=True, slots=True, eq=False)
class Elementwise:
    """One elementwise operator of ONNX on values of one shape, and constants."""

    op_type: str
    inputs: tuple[Operand, ...]
    output: str


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A stride-1 convolution that keeps height and width, and what is done to its result in cache."""

    inputs: tuple[str, ...]
    """Feature maps, joined along the channels."""
    weight: Float32
    """[N, C, 3, 3] with padding 1 (Winograd), or [N, C, 1, 1] with padding 0 (one GEMM)."""
    bias: Float32 | None
    """[N], or None."""
    output: str
    """The name of the convolution's own result."""
    after: tuple[Elementwise, ...] = ()
    scale: float = 1.0
    """What the weights (not the bias) are multiplied by."""

    @property
    def channels(self) -> int:
        """How many channels the result has."""
        return int(self.weight.shape[0])

    @property
    def pointwise(self) -> bool:
        """Whether it is a 1x1 convolution."""
        return self.weight.shape[2:] == (1, 1)

    def made(self) -> Iterator[str]:
        """Every value this step makes."""
        yield self.output
        for operation in self.after:
            yield operation.output

    def read(self) -> Iterator[str]:
        """Every value of an earlier step that this one reads."""
        yield from self.inputs
        yield from self.operands()

    def operands(self) -> Iterator[str]:
        """Every value of an earlier step that the arithmetic reads, whether the convolution reads it too or not."""
        own = set(self.made())
        for operation in self.after:
            for operand in operation.inputs:
                if isinstance(operand, str) and operand not in own:
                    yield operand


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Feature maps in, feature maps out, all of one height and width."""

    inputs: dict[str, int]
    """Names and channel counts of the maps that are given."""
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]

    def channels(self) -> dict[str, int]:
        """The channel count of every value."""
        counts = dict(self.inputs)
        for step in self.steps:
            counts.update(dict.fromkeys(step.made(), step.channels))
        return counts

    def check(self) -> Program:
        """The program itself.

        Raises:
            OperatorError: a value is read before it is made, made twice, or has the wrong number of channels.
        """
        known = dict(self.inputs)
        for step in self.steps:
            missing = [name for name in step.read() if name not in known]
            if missing:
                raise OperatorError(
                    f"Step {step.output!r} of a region reads {missing[0]!r}, which nothing before it makes."
                )
            joined = sum(known[name] for name in step.inputs)
            if joined != step.weight.shape[1]:
                raise OperatorError(
                    f"Step {step.output!r} of a region joins {joined} channels but has weights {step.weight.shape}."
                )
            for name in step.made():
                if name in known:
                    raise OperatorError(f"Value {name!r} of a region is made twice.")
                known[name] = step.channels
        unmade = [name for name in self.outputs if name not in known]
        if unmade:
            raise OperatorError(f"A region's output {unmade[0]!r} is made by none of its steps.")
        return self


def fold_scales(program: Program) -> Program:
    """The same program with every `Mul` by a constant number that directly follows a convolution folded into it.

    Only where nobody else reads the unscaled result. Residual scales (0.2 in RRDBNet) then cost nothing.
    """
    reads = Counter(program.outputs)
    for step in program.steps:
        reads.update(step.inputs)
        reads.update(operand for e in step.after for operand in e.inputs if isinstance(operand, str))
    return replace(program, steps=tuple(_folded(step, reads) for step in program.steps))


def _folded(step: Step, reads: Counter[str]) -> Step:
    while step.after and step.after[0].op_type == "Mul" and reads[step.output] == 1:
        first = step.after[0]
        names = [operand for operand in first.inputs if isinstance(operand, str)]
        scales = [operand for operand in first.inputs if not isinstance(operand, str)]
        if names != [step.output] or scales[0].size != 1:
            break
        factor = np.float32(scales[0].reshape(()))
        bias = None if step.bias is None else step.bias * factor
        step = replace(step, bias=bias, scale=step.scale * float(factor), output=first.output, after=step.after[1:])
    return step
