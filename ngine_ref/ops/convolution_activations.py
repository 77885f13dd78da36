"""A convolution with its activation: the fused operators `ConvLeakyRelu`, `ConvPRelu`, `ConvRelu` and so on.

Each is an epilogue of a line or two: it changes a finished block in place, with the function of the operator that it
stands for. Inputs are `x, w, bias or ""` and what the docstring adds; attributes are Conv's and what it adds.
"""

from __future__ import annotations

import math

import numpy as np

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.blocked_convolution import Block, Epilogue
from ngine_ref.numerics.signature import float_attribute, operand
from ngine_ref.ops.activations import (
    clip_into,
    hard_sigmoid_into,
    hard_swish_into,
    leaky_relu_into,
    prelu_into,
    relu_into,
)
from ngine_ref.ops.convolution import convolution_epilogue
from ngine_ref.ops.smooth_activations import (
    gelu_into,
    gelu_tanh_into,
    mish_into,
    sigmoid_into,
    silu_into,
    tanh_into,
)
from ngine_ref.registry import Call, TensorSpec


@convolution_epilogue("ConvLeakyRelu")
def bind_conv_leaky_relu(call: Call, output: TensorSpec) -> Epilogue:
    """ConvLeakyRelu: `LeakyRelu(Conv(x, w, bias))`; attributes are Conv's and `alpha` (default 0.01)."""
    alpha = float_attribute(call, "alpha", 0.01)
    return lambda block: leaky_relu_into(block.values, alpha, block.values)


@convolution_epilogue("ConvPRelu")
def bind_conv_prelu(call: Call, output: TensorSpec) -> Epilogue:
    """ConvPRelu: `PRelu(Conv(x, w, bias), slope)`; inputs are `x, w, bias or "", slope`, attributes are Conv's.

    The slope has one element, or one a channel as ONNX aligns it: `[C, 1, 1]` or `[1, C, 1, 1]` for images.

    Raises:
        ShapeError: the slope has another shape (a plain `[C]` would be one a column).
    """
    slope = operand(call, 3)
    if slope.dtype != output.dtype:
        raise OperatorError(f"ConvPRelu: the slope is {slope.dtype}, but the convolution is {output.dtype}.")
    per_channel = (output.shape[1], *(1 for _ in output.shape[2:]))
    single = math.prod(slope.shape) == 1 and len(slope.shape) <= len(output.shape)
    if not single and slope.shape not in (per_channel, (1, *per_channel)):
        raise ShapeError(
            f"ConvPRelu needs a slope of one element, {per_channel} or {(1, *per_channel)} for an output of shape "
            f"{output.shape}, got {slope.shape}."
        )

    def epilogue(block: Block) -> None:
        prelu_into(block.values, block.part(3), block.values)

    return epilogue


@convolution_epilogue("ConvRelu")
def bind_conv_relu(call: Call, output: TensorSpec) -> Epilogue:
    """ConvRelu: `Relu(Conv(x, w, bias))`."""
    return lambda block: relu_into(block.values, block.values)


@convolution_epilogue("ConvClip")
def bind_conv_clip(call: Call, output: TensorSpec) -> Epilogue:
    """ConvClip: `Clip(Conv(x, w, bias), min, max)`; the bounds are inputs or attributes, an absent one bounds nothing.

    Raises:
        ShapeError: a bound is no scalar.
    """
    for slot, name in ((3, "min"), (4, "max")):
        bound = call.spec(slot)
        if bound is not None and bound.shape not in ((), (1,)):
            raise ShapeError(f"ConvClip needs a scalar as its {name}, got the shape {bound.shape}.")
        if bound is not None and bound.dtype != output.dtype:
            raise OperatorError(f"ConvClip: {name} is {bound.dtype}, but the convolution is {output.dtype}.")
    stated = {
        slot: np.asarray(float_attribute(call, name, 0.0), output.dtype)
        for slot, name in ((3, "min"), (4, "max"))
        if name in call.attributes
    }

    def epilogue(block: Block) -> None:
        low, high = (stated.get(slot) if call.spec(slot) is None else block.part(slot) for slot in (3, 4))
        clip_into(block.values, low, high, block.values)

    return epilogue


@convolution_epilogue("ConvHardSigmoid")
def bind_conv_hard_sigmoid(call: Call, output: TensorSpec) -> Epilogue:
    """ConvHardSigmoid: `HardSigmoid(Conv(x, w, bias))`; attributes `alpha` (default 0.2) and `beta` (0.5)."""
    alpha, beta = float_attribute(call, "alpha", 0.2), float_attribute(call, "beta", 0.5)
    return lambda block: hard_sigmoid_into(block.values, alpha, beta, block.values)


@convolution_epilogue("ConvHardSwish")
def bind_conv_hard_swish(call: Call, output: TensorSpec) -> Epilogue:
    """ConvHardSwish: `HardSwish(Conv(x, w, bias))`."""
    return lambda block: hard_swish_into(block.values, block.values)


@convolution_epilogue("ConvSigmoid")
def bind_conv_sigmoid(call: Call, output: TensorSpec) -> Epilogue:
    """ConvSigmoid: `Sigmoid(Conv(x, w, bias))`."""
    return lambda block: sigmoid_into(block.values, block.values)


@convolution_epilogue("ConvSiLU")
def bind_conv_silu(call: Call, output: TensorSpec) -> Epilogue:
    """ConvSiLU: `c * Sigmoid(c)` with `c = Conv(x, w, bias)`."""
    return lambda block: silu_into(block.values, block.values)


@convolution_epilogue("ConvTanh")
def bind_conv_tanh(call: Call, output: TensorSpec) -> Epilogue:
    """ConvTanh: `Tanh(Conv(x, w, bias))`."""
    return lambda block: tanh_into(block.values, block.values)


@convolution_epilogue("ConvMish")
def bind_conv_mish(call: Call, output: TensorSpec) -> Epilogue:
    """ConvMish: `Mish(Conv(x, w, bias))`."""
    return lambda block: mish_into(block.values, block.values)


@convolution_epilogue("ConvGelu")
def bind_conv_gelu(call: Call, output: TensorSpec) -> Epilogue:
    """ConvGelu: `Gelu(Conv(x, w, bias))`; attribute `approximate` (default `none`, or `tanh`)."""
    approximate = call.attributes.get("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise OperatorError(f"ConvGelu needs approximate none or tanh, got {approximate!r}.")
    function = gelu_into if approximate == "none" else gelu_tanh_into
    return lambda block: function(block.values, block.values)
