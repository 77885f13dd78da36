"""A plan's steps as a region sees them: convolutions, elementwise operators, joins and nearest enlargements.

Fused and plain operators read alike, so that everything after this file knows four forms only:

    Conv, ConvPRelu, ConvSiLU, ConvAddRelu ...   ->  Convolution(source, weight, bias, after)
    ConcatFusedTail of such a producer           ->  Convolution(..., prefix)   its output joins prefix and result
    Add, Sub, Mul, LeakyRelu, PRelu, Relu,
    Sigmoid, MulAdd, MulSub                      ->  Arithmetic(operations)
    Concat along the channels                    ->  Join(parts)
    Resize, nearest, exactly twice               ->  Enlargement(source)

A fused operator is read by its meaning (`fused_meaning.py`): any that is elementwise operators of a region's, behind a
convolution or not, is understood. Bits then differ from those of its plain kernel as Winograd's do.

A step that cannot be part of a region (another operator, element type, stride, padding, broadcasting) reads as None.

So does a plain Concat that appends a convolution's result which only Concats read, the kind that fusion is about. The
model says to copy, and a region keeps a value that is joined in its own layout only on the word of a ConcatFusedTail:
its tail lives in the joint buffer and nowhere else. Plain dense blocks therefore run block by block of convolutions,
with their copies; fusing the model is what makes them one region. Other Concats (SPAN joins features that its gates
read too) have nothing to fuse and stay lists of parts.
Values are named by their index in the plan, as text; a result that the plan has no value for gets a name of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngine_ref.fast.program import ELEMENTWISE, Elementwise, Operand
from ngine_ref.fast.winograd import Float32
from ngine_ref.loading.graph import Node
from ngine_ref.nodes.fused_meaning import Part, meaning
from ngine_ref.planning.plan import Draft, Step
from ngine_ref.registry import FUSED_DOMAIN, TensorSpec

_OPERANDS = {op_type: 1 if op_type in ("Relu", "Sigmoid") else 2 for op_type in ELEMENTWISE}
_ACTIVATIONS = ("LeakyRelu", "PRelu", "Relu", "Sigmoid")
_TAILS = ("Conv", *(f"Conv{activation}" for activation in _ACTIVATIONS))
Picture = tuple[int, int, int]
"""Batch, height, width."""


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A 3x3 or 1x1 convolution that keeps height and width, with its activation."""

    source: int
    weight: Float32
    bias: Float32 | None
    convolved: str
    """The name of the convolution's own result."""
    after: tuple[Elementwise, ...]
    result: str
    """The name of what comes after the activation."""
    output: int
    prefix: tuple[int, ...] | None = None
    """What the output has before the result; None where the output is the result."""
    pictures: tuple[int, ...] = ()
    """What else the arithmetic reads."""


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic:
    """Elementwise operators; operands that are pictures are named, constants have fitting shapes."""

    operations: tuple[Elementwise, ...]
    pictures: tuple[int, ...]
    output: int


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A Concat along the channels."""

    parts: tuple[int, ...]
    output: int


@dataclass(frozen=True, slots=True, eq=False)
class Enlargement:
    """A nearest Resize to exactly twice the height and width."""

    source: int
    output: int


Form = Convolution | Arithmetic | Join | Enlargement


class Reader:
    """Reads the steps of one plan."""

    def __init__(self, plan: Draft) -> None:
        self.plan = plan
        self._makers = {value: step for step in plan.steps for value in step.made()}
        self._read_by_others = {value for step in plan.steps if step.join_axis != 1 for value in step.read()}

    def read(self, step: Step) -> Form | None:
        """What a step is to a region, or None."""
        node = step.node
        if step.kernel is None or len(step.made()) != 1 or self.picture(step.made()[0]) is None:
            return None
        if node.domain in ("", "ai.onnx"):
            if node.op_type == "Concat" and step.join_axis == 1:
                return self._join(step)
            if node.op_type in ("Resize", "Upsample"):
                return self._enlargement(step)
            if node.op_type == "Conv":
                return self._convolution(step, (), step.inputs)
            return self._arithmetic(step, (Part(node.op_type, tuple(range(len(step.inputs)))),))
        if node.domain != FUSED_DOMAIN and not node.domain.startswith(FUSED_DOMAIN + "."):
            return None
        if node.op_type == "ConcatFusedTail" and node.attributes.get("axis", 1) in (1, -3):
            count, parts = node.attributes["prefix_count"], meaning(node.attributes["producer_op"])
            return self._convolution(step, parts[1:], step.inputs[count:], step.inputs[:count]) if parts else None
        parts = meaning(node.op_type)
        if parts and parts[0].op_type == "Conv":
            return self._convolution(step, parts[1:], step.inputs)
        return self._arithmetic(step, parts) if parts else None

    def spec(self, value: int | None) -> TensorSpec | None:
        """What is known of a value."""
        return None if value is None else self.plan.values[value].spec

    def picture(self, value: int | None) -> Picture | None:
        """Batch, height and width of a float32 value [batch, channels, height, width]; None for any other."""
        spec = self.spec(value)
        if spec is None or spec.value is not None or spec.dtype != np.float32 or len(spec.shape) != 4:
            return None
        batch, channels, height, width = spec.shape
        return (batch, height, width) if min(spec.shape) > 0 and channels > 0 else None

    def channels(self, value: int) -> int:
        """The channel count of a picture."""
        spec = self.spec(value)
        assert spec is not None
        return spec.shape[1]

    def _constant(self, value: int | None) -> Float32 | None:
        spec = self.spec(value)
        if spec is None or spec.dtype != np.float32:
            return None
        return spec.value

    def _per_channel(self, value: int | None, channels: int) -> Float32 | None:
        """A constant as a number (0-d) or one number a channel [C], if it broadcasts so."""
        constant = self._constant(value)
        if constant is None or constant.ndim > 4:
            return None
        if constant.size == 1:
            return constant.reshape(())
        shape = (1,) * (4 - constant.ndim) + constant.shape
        return constant.reshape(-1) if shape == (1, channels, 1, 1) else None

    def _convolution(
        self,
        step: Step,
        following: Sequence[Part],
        inputs: Sequence[int | None],
        prefix: Sequence[int | None] | None = None,
    ) -> Convolution | None:
        source, weight = inputs[0], self._constant(inputs[1])
        output = step.made()[0]
        bias_value = inputs[2] if len(inputs) > 2 else None
        bias = self._constant(bias_value)
        size = self.picture(source)
        if source is None or weight is None or (bias_value is not None and bias is None):
            return None
        if size is None or not keeps_size(step.node, weight):
            return None
        operands = self._operands(inputs[3:], size, weight.shape[0])
        if operands is None:
            return None
        result = str(output) if prefix is None else f"{output}:tail"
        convolved = f"{output}:convolved" if following else result
        after = _operations(following, dict(enumerate(operands, 3)), [convolved], step.node, result)
        if after is None:
            return None
        before = None if prefix is None else tuple(value for value in prefix if value is not None)
        return Convolution(source, weight, bias, convolved, after, result, output, before, _pictures(operands))

    def _operands(self, values: Sequence[int | None], size: Picture, channels: int) -> list[Operand] | None:
        """Pictures of that size by name, and constants; None if one is neither."""
        operands: list[Operand] = []
        for value in values:
            constant = self._per_channel(value, channels)
            if constant is not None:
                operands.append(constant)
            elif value is not None and self.picture(value) == size and self.channels(value) == channels:
                operands.append(str(value))
            else:
                return None
        return operands

    def _join(self, step: Step) -> Join | None:
        parts = step.read()
        if self._is_tail(parts[-1]) or not all(self.picture(part) for part in parts):
            return None
        return Join(tuple(parts), step.made()[0])

    def _is_tail(self, value: int) -> bool:
        """Whether it is the result of a convolution or of its activation, and only Concats read it."""
        maker = self._makers.get(value)
        if maker is not None and maker.node.op_type in _ACTIVATIONS:
            value_before = maker.inputs[0]
            maker = None if value_before is None else self._makers.get(value_before)
        return maker is not None and maker.node.op_type in _TAILS and value not in self._read_by_others

    def _enlargement(self, step: Step) -> Enlargement | None:
        source, output = step.inputs[0], step.made()[0]
        size = self.picture(source)
        if source is None or size is None or not _is_nearest(step.node):
            return None
        batch, height, width = size
        if self.picture(output) != (batch, 2 * height, 2 * width) or self.channels(output) != self.channels(source):
            return None
        exact = all(
            spec is None or spec.value is None or spec.dtype != np.float32 or set(np.ravel(spec.value)[-2:]) == {2.0}
            for spec in map(self.spec, step.inputs[-2:])
            if spec is not self.spec(source)
        )
        return Enlargement(source, output) if exact else None

    def _arithmetic(self, step: Step, parts: Sequence[Part]) -> Arithmetic | None:
        output = step.made()[0]
        size = self.picture(output)
        operands = None if size is None else self._operands(step.inputs, size, self.channels(output))
        if operands is None:
            return None
        operations = _operations(parts, dict(enumerate(operands)), [], step.node, str(output))
        return None if operations is None else Arithmetic(operations, _pictures(operands), output)


def _pictures(operands: Sequence[Operand]) -> tuple[int, ...]:
    return tuple(int(operand) for operand in operands if isinstance(operand, str))


def _operations(
    parts: Sequence[Part], by_slot: dict[int, Operand], made: list[str], node: Node, result: str
) -> tuple[Elementwise, ...] | None:
    """Parts of an operator, the last of which makes `result`; None if a region cannot carry them.

    Args:
        parts: standard operators.
        by_slot: the operator's inputs.
        made: what earlier parts made, `%0`, `%1` ... of the operands.
        node: whose attributes they take.
        result: the name of what the last part makes.
    """
    operations: list[Elementwise] = []
    names = list(made)
    for part in parts:
        if any(slot not in by_slot for slot in part.operands if isinstance(slot, int)):
            return None
        operands = [by_slot[slot] if isinstance(slot, int) else names[int(slot[1:])] for slot in part.operands]
        op_type = part.op_type
        if op_type == "LeakyRelu":
            op_type = "PRelu"
            operands.append(np.array(node.attributes.get("alpha", 0.01), np.float32))
        if len(operands) != _OPERANDS.get(op_type) or (op_type == "PRelu" and isinstance(operands[1], str)):
            return None
        names.append(result if part is parts[-1] else f"{result}:%{len(names)}")
        operations.append(Elementwise(op_type, tuple(operands), names[-1]))
    return tuple(operations)


def keeps_size(node: Node, weight: Float32) -> bool:
    """Whether a convolution is 3x3 or 1x1, ungrouped, of stride and dilation 1, and keeps height and width."""
    attributes = node.attributes
    if weight.ndim != 4 or weight.shape[2:] not in ((3, 3), (1, 1)) or attributes.get("group", 1) != 1:
        return False
    if any(set(attributes.get(key) or [1]) != {1} for key in ("strides", "dilations")):
        return False
    pad = weight.shape[2] // 2
    if attributes.get("auto_pad", "NOTSET") == "NOTSET":
        return set(attributes.get("pads") or [0]) == {pad}
    return attributes["auto_pad"] in ("SAME_UPPER", "SAME_LOWER") or pad == 0


def _is_nearest(node: Node) -> bool:
    """Whether a Resize repeats each pixel when it doubles the size."""
    attributes: dict[str, Any] = dict(node.attributes)
    if attributes.get("mode", "nearest") != "nearest" or attributes.get("antialias", 0):
        return False
    if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch" or "axes" in attributes:
        return False
    if node.op_type == "Upsample" or node.opset < 11:
        return True
    where = attributes.get("coordinate_transformation_mode", "half_pixel")
    rounding = attributes.get("nearest_mode", "round_prefer_floor")
    if where == "asymmetric":
        return bool(rounding == "floor")
    # An enlarged pixel's centre is a quarter of a pixel off the one it comes from: rounding finds it either way.
    return where in ("half_pixel", "pytorch_half_pixel") and rounding in ("round_prefer_floor", "round_prefer_ceil")
