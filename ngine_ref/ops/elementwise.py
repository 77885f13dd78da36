"""Arithmetic and comparison of two tensors, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ngine_ref.numerics.broadcasting import broadcast_shape, in_place_slots, legacy_shape
from ngine_ref.numerics.dtypes import DType, is_floating
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, operand, present
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, operator


@operator("Add")
def bind_add(call: Call) -> Kernel:
    """Add-1, -6, -7, -13, -14: `C = A + B`, broadcast in both directions; integers wrap.

    Inputs A and B of one dtype: any integer, float16, bfloat16, float32 or float64; C has the broadcast shape. Before
    opset 7, the attributes `broadcast` and `axis` say how B lines up with A.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    return _binary_kernel(call, np.add)


@operator("Sub")
def bind_sub(call: Call) -> Kernel:
    """Sub-1, -6, -7, -13, -14: `C = A - B`; everything else as for Add."""
    return _binary_kernel(call, np.subtract)


@operator("Mul")
def bind_mul(call: Call) -> Kernel:
    """Mul-1, -6, -7, -13, -14: `C = A * B`; everything else as for Add."""
    return _binary_kernel(call, np.multiply)


@operator("Div")
def bind_div(call: Call) -> Kernel:
    """Div-1, -6, -7, -13, -14: `C = A / B`, for integers rounded towards zero; everything else as for Add.

    An integer divided by zero is undefined in ONNX, and 0 here.
    """
    return _binary_kernel(call, np.divide if is_floating(operand(call, 0).dtype) else _divide_integers)


@operator("Equal")
def bind_equal(call: Call) -> Kernel:
    """Equal-1, -7, -11, -13, -19: `C = A == B`, elementwise, as bool, broadcast in both directions; NaN equals nothing.

    Inputs A and B of one dtype: bool, any number, or string. Before opset 7, `broadcast` and `axis` as for Add.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    return _binary_kernel(call, np.equal, np.dtype(np.bool_))


def _binary_kernel(call: Call, function: Callable[..., object], dtype: DType | None = None) -> Kernel:
    check_signature(call)
    a, b = operand(call, 0), operand(call, 1)
    b_shape = legacy_shape(call, a.shape, b.shape) if call.opset < 7 else b.shape
    output = TensorSpec(broadcast_shape(call.op_type, a.shape, b_shape), dtype or a.dtype)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        function(present(inputs, 0), present(inputs, 1).reshape(b_shape), out=outputs[0])

    return Kernel((output,), compute, in_place=in_place_slots(call, output), strided=True)


def _divide_integers(a: Array, b: Array, out: Array) -> None:
    # What is left after taking off the remainder, which has the sign of `a`, divides without rounding.
    np.floor_divide(a - np.fmod(a, b), b, out=out)
