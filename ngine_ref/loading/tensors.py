"""`TensorProto` to NumPy arrays, weights in external files included.

Nothing in a file is believed: the element count follows from the dims and must equal what is stored, and an external
file must lie inside the model's folder.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from ngine_ref.errors import ModelError
from ngine_ref.limits import MOST_AXES, MOST_BYTES
from ngine_ref.registry import Array

_BITS = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    **{
        getattr(TensorProto, name): bits
        for name, bits in {"INT2": 2, "UINT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}.items()
        if hasattr(TensorProto, name)
    },
}
"""Element types that share bytes, with their width."""

_HALVES = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)


def element_dtype(element_type: int) -> np.dtype[np.generic]:
    """NumPy's (or ml_dtypes') dtype for an ONNX element type.

    Raises:
        ModelError: ONNX has no such element type.
    """
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    except KeyError:
        raise ModelError(f"ONNX has no element type {element_type}.") from None


def to_array(tensor: TensorProto, folder: Path | None) -> Array:
    """The content of a tensor as a read-only array.

    Args:
        tensor: an initializer or an attribute.
        folder: where the model's file lies, for external data; None if the model did not come from a file.

    Raises:
        ModelError: the stored data do not fit the dims, or the external data cannot be read safely.
    """
    dims = tuple(tensor.dims)
    if any(size < 0 for size in dims):
        raise ModelError(f"Tensor {tensor.name!r} declares the negative shape {list(dims)}.")
    if len(dims) > MOST_AXES or math.prod(size for size in dims if size) > MOST_BYTES:
        raise ModelError(f"Tensor {tensor.name!r} declares the shape {list(dims)}, which no machine has memory for.")
    dtype = element_dtype(tensor.data_type)
    if tensor.HasField("segment"):
        raise ModelError(f"Tensor {tensor.name!r} is stored in segments, which ONNX never defined further.")
    if tensor.data_location == TensorProto.EXTERNAL:
        array = _from_external(tensor, dims, dtype, folder)
    else:
        _check_stored_size(tensor, dims, dtype)
        array = numpy_helper.to_array(tensor)
    if array.dtype.kind == "U":
        array = array.astype(object)
    array.flags.writeable = False
    return array


def sparse_to_array(tensor: SparseTensorProto, folder: Path | None) -> Array:
    """The content of a sparse tensor as a dense read-only array.

    Raises:
        ModelError: an index lies outside the dims, or the parts do not fit each other.
    """
    name = tensor.values.name
    dims = tuple(tensor.dims)
    values = to_array(tensor.values, folder)
    indices = to_array(tensor.indices, folder)
    if any(size < 0 for size in dims) or values.ndim != 1:
        raise ModelError(f"Sparse tensor {name!r} has values of shape {values.shape} for dims {list(dims)}.")
    if indices.ndim == 2 and indices.shape == (values.size, len(dims)):
        sizes = np.array(dims, np.int64)
        within = bool(((indices >= 0) & (indices < sizes)).all())
        position = tuple(indices.T)
    elif indices.shape == values.shape:
        within = bool(((indices >= 0) & (indices < math.prod(dims))).all())
        position = np.unravel_index(indices, dims) if within and indices.size else (indices,) * len(dims)
    else:
        raise ModelError(f"Sparse tensor {name!r} has indices of shape {indices.shape} for {values.size} values.")
    if not within:
        raise ModelError(f"Sparse tensor {name!r} has an index outside its dims {list(dims)}.")
    dense = np.zeros(dims, values.dtype)
    dense[position] = values
    dense.flags.writeable = False
    return dense


def _stored_bytes(dims: tuple[int, ...], element_type: int, dtype: np.dtype[np.generic]) -> int:
    bits = _BITS.get(element_type, dtype.itemsize * 8)
    return (math.prod(dims) * bits + 7) // 8


def _check_stored_size(tensor: TensorProto, dims: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
    count = math.prod(dims)
    if tensor.data_type != TensorProto.STRING and tensor.HasField("raw_data"):
        stored, expected, unit = len(tensor.raw_data), _stored_bytes(dims, tensor.data_type, dtype), "bytes"
    else:
        stored, unit = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type))), "elements"
        per_entry = 8 // _BITS[tensor.data_type] if tensor.data_type in _BITS else 1
        expected = -(-count * (2 if tensor.data_type in _HALVES else 1) // per_entry)
        if tensor.data_type in _BITS and 8 % _BITS[tensor.data_type]:
            expected = stored  # 6-bit types: onnx's own reader checks them
    if stored != expected:
        raise ModelError(
            f"Tensor {tensor.name!r} of shape {list(dims)} needs {expected} {unit}, but the model stores {stored}."
        )


def _from_external(
    tensor: TensorProto, dims: tuple[int, ...], dtype: np.dtype[np.generic], folder: Path | None
) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if not isinstance(entries.get("location", ""), str):
        raise ModelError(f"Tensor {tensor.name!r} is stored in a file whose name is not UTF-8.")
    path = _external_path(tensor.name, entries.get("location", ""), folder)
    expected = _stored_bytes(dims, tensor.data_type, dtype)
    if dtype.hasobject:
        raise ModelError(f"Tensor {tensor.name!r} holds strings, which ONNX does not store in external files.")
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", expected))
    except ValueError:
        raise ModelError(f"Tensor {tensor.name!r} has an external offset or length that is no number.") from None
    if offset < 0 or length != expected:
        raise ModelError(
            f"Tensor {tensor.name!r} of shape {list(dims)} needs {expected} bytes, "
            f"but its external data are {length} bytes at offset {offset}."
        )
    size = path.stat().st_size
    if offset + length > size:
        raise ModelError(
            f"Tensor {tensor.name!r} ends at byte {offset + length} of {path.name!r}, which has only {size} bytes."
        )
    if tensor.data_type in _BITS:
        packed = np.fromfile(path, np.uint8, length, offset=offset).tobytes()
        return numpy_helper.to_array(TensorProto(dims=dims, data_type=tensor.data_type, raw_data=packed))
    array: Array = np.fromfile(path, dtype.newbyteorder("<"), math.prod(dims), offset=offset)
    return array.astype(dtype, copy=False).reshape(dims)


def _external_path(name: str, location: str, folder: Path | None) -> Path:
    """The file of an external tensor, which must be a regular file inside the model's folder."""
    if folder is None:
        raise ModelError(
            f"Tensor {name!r} is stored in the file {location!r}, but the model was not loaded from a file; "
            "load it by its path, or say which folder its data are in."
        )
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / location))
    if not location or os.path.isabs(location) or root not in path.parents:
        raise ModelError(f"Tensor {name!r} is stored in {location!r}, which is outside the model's folder.")
    if not path.is_file():
        raise ModelError(f"Tensor {name!r} is stored in {location!r}, and there is no such file beside the model.")
    return path
