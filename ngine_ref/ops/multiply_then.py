"""Fused operators of a product and one more operand, in one pass over the data."""

from __future__ import annotations

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.nodes.fused_meaning import check_interface
from ngine_ref.numerics.blocks import blocks
from ngine_ref.numerics.broadcasting import broadcast_shape, in_place_slots
from ngine_ref.numerics.dtypes import is_text
from ngine_ref.numerics.signature import Inputs, Outputs, operand, present
from ngine_ref.registry import FUSED_DOMAIN, Array, Call, Kernel, TensorSpec, Workspace, operator


@np.errstate(all="ignore")
def multiply_then_into(ufunc: np.ufunc, a: Array, b: Array, c: Array, out: Array) -> None:
    """`out = ufunc(a * b, c)`, block by block so that the product never leaves the cache.

    All three broadcast to the shape of `out`, which may be one of them. The product is rounded to its own dtype, as
    Mul does, so the bits are those of two separate operators.
    """
    for target, left, right, last in blocks(out, a, b, c):
        ufunc(np.multiply(left, right), last, out=target)


def multiply_then_kernel(call: Call, ufunc: np.ufunc) -> Kernel:
    """The kernel of `ufunc(a * b, c)` for a call with three inputs of one numeric dtype.

    Raises:
        ShapeError: the shapes do not broadcast.
        OperatorError: the inputs are no numbers of one element type.
    """
    check_interface(call)
    a, b, c = operand(call, 0), operand(call, 1), operand(call, 2)
    if not a.dtype == b.dtype == c.dtype or is_text(a.dtype) or a.dtype == np.bool_:
        raise OperatorError(f"{call.op_type} needs numbers of one element type, got {a.dtype}, {b.dtype}, {c.dtype}.")
    output = TensorSpec(broadcast_shape(call.op_type, a.shape, b.shape, c.shape), a.dtype)

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        multiply_then_into(ufunc, present(inputs, 0), present(inputs, 1), present(inputs, 2), outputs[0])

    return Kernel((output,), compute, in_place=in_place_slots(call, output), strided=True)


@operator("MulSub", domain=FUSED_DOMAIN)
def bind_mul_sub(call: Call) -> Kernel:
    """MulSub: `(a * b) - c`, with the broadcasting of Mul and then Sub, and rounded after each like them.

    Inputs a, b, c of one numeric dtype; integers wrap. The output has the shape that all three broadcast to.
    """
    return multiply_then_kernel(call, np.subtract)
