"""Matrix products."""

from __future__ import annotations

import numpy as np

from ngine_ref.errors import ShapeError
from ngine_ref.numerics.broadcasting import broadcast_shape, check_unidirectional
from ngine_ref.numerics.dtypes import is_floating, wide
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


@operator("Gemm")
def bind_gemm(call: Call) -> Kernel:
    """Gemm-1, -6, -7, -9, -11, -13: `Y = alpha * A' @ B' + beta * C`.

    A' is A [M, K], or A [K, M] transposed where `transA` is not 0; B' is B [K, N], or B [N, K] transposed where
    `transB` is not 0. C broadcasts to Y [M, N] and may be absent from Gemm-11 on; with `beta` 0 it is not read. All
    of one dtype: float32, float64, float16, bfloat16 (both computed in float32 and rounded once), or an integer of
    32 or 64 bits, which wraps (with a fractional alpha or beta it is computed in float64 and truncated).

    Raises:
        ShapeError: A and B are no matrices that fit each other, or C does not broadcast to [M, N].
    """
    check_signature(call)
    a, b, c = operand(call, 0), operand(call, 1), call.spec(2)
    transpose_a, transpose_b = bool(int_attribute(call, "transA", 0)), bool(int_attribute(call, "transB", 0))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ShapeError(f"Gemm needs two matrices, got the shapes {a.shape} and {b.shape}.")
    rows, inner = reversed(a.shape) if transpose_a else a.shape
    inner_b, columns = reversed(b.shape) if transpose_b else b.shape
    if inner != inner_b:
        flags = f"transA={int(transpose_a)}, transB={int(transpose_b)}"
        raise ShapeError(f"Gemm cannot multiply the shapes {a.shape} and {b.shape} with {flags}.")
    if c is not None:
        check_unidirectional("Gemm", "C", c.shape, (rows, columns))
    alpha, beta = float_attribute(call, "alpha", 1.0), float_attribute(call, "beta", 1.0)
    working = _working_dtype(a.dtype, alpha, beta)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        left, right = (present(inputs, slot).astype(working, copy=False) for slot in (0, 1))
        out = outputs[0] if outputs[0].dtype == working else np.empty((rows, columns), working)
        np.matmul(left.T if transpose_a else left, right.T if transpose_b else right, out=out)
        if alpha != 1:
            np.multiply(out, working.type(alpha), out=out)
        if c is not None and beta != 0:
            addend = present(inputs, 2).astype(working, copy=False)
            np.add(out, addend if beta == 1 else addend * working.type(beta), out=out)
        if out is not outputs[0]:
            np.copyto(outputs[0], out, casting="unsafe")

    return Kernel((TensorSpec((rows, columns), a.dtype),), compute, strided=True)


def _working_dtype(dtype: np.dtype[np.generic], alpha: float, beta: float) -> np.dtype[np.generic]:
    whole = alpha.is_integer() and beta.is_integer()
    return wide(dtype) if is_floating(dtype) or whole else np.dtype(np.float64)


@operator("MatMul")
def bind_matmul(call: Call) -> Kernel:
    """MatMul-1, -9, -13: the matrix product of the last two axes, the axes before them broadcast, as numpy.matmul.

    Inputs A [..., M, K] and B [..., K, N] of one dtype: float32, float64, float16, bfloat16 (both computed in float32
    and rounded once), or an integer of 32 or 64 bits, which wraps. A vector counts as one row (A) or one column (B),
    which the output [..., M, N] then lacks.

    Raises:
        ShapeError: a scalar, or shapes that do not fit.
    """
    check_signature(call)
    a, b = operand(call, 0), operand(call, 1)
    shape = _product_shape(a.shape, b.shape)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        left, right = present(inputs, 0), present(inputs, 1)
        if wide(a.dtype) == a.dtype:
            np.matmul(left, right, out=outputs[0])
        else:
            product: Array = np.matmul(left.astype(wide(a.dtype)), right.astype(wide(a.dtype)))
            np.copyto(outputs[0], product, casting="unsafe")

    return Kernel((TensorSpec(shape, a.dtype),), compute, strided=True)


def _product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise ShapeError(f"MatMul cannot multiply the shapes {a} and {b}.")
    batch = broadcast_shape("MatMul", left[:-2], right[:-2])
    return (*batch, *(left[-2:-1] if len(a) > 1 else ()), *(right[-1:] if len(b) > 1 else ()))
