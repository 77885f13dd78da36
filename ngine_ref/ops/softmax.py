"""Softmax: numbers as parts of a whole."""

from __future__ import annotations

import math

import numpy as np

from ngine_ref.numerics.axes import normalize_axis
from ngine_ref.numerics.scratch import bytes_needed, carve
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.registry import Call, Kernel, TensorSpec, Workspace, operator


@operator("Softmax", since=13)
def bind_softmax(call: Call) -> Kernel:
    """Softmax-13: `exp(x) / sum(exp(x))` along `axis` (default -1), with the largest x subtracted first.

    Input of any shape, of float16, bfloat16, float32 or float64. Every step is rounded to that element type, as in the
    body that ONNX gives the operator (ReduceMax, Sub, Exp, ReduceSum, Div), and as its test cases of Attention expect.

    Raises:
        ShapeError: the input has no such axis.
    """
    check_signature(call)
    x = operand(call, 0)
    axis = normalize_axis("Softmax", int_attribute(call, "axis", -1), len(x.shape))
    return _kernel(x, x.shape, axis)


@operator("Softmax", since=1)
def bind_flattened_softmax(call: Call) -> Kernel:
    """Softmax-1, -11: as Softmax-13, but along all axes from `axis` (default 1) on, taken as one.

    Raises:
        ShapeError: the input has no such axis.
    """
    check_signature(call)
    x = operand(call, 0)
    axis = normalize_axis("Softmax", int_attribute(call, "axis", 1), len(x.shape))
    return _kernel(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), 1)


def _kernel(x: TensorSpec, shape: tuple[int, ...], axis: int) -> Kernel:
    request = (shape, x.dtype)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        (parts,) = carve(workspace.scratch, request)
        parts.reshape(x.shape)[...] = present(inputs, 0)
        np.subtract(parts, parts.max(axis, keepdims=True, initial=-np.inf), out=parts)
        np.exp(parts, out=parts)
        np.divide(parts, parts.sum(axis, keepdims=True), out=parts)
        outputs[0][...] = parts.reshape(x.shape)

    output = TensorSpec(x.shape, x.dtype)
    return Kernel((output,), compute, scratch_bytes=bytes_needed(request), in_place=(0,), strided=True)
