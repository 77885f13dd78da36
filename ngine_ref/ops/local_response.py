"""Local response normalisation, as AlexNet and its time had it. (onnx's own implementation leaves channels out.)"""

from __future__ import annotations

import numpy as np

from ngine_ref.errors import ShapeError
from ngine_ref.numerics.dtypes import wide
from ngine_ref.numerics.signature import (
    Inputs,
    Outputs,
    check_signature,
    float_attribute,
    int_attribute,
    operand,
    present,
)
from ngine_ref.registry import Call, Kernel, TensorSpec, Workspace, operator


@operator("LRN")
def bind_lrn(call: Call) -> Kernel:
    """LRN-1, -13: `X / (bias + alpha / size * sum of squares) ** beta`, the sum over `size` neighbouring channels.

    X [N, C, D1, ..., Dn] of float16, bfloat16 (both computed in float32), float32 or float64; Y is like X. Channel c is
    normalised by the channels from `c - floor((size - 1) / 2)` to `c + ceil((size - 1) / 2)`, as far as they are there.

    Raises:
        ShapeError: the input has no channel axis, or size is not positive.
    """
    check_signature(call)
    x = operand(call, 0)
    size = int_attribute(call, "size", 0)
    if len(x.shape) < 2 or size < 1:
        raise ShapeError(f"LRN needs [N, C, D1, ..., Dn] and a positive size, got the shape {x.shape} and size {size}.")
    alpha, beta = float_attribute(call, "alpha", 1e-4), float_attribute(call, "beta", 0.75)
    bias = float_attribute(call, "bias", 1.0)
    before, after, channels = (size - 1) // 2, size // 2, x.shape[1]
    working = wide(x.dtype)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        data = present(inputs, 0).astype(working, copy=False)
        squares, total = np.square(data), np.zeros_like(data)
        for offset in range(max(-before, 1 - channels), min(after, channels - 1) + 1):
            first, last = max(0, -offset), min(channels, channels - offset)
            total[:, first:last] += squares[:, first + offset : last + offset]
        np.divide(data, (bias + alpha / size * total) ** beta, out=outputs[0], casting="unsafe")

    return Kernel((TensorSpec(x.shape, x.dtype),), compute, strided=True)
