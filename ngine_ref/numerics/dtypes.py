"""Element types: ONNX's numbers and names on one side, NumPy's dtypes on the other.

The types that NumPy lacks (bfloat16, float8, the 2-, 4- and 6-bit types) are those of ml_dtypes, one element a byte
or two; strings are `object` arrays of `str`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from ngine_ref.errors import OperatorError

DType = np.dtype[Any]

STRING = np.dtype(object)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_TEXT_KINDS = "OUST"


@cache
def dtype_of(element_type: int) -> DType:
    """The NumPy dtype of an ONNX element type (`TensorProto.DataType`).

    Raises:
        OperatorError: there is no such element type.
    """
    if element_type == onnx.TensorProto.UNDEFINED or element_type not in onnx.TensorProto.DataType.values():
        raise OperatorError(f"{element_type} is no element type of ONNX.")
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))


@cache
def element_type_of(dtype: DType) -> int:
    """The ONNX element type (`TensorProto.DataType`) of a NumPy dtype.

    Raises:
        OperatorError: ONNX has no tensors of that dtype.
    """
    if is_text(dtype):
        return int(onnx.TensorProto.STRING)
    try:
        return int(onnx.helper.np_dtype_to_tensor_dtype(dtype))
    except (KeyError, ValueError) as error:
        raise OperatorError(f"ONNX has no tensors of dtype {dtype}.") from error


@cache
def type_name(dtype: DType) -> str:
    """ONNX's name of a dtype, as its schemas spell it: `float`, `int64`, `bfloat16`, `string`."""
    return str(onnx.TensorProto.DataType.Name(element_type_of(dtype))).lower()


def is_text(dtype: DType) -> bool:
    """Whether the elements are strings."""
    return dtype.kind in _TEXT_KINDS


@cache
def is_floating(dtype: DType) -> bool:
    """Whether the elements are real floating-point numbers of any width."""
    return not is_text(dtype) and type_name(dtype).startswith(("float", "double", "bfloat"))


@cache
def is_narrow_float(dtype: DType) -> bool:
    """Whether the elements are floating-point numbers of fewer than 32 bits."""
    return is_floating(dtype) and dtype.itemsize < 4


def wide(dtype: DType) -> DType:
    """The dtype to compute in where several roundings would add up: float32 for the narrow floats, else itself."""
    return np.dtype(np.float32) if is_narrow_float(dtype) else dtype


@cache
def largest(dtype: DType) -> float:
    """The largest finite number of a floating-point dtype; the lowest is its negative."""
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # ml_dtypes has no types of its own
