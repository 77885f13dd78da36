"""How much data a tensor of an element type and shape holds, in bytes and in entries of protobuf's typed fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from onnx import TensorProto

_MOST_DIMS = 64
_MOST_ELEMENTS = 2**63

# Bits of an element and the typed field that holds it, as onnx.proto says beside each field of TensorProto.
_LAYOUT = {
    "FLOAT": (32, "float_data"),
    "UINT8": (8, "int32_data"),
    "INT8": (8, "int32_data"),
    "UINT16": (16, "int32_data"),
    "INT16": (16, "int32_data"),
    "INT32": (32, "int32_data"),
    "INT64": (64, "int64_data"),
    "STRING": (0, "string_data"),
    "BOOL": (8, "int32_data"),
    "FLOAT16": (16, "int32_data"),
    "DOUBLE": (64, "double_data"),
    "UINT32": (32, "uint64_data"),
    "UINT64": (64, "uint64_data"),
    "COMPLEX64": (64, "float_data"),
    "COMPLEX128": (128, "double_data"),
    "BFLOAT16": (16, "int32_data"),
    "FLOAT8E4M3FN": (8, "int32_data"),
    "FLOAT8E4M3FNUZ": (8, "int32_data"),
    "FLOAT8E5M2": (8, "int32_data"),
    "FLOAT8E5M2FNUZ": (8, "int32_data"),
    "UINT4": (4, "int32_data"),
    "INT4": (4, "int32_data"),
    "FLOAT4E2M1": (4, "int32_data"),
    "FLOAT8E8M0": (8, "int32_data"),
    "UINT2": (2, "int32_data"),
    "INT2": (2, "int32_data"),
    "FLOAT6E2M3": (6, "int32_data"),
    "FLOAT6E3M2": (6, "int32_data"),
}


@dataclass(frozen=True, slots=True)
class TensorSize:
    """What a tensor's data must hold."""

    bytes: int
    """Of raw or external data, where types below 8 bits are packed; 0 for strings, which have no such form."""
    field: str
    """The typed field of TensorProto that holds the elements where there is no raw data."""
    entries: int
    """Of that field: two for a complex number, one for two 4-bit or four 2-bit elements, else one an element."""


_BY_NUMBER = {number: _LAYOUT[name] for name, number in TensorProto.DataType.items() if name in _LAYOUT}
_COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)


@lru_cache(maxsize=4096)
def tensor_size(data_type: int, dims: tuple[int, ...]) -> TensorSize | None:
    """The size of a tensor's data; None where onnx knows no such type or no tensor can have such a shape."""
    count = element_count(dims)
    if count is None or data_type not in _BY_NUMBER:
        return None
    bits, field = _BY_NUMBER[data_type]
    packed = 8 // bits if bits in (2, 4) else 1
    entries = 2 * count if data_type in _COMPLEX else -(-count // packed)
    return TensorSize((count * bits + 7) // 8, field, entries)


def element_count(dims: Sequence[int]) -> int | None:
    """The number of elements of a shape; None where no tensor can have it: a negative dim, or beyond 63 bits."""
    if len(dims) > _MOST_DIMS:  # before the product: of a million dims it would be a number of megabytes
        return None
    if any(dim < 0 for dim in dims):
        return None
    count = prod(dims)
    return count if count < _MOST_ELEMENTS else None
