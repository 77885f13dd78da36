"""A convolution with arithmetic behind it: residual connections, `ConvAdd`, `ConvAddRelu`, `ConvMulAdd`.

Mostly an operand broadcasts to the convolution's output, and the arithmetic is an epilogue. ONNX lets it also be the
larger one; then the convolution is computed into scratch memory first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.numerics.blocked_convolution import Block
from ngine_ref.numerics.broadcasting import broadcast_shape
from ngine_ref.numerics.scratch import bytes_needed, carve
from ngine_ref.numerics.signature import Inputs, Outputs, operand, present
from ngine_ref.ops.activations import relu_into
from ngine_ref.ops.convolution import PRODUCERS, bind_convolution, convolution_output
from ngine_ref.ops.multiply_then import multiply_then_into
from ngine_ref.registry import FUSED_DOMAIN, Array, Call, Kernel, TensorSpec, Workspace, operator

Arithmetic = Callable[..., None]
"""`arithmetic(convolution, *operands, out)`, where all broadcast to `out`, which may be the convolution."""

_FIRST = 3
"""The slot of the first operand, behind x, w and bias."""


def convolution_then(op_type: str, operands: int) -> Callable[[Arithmetic], Arithmetic]:
    """Register `op_type`, the function below of a convolution and that many operands of its element type."""

    def register(arithmetic: Arithmetic) -> Arithmetic:
        slots = range(_FIRST, _FIRST + operands)

        def bind(call: Call) -> Kernel:
            output = convolution_output(call)
            specs = [operand(call, slot) for slot in slots]
            if any(spec.dtype != output.dtype for spec in specs):
                listed = ", ".join(str(spec.dtype) for spec in specs)
                raise OperatorError(f"{op_type} needs operands like its convolution, {output.dtype}, got {listed}.")
            shape = broadcast_shape(op_type, output.shape, *(spec.shape for spec in specs))
            if shape != output.shape:
                return _grown(call, arithmetic, slots, TensorSpec(shape, output.dtype))

            def epilogue(block: Block) -> None:
                arithmetic(block.values, *map(block.part, slots), block.values)

            return bind_convolution(call, lambda call, output: epilogue)

        bind.__doc__ = arithmetic.__doc__
        PRODUCERS[op_type] = operator(op_type, domain=FUSED_DOMAIN)(bind)
        return arithmetic

    return register


def _grown(call: Call, arithmetic: Arithmetic, slots: range, output: TensorSpec) -> Kernel:
    """The kernel where an operand is larger than the convolution."""
    convolution = bind_convolution(call)
    request = convolution.outputs[0].shape, output.dtype
    own = bytes_needed(request)

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        (result,) = carve(workspace.scratch, request)
        convolution.compute(inputs, [result], Workspace(workspace.scratch[own:], workspace.pool))
        with np.errstate(all="ignore"):
            arithmetic(result, *(present(inputs, slot) for slot in slots), outputs[0])

    return Kernel((output,), compute, scratch_bytes=own + convolution.scratch_bytes, strided=True)


@convolution_then("ConvAdd", operands=1)
def conv_add(convolution: Array, addend: Array, out: Array) -> None:
    """ConvAdd: `Conv(x, w, bias) + addend`; inputs are `x, w, bias or "", addend`, attributes are Conv's."""
    np.add(convolution, addend, out=out)


@convolution_then("ConvAddRelu", operands=1)
def conv_add_relu(convolution: Array, addend: Array, out: Array) -> None:
    """ConvAddRelu: `Relu(Conv(x, w, bias) + addend)`; inputs and attributes are those of ConvAdd."""
    np.add(convolution, addend, out=out)
    relu_into(out, out)


@convolution_then("ConvMulAdd", operands=2)
def conv_mul_add(convolution: Array, scale: Array, addend: Array, out: Array) -> None:
    """ConvMulAdd: `Conv(x, w, bias) * scale + addend`; inputs are `x, w, bias or "", scale, addend`."""
    multiply_then_into(np.add, convolution, scale, addend, out)
