"""When are two constants the same? By element type, dims and bits, however each is stored.

An identity is a tuple that can be a dictionary key: `("tensor", data_type, dims, content)`. The content of a small
tensor is its bytes. A large one is known by a serial number instead, so that no second copy of the weights is kept.
External data is never read; where it lies is its content.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto, helper

Identity = tuple[Any, ...]

SMALL = 1024
"""Bytes (or elements) up to which the content itself is the identity."""

FEW = 64
"""Elements up to which a quick comparison reads the content too: axes, amounts, the numbers of a rule."""

_TYPED_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}
_ITEM_BYTES = {"float_data": 4, "double_data": 8}


class TensorTable:
    """The identities of all constants of the models that are compared.

    Raw tensors are compared in place with the one met before under their name, and large ones unless `by_content` only
    with that: equal weights under two names then count as different. That is quick, for nothing is copied, and it
    never takes different weights for equal. With `by_content` names do not matter: tensors whose samples agree are
    compared in full.
    """

    def __init__(self, by_content: bool) -> None:
        self._by_content = by_content
        self._named: dict[str, tuple[TensorProto, Identity]] = {}
        self._large: dict[Identity, list[tuple[Callable[[], bytes], Identity]]] = {}
        self._serial = 0

    def identity(self, tensor: TensorProto, name: str = "") -> Identity:
        """What tells this tensor from others; `name` is the value it makes, empty where it makes none."""
        met = self._named.get(name)
        if met is not None and met[0] == tensor:
            return met[1]
        if tensor.data_location == TensorProto.EXTERNAL:
            return _external_identity(tensor)
        data_type, dims = tensor.data_type, tuple(tensor.dims[:])
        # Raw bytes only: on typed fields, not every protobuf compares bit by bit (NaN, -0).
        named = bool(name) and tensor.HasField("raw_data")
        if named and not self._by_content and math.prod(dims) > FEW:
            identity = self._new_identity(data_type, dims)
        elif data_type == TensorProto.STRING:
            return ("tensor", data_type, dims, tuple(tensor.string_data))
        else:
            identity = self._content_identity(data_type, dims, tensor_bytes(tensor), lambda: tensor_bytes(tensor))
        if named:
            self._named[name] = tensor, identity
        return identity

    def identity_of_bytes(self, data_type: int, dims: tuple[int, ...], data: bytes) -> Identity:
        """The identity of a constant that is written without a tensor, such as a Constant's `value_floats`."""
        return self._content_identity(data_type, dims, data, lambda: data)

    def sparse_identity(self, sparse: SparseTensorProto) -> Identity:
        """A sparse tensor is what its three parts are; it never equals a dense one."""
        return ("sparse", tuple(sparse.dims), self.identity(sparse.values), self.identity(sparse.indices))

    def _content_identity(
        self, data_type: int, dims: tuple[int, ...], data: bytes, again: Callable[[], bytes]
    ) -> Identity:
        """The identity of elements that were read; `again` reads them once more."""
        if len(data) <= SMALL:
            return ("tensor", data_type, dims, data)
        step = len(data) // 64 | 1  # odd, so that the samples fall on every byte of an element
        sample = (data_type, dims, len(data), data[::step], data[-16:])
        alike = self._large.setdefault(sample, [])
        for content, identity in alike:
            if content() == data:
                return identity
        identity = self._new_identity(data_type, dims)
        alike.append((again, identity))
        return identity

    def _new_identity(self, data_type: int, dims: tuple[int, ...]) -> Identity:
        self._serial += 1
        return ("tensor", data_type, dims, self._serial)


def tensor_bytes(tensor: TensorProto) -> bytes:
    """The little-endian elements of a tensor that is not external, as `raw_data` would hold them.

    Four-bit and two-bit types are packed, as ONNX packs them in `raw_data` and in `int32_data`.
    """
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    field = _TYPED_FIELDS.get(tensor.data_type, "int32_data")
    values = getattr(tensor, field)
    if field in _ITEM_BYTES:
        return _float_bytes(field, values)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    wide = np.fromiter(values, np.int64 if field != "uint64_data" else np.uint64, len(values))
    return wide.astype(f"<u{dtype.itemsize}").tobytes()


def _float_bytes(field: str, values: Any) -> bytes:
    """The bits of a packed float field, taken from the wire: as Python floats, signalling NaNs would lose theirs."""
    alone = TensorProto()
    getattr(alone, field).MergeFrom(values)
    size = _ITEM_BYTES[field] * len(values)
    return alone.SerializePartialToString()[-size:] if size else b""


def _external_identity(tensor: TensorProto) -> Identity:
    """Place and length in the data file; a missing offset is 0, and a checksum says nothing about the place."""
    place = {entry.key: entry.value for entry in tensor.external_data if entry.key != "checksum"}
    if place.get("offset") == "0":
        del place["offset"]
    return ("tensor", tensor.data_type, tuple(tensor.dims), ("external", *sorted(place.items())))


def is_false(identity: Identity) -> bool:
    """Whether the value is a constant that is False."""
    return identity[0] == "tensor" and identity[1:] == (TensorProto.BOOL, identity[2], b"\0")


def float_text(data: bytes) -> str:
    """The shortest decimal that is this float32."""
    return str(np.frombuffer(data, "<f4")[0])


def describe(identity: Identity) -> str:
    """A constant in words, for a sentence: its value where that is short."""
    if identity[0] == "sparse":
        return f"a sparse constant of shape {list(identity[1])}"
    _, data_type, dims, content = identity
    if math.prod(dims) == 1 and isinstance(content, bytes):
        if data_type == TensorProto.FLOAT and len(content) == 4:
            return f"a constant {float_text(content)}"
        if data_type == TensorProto.INT64:
            return f"a constant {int.from_bytes(content, 'little', signed=True)}"
    return f"a constant of type {TensorProto.DataType.Name(data_type).lower()} and shape {list(dims)}"
