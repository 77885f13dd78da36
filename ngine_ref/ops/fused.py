"""The fused operators MulAdd and ConcatFusedTail of the domain `ai.ngine`."""

from __future__ import annotations

import numpy as np

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.nodes.fused_meaning import tail_attributes
from ngine_ref.numerics.signature import Inputs, Outputs, int_attribute, operand, present
from ngine_ref.ops.convolution import PRODUCERS
from ngine_ref.ops.multiply_then import multiply_then_kernel
from ngine_ref.registry import FUSED_DOMAIN, Array, Call, Kernel, TensorSpec, Workspace, operator


@operator("MulAdd", domain=FUSED_DOMAIN)
def bind_mul_add(call: Call) -> Kernel:
    """MulAdd: `(a * b) + c`, with the broadcasting of Mul and then Add, and rounded after each like them.

    Inputs a, b, c of one numeric dtype; integers wrap. The output has the shape that all three broadcast to.

    Raises:
        ShapeError: the shapes do not broadcast.
        OperatorError: the inputs are no numbers of one element type.
    """
    return multiply_then_kernel(call, np.add)


@operator("ConcatFusedTail", domain=FUSED_DOMAIN)
def bind_concat_fused_tail(call: Call) -> Kernel:
    """ConcatFusedTail: `Concat(prefix_0, ..., producer(x, w, bias, ...))` along the channels.

    Inputs are `prefix_count` prefixes and then the producer's: `x, w, bias or ""` and what its epilogue reads.
    Attributes are `prefix_count`, `producer_op` (Conv or an operator of `PRODUCERS`), `axis` (default 1), Conv's, and
    the epilogue's; `alpha` has no default here. The convolution writes into the tail of the joint output; a prefix
    that lies in its place already is not copied.

    Raises:
        ShapeError: prefixes and the producer's output do not fit.
        OperatorError: `prefix_count`, `producer_op`, `axis` or `alpha` is missing or not possible.
    """
    count = int_attribute(call, "prefix_count", -1)
    if not 0 <= count <= len(call.inputs) - 2:
        raise OperatorError(
            f"ConcatFusedTail: prefix_count is {call.attributes.get('prefix_count')}, but of {len(call.inputs)} inputs "
            f"it takes two at least for the convolution."
        )
    tail = _bind_producer(call, count)
    prefixes = [operand(call, slot) for slot in range(count)]
    output = _joint_output(call, prefixes, tail.outputs[0])
    starts = [0]
    for prefix in prefixes:
        starts.append(starts[-1] + prefix.shape[1])

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        joint = outputs[0]
        for slot in range(count):
            prefix, place = present(inputs, slot), joint[:, starts[slot] : starts[slot + 1]]
            if not _is_same_memory(prefix, place):
                place[...] = prefix
        tail.compute(inputs[count:], [joint[:, starts[count] :]], workspace)

    return Kernel((output,), compute, scratch_bytes=tail.scratch_bytes, strided=True)


def _bind_producer(call: Call, prefix_count: int) -> Kernel:
    """The kernel of the convolution that makes the tail."""
    producer_op = call.attributes.get("producer_op")
    if not isinstance(producer_op, str) or producer_op not in PRODUCERS:
        known = ", ".join(sorted(PRODUCERS))
        raise OperatorError(f"ConcatFusedTail: producer_op is {producer_op!r}, it must be one of {known}.")
    if producer_op == "ConvLeakyRelu" and "alpha" not in call.attributes:
        raise OperatorError("ConcatFusedTail needs the attribute alpha where its producer is ConvLeakyRelu.")
    return PRODUCERS[producer_op](Call(producer_op, call.inputs[prefix_count:], tail_attributes(call.attributes)))


def _joint_output(call: Call, prefixes: list[TensorSpec], tail: TensorSpec) -> TensorSpec:
    """The joined output, of all prefixes and the tail."""
    axis, rank = int_attribute(call, "axis", 1), len(tail.shape)
    if axis not in (1, 1 - rank):
        raise OperatorError(f"ConcatFusedTail joins channels, axis 1; axis is {axis} for a tail of shape {tail.shape}.")
    for prefix in prefixes:
        if prefix.dtype != tail.dtype:
            raise OperatorError(f"ConcatFusedTail cannot join {prefix.dtype} and {tail.dtype}.")
        if len(prefix.shape) != rank or (prefix.shape[0], *prefix.shape[2:]) != (tail.shape[0], *tail.shape[2:]):
            raise ShapeError(
                f"ConcatFusedTail cannot join a prefix of shape {prefix.shape} and a tail of shape {tail.shape}."
            )
    channels = sum(part.shape[1] for part in (*prefixes, tail))
    return TensorSpec((tail.shape[0], channels, *tail.shape[2:]), tail.dtype)


def _is_same_memory(a: Array, b: Array) -> bool:
    """Whether two arrays of one shape and dtype are the same elements, so that copying one to the other is no work."""
    if a.__array_interface__["data"][0] != b.__array_interface__["data"][0]:
        return False
    return all(size == 1 or left == right for size, left, right in zip(a.shape, a.strides, b.strides, strict=True))
