"""Batch normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.blocks import blocks
from ngine_ref.numerics.dtypes import DType, wide
from ngine_ref.numerics.signature import (
    Inputs,
    Outputs,
    check_signature,
    float_attribute,
    int_attribute,
    operand,
    present,
)
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, operator


@operator("BatchNormalization", since=14)
def bind_batch_normalization(call: Call) -> Kernel:
    """BatchNormalization-14, -15: `Y = (X - mean) / sqrt(var + epsilon) * scale + B`, channel by channel.

    X [N, C, D1, ..., Dn], or [N] with one channel; scale, B, input_mean and input_var [C]. Floating dtypes, which may
    differ between X, scale and B, and the statistics; float16 and bfloat16 are computed in float32. Y is like X.

    With `training_mode=1`, mean and var are those of X itself (var without Bessel's correction), and outputs 1 and 2
    are the running statistics `input * momentum + current * (1 - momentum)`.

    Raises:
        ShapeError: a parameter is not [C].
        OperatorError: running statistics are asked for without training mode.
    """
    training = bool(int_attribute(call, "training_mode", 0))
    if call.output_count > (3 if training else 1):
        raise OperatorError(
            f"BatchNormalization with training_mode={int(training)} has no {call.output_count} outputs."
        )
    return _kernel(call, training=training, spatial=True)


@operator("BatchNormalization", since=9)
def bind_batch_normalization_by_outputs(call: Call) -> Kernel:
    """BatchNormalization-9: as -14, in training mode if more than one output is asked for.

    Outputs 3 and 4 are then the mean and the variance of X.
    """
    return _kernel(call, training=call.output_count > 1, spatial=True)


@operator("BatchNormalization", since=7)
def bind_batch_normalization_per_activation(call: Call) -> Kernel:
    """BatchNormalization-7: as -9; with `spatial=0`, every position has parameters of its own, [C, D1, ..., Dn]."""
    return _kernel(call, training=call.output_count > 1, spatial=bool(int_attribute(call, "spatial", 1)))


@operator("BatchNormalization", since=1)
def bind_batch_normalization_with_test_mode(call: Call) -> Kernel:
    """BatchNormalization-1, -6: as -7, in training mode unless `is_test` is set."""
    training = not int_attribute(call, "is_test", 0)
    return _kernel(call, training=training, spatial=bool(int_attribute(call, "spatial", 1)))


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the parameters lie along X: their own shape, the shape that broadcasts, the axes of their statistics."""

    own: tuple[int, ...]
    along: tuple[int, ...]
    axes: tuple[int, ...]


def _layout(shape: tuple[int, ...], spatial: bool) -> _Layout:
    if len(shape) == 1:
        return _Layout((1,), (1,), (0,))
    if not spatial:
        return _Layout(shape[1:], (1, *shape[1:]), (0,))
    rank = len(shape)
    return _Layout(shape[1:2], (1, shape[1], *(1,) * (rank - 2)), (0, *range(2, rank)))


def _kernel(call: Call, *, training: bool, spatial: bool) -> Kernel:
    check_signature(call)
    x = operand(call, 0)
    if not x.shape:
        raise ShapeError("BatchNormalization needs [N, C, D1, ..., Dn], got a scalar.")
    layout = _layout(x.shape, spatial)
    for slot, name in enumerate(("scale", "B", "mean", "var"), start=1):
        if operand(call, slot).shape != layout.own:
            got = operand(call, slot).shape
            raise ShapeError(f"BatchNormalization of {x.shape} needs {name} of shape {layout.own}, got {got}.")
    epsilon, momentum = float_attribute(call, "epsilon", 1e-5), float_attribute(call, "momentum", 0.9)
    statistic = TensorSpec(layout.own, operand(call, 3).dtype)
    specs = (TensorSpec(x.shape, x.dtype), *(statistic,) * (call.output_count - 1))
    working = wide(x.dtype)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        data = present(inputs, 0)
        scale, bias, mean, var = (
            present(inputs, slot).astype(working, copy=False).reshape(layout.along) for slot in (1, 2, 3, 4)
        )
        if training:
            current = _statistics(data, layout, working)
            running = [old * momentum + new * (1 - momentum) for old, new in zip((mean, var), current, strict=True)]
            for out, value in zip(outputs[1:], (*running, *current), strict=False):
                np.copyto(out, value.reshape(layout.own), casting="unsafe")
            mean, var = current
        _normalize(data, mean, scale / np.sqrt(var + epsilon), bias, outputs[0])

    return Kernel(specs, compute, in_place=(0,), strided=True)


def _statistics(x: Array, layout: _Layout, working: DType) -> tuple[Array, Array]:
    centre = np.mean(x, axis=layout.axes, dtype=working, keepdims=True)
    return centre, np.mean(np.square(x - centre), axis=layout.axes, dtype=working, keepdims=True)


def _normalize(x: Array, mean: Array, factor: Array, bias: Array, out: Array) -> None:
    # Subtracting first keeps the precision that folding mean and bias into one number would lose.
    for target, block, *parameters in blocks(out, x, mean, factor, bias):
        centred = np.subtract(block, parameters[0])
        np.multiply(centred, parameters[1], out=centred)
        np.add(centred, parameters[2], out=target, casting="unsafe")
