"""When are two attributes the same? By type and value, bit by bit; and how messages show them."""

from __future__ import annotations

import struct
from array import array
from typing import Any

from onnx import AttributeProto

from graphopt.proof.tensor_identity import Identity, TensorTable, describe, float_text


def attribute_identity(proto: AttributeProto, tensors: TensorTable, name: str) -> Identity:
    """Type and value of an attribute that is no subgraph, bit by bit; an integer 1 is not a float 1.0."""
    kind = proto.type
    value: Any
    match kind:
        case AttributeProto.FLOAT:
            value = struct.pack("<f", proto.f)
        case AttributeProto.INT:
            value = proto.i
        case AttributeProto.STRING:
            value = proto.s
        case AttributeProto.TENSOR:
            value = tensors.identity(proto.t, name)
        case AttributeProto.SPARSE_TENSOR:
            value = tensors.sparse_identity(proto.sparse_tensor)
        case AttributeProto.FLOATS:
            value = array("f", proto.floats).tobytes()
        case AttributeProto.INTS:
            value = tuple(proto.ints)
        case AttributeProto.STRINGS:
            value = tuple(proto.strings)
        case AttributeProto.TENSORS:
            value = tuple(tensors.identity(tensor) for tensor in proto.tensors)
        case AttributeProto.SPARSE_TENSORS:
            value = tuple(tensors.sparse_identity(tensor) for tensor in proto.sparse_tensors)
        case _:  # types, a function's default subgraphs, what a later ONNX may add: as they are written
            value = proto.SerializePartialToString(deterministic=True)
    return (kind, value)


def attribute_text(identity: Identity | None) -> str:
    """The value of an attribute as a person writes it; None stands for one that is not written."""
    if identity is None:
        return "the default"
    kind, value = identity
    match kind:
        case "reference":
            return f"@{value}"
        case AttributeProto.FLOAT:
            return float_text(value)
        case AttributeProto.FLOATS:
            return f"[{', '.join(float_text(value[at : at + 4]) for at in range(0, len(value), 4))}]"
        case AttributeProto.INT:
            return str(value)
        case AttributeProto.INTS:
            return str(list(value))
        case AttributeProto.STRING:
            return repr(value.decode("utf-8", "replace"))
        case AttributeProto.TENSOR | AttributeProto.SPARSE_TENSOR:
            return describe(value)
    return "another value"
