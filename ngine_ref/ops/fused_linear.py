"""Matrix products with one more operator behind them: GemmRelu, MatMulAdd."""

from __future__ import annotations

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.nodes.fused_meaning import check_interface
from ngine_ref.numerics.broadcasting import broadcast_shape
from ngine_ref.numerics.scratch import bytes_needed, carve
from ngine_ref.numerics.signature import Inputs, Outputs, operand, present
from ngine_ref.ops.activations import relu_into
from ngine_ref.ops.linear import bind_gemm, bind_matmul
from ngine_ref.registry import FUSED_DOMAIN, Call, Kernel, TensorSpec, Workspace, operator


@operator("GemmRelu", domain=FUSED_DOMAIN)
def bind_gemm_relu(call: Call) -> Kernel:
    """GemmRelu: `Relu(Gemm(a, b, c))`, with Gemm's inputs and attributes.

    Raises:
        ShapeError: the matrices do not fit each other.
    """
    gemm = bind_gemm(Call("Gemm", call.inputs, call.attributes))

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        gemm.compute(inputs, outputs, workspace)
        relu_into(outputs[0], outputs[0])

    return Kernel(gemm.outputs, compute, scratch_bytes=gemm.scratch_bytes, strided=gemm.strided)


@operator("MatMulAdd", domain=FUSED_DOMAIN)
def bind_matmul_add(call: Call) -> Kernel:
    """MatMulAdd: `MatMul(a, b) + c`, all of one dtype, with the broadcasting of Add: c may be the larger one.

    Raises:
        ShapeError: the matrices do not fit each other, or c does not broadcast with their product.
    """
    check_interface(call)
    matmul = bind_matmul(Call("MatMul", call.inputs[:2], {}))
    (product,), addend = matmul.outputs, operand(call, 2)
    if addend.dtype != product.dtype:
        raise OperatorError(f"MatMulAdd needs inputs of one element type, got {product.dtype} and {addend.dtype}.")
    output = TensorSpec(broadcast_shape("MatMulAdd", product.shape, addend.shape), product.dtype)
    request = (product.shape if product.shape != output.shape else (0,)), product.dtype
    own = bytes_needed(request)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        (separate,) = carve(workspace.scratch, request)
        result = separate if product.shape != output.shape else outputs[0]
        matmul.compute(inputs[:2], [result], Workspace(workspace.scratch[own:], workspace.pool))
        np.add(result, present(inputs, 2), out=outputs[0])

    return Kernel((output,), compute, scratch_bytes=own + matmul.scratch_bytes, strided=matmul.strided)
