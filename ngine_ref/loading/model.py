"""Reading a model: a path, bytes or a `ModelProto` becomes a `Model`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, helper

from ngine_ref.errors import ModelError
from ngine_ref.loading.graph import AttributeReference, Function, Graph, Model, Node, ValueInfo, ValueType
from ngine_ref.loading.node_checks import check_node
from ngine_ref.loading.tensors import sparse_to_array, to_array
from ngine_ref.registry import FUSED_DOMAIN, NEWEST_OPSET, Array


def load(source: str | os.PathLike[str] | bytes | ModelProto, folder: str | os.PathLike[str] | None = None) -> Model:
    """Read a model.

    Args:
        source: the path of a file, its content, or a message (which is not changed).
        folder: where external data are looked for; by default beside the file.

    Raises:
        ModelError: it cannot be read, or is not a valid model.
    """
    if isinstance(source, ModelProto):
        return _Reader(source, None if folder is None else Path(folder)).model()
    message = ModelProto()
    if not isinstance(source, bytes | str | os.PathLike):
        raise ModelError(f"A model is a path, bytes or a ModelProto, not a {type(source).__name__}.")
    if isinstance(source, bytes):
        what, content = "The model", source
    else:
        path = Path(source)
        what, folder = f"{os.fspath(path)}", path.parent if folder is None else folder
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{what} cannot be read: {error.strerror}.") from error
        except ValueError as error:  # a zero byte in the name
            raise ModelError(f"{what!r} is no path: {error}.") from error
    if not content:
        raise ModelError(f"{what} is empty.")
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(f"{what} is not an ONNX model: {error}.") from error
    del content
    return _Reader(message, None if folder is None else Path(folder)).model()


class _Reader:
    def __init__(self, message: ModelProto, folder: Path | None) -> None:
        self._message = message
        self._folder = folder

    def model(self) -> Model:
        message = self._message
        if not message.HasField("graph"):
            raise ModelError("The model has no graph.")
        if message.ir_version >= 3 and not message.opset_import:
            raise ModelError("The model imports no opset, so its operators have no meaning.")
        if message.ir_version > onnx.IR_VERSION:
            raise ModelError(
                f"The model has IR version {message.ir_version}; the installed onnx knows versions up to "
                f"{onnx.IR_VERSION}."
            )
        opsets = _imports(message.opset_import) if message.ir_version >= 3 else {"": 1}
        functions: dict[tuple[str, str, str], Function] = {}
        for proto in message.functions:
            function = self._function(proto)
            if function.key in functions:
                raise ModelError(f"The model defines the function {proto.domain}::{proto.name} twice.")
            functions[function.key] = function
        return Model(message.ir_version, self._graph(message.graph, opsets), functions)

    def _graph(self, proto: GraphProto, opsets: Mapping[str, int]) -> Graph:
        initializers: dict[str, Array] = {}
        for tensor in proto.initializer:
            _add_unique(initializers, _name(tensor.name), to_array(tensor, self._folder))
        for sparse in proto.sparse_initializer:
            _add_unique(initializers, _name(sparse.values.name), sparse_to_array(sparse, self._folder))
        return Graph(
            _name(proto.name),
            tuple(ValueInfo(_name(value.name), _value_type(value.type)) for value in proto.input),
            tuple(ValueInfo(_name(value.name), _value_type(value.type)) for value in proto.output),
            initializers,
            tuple(self._node(node, opsets) for node in proto.node),
        )

    def _function(self, proto: FunctionProto) -> Function:
        opsets = _imports(proto.opset_import)
        return Function(
            _domain(proto.domain),
            _name(proto.name),
            _name(proto.overload),
            tuple(map(_name, proto.input)),
            tuple(map(_name, proto.output)),
            {_name(item.name): (self._attribute(item, opsets), item.type) for item in proto.attribute_proto},
            tuple(self._node(node, opsets) for node in proto.node),
        )

    def _node(self, proto: NodeProto, opsets: Mapping[str, int]) -> Node:
        domain = _domain(proto.domain)
        if domain in opsets:
            opset = opsets[domain]
        elif domain == FUSED_DOMAIN or domain.startswith(FUSED_DOMAIN + "."):
            opset = NEWEST_OPSET
        else:
            raise ModelError(
                f"Node {proto.name or proto.op_type!r} uses {proto.op_type} of the domain {domain!r}, "
                "which the model does not import."
            )
        node = Node(
            _name(proto.op_type),
            domain,
            _name(proto.name),
            tuple(map(_name, proto.input)),
            tuple(map(_name, proto.output)),
            {_name(item.name): self._attribute(item, opsets) for item in proto.attribute},
            {item.name: item.type for item in proto.attribute},
            opset,
            _name(proto.overload),
            opsets,
        )
        check_node(node)
        return node

    def _attribute(self, proto: AttributeProto, opsets: Mapping[str, int]) -> Any:
        if proto.ref_attr_name:
            return AttributeReference(_name(proto.ref_attr_name))
        match proto.type:
            case AttributeProto.FLOAT:
                return proto.f
            case AttributeProto.INT:
                return proto.i
            case AttributeProto.STRING:
                return _text(proto.s)
            case AttributeProto.TENSOR:
                return to_array(proto.t, self._folder)
            case AttributeProto.GRAPH:
                return self._graph(proto.g, opsets)
            case AttributeProto.SPARSE_TENSOR:
                return sparse_to_array(proto.sparse_tensor, self._folder)
            case AttributeProto.TYPE_PROTO:
                return _own_copy(proto.tp)
            case AttributeProto.FLOATS:
                return list(proto.floats)
            case AttributeProto.INTS:
                return list(proto.ints)
            case AttributeProto.STRINGS:
                return [_text(item) for item in proto.strings]
            case AttributeProto.TENSORS:
                return [to_array(item, self._folder) for item in proto.tensors]
            case AttributeProto.GRAPHS:
                return [self._graph(item, opsets) for item in proto.graphs]
            case AttributeProto.SPARSE_TENSORS:
                return [sparse_to_array(item, self._folder) for item in proto.sparse_tensors]
            case AttributeProto.TYPE_PROTOS:
                return [_own_copy(item) for item in proto.type_protos]
        raise ModelError(f"Attribute {proto.name!r} has no type.")


def _name(text: str | bytes) -> str:
    """A name as protobuf gives it: bytes, where it is not UTF-8."""
    if isinstance(text, bytes):
        raise ModelError(f"The model has the name {text!r}, which is not UTF-8.")
    return text


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else _name(domain)


def _imports(entries: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain; of a domain that is imported twice, the newer version holds, as in onnxruntime."""
    opsets: dict[str, int] = {}
    for entry in entries:
        domain = _domain(entry.domain)
        if not 0 < entry.version < NEWEST_OPSET:
            raise ModelError(f"The model imports version {entry.version} of the domain {domain!r}; there is none.")
        opsets[domain] = max(entry.version, opsets.get(domain, entry.version))
    return opsets


def _add_unique(initializers: dict[str, Array], name: str, array: Array) -> None:
    if name in initializers:
        raise ModelError(f"The initializer {name!r} is there twice.")
    initializers[name] = array


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _own_copy(proto: TypeProto) -> TypeProto:
    """A copy that does not keep the model's memory alive."""
    copy = TypeProto()
    copy.ParseFromString(proto.SerializeToString())
    return copy


def _value_type(proto: TypeProto) -> ValueType:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        shape: tuple[int | str | None, ...] | None = None
        if tensor.HasField("shape"):
            shape = tuple(
                dim.dim_value  # some exporters write -1 for a size that is left open, as onnxruntime knows
                if dim.HasField("dim_value") and dim.dim_value >= 0
                else (_name(dim.dim_param) or None)
                for dim in tensor.shape.dim
            )
        return ValueType(_type_text(proto), shape, tensor.elem_type, is_tensor=True)
    item = None
    if kind in ("sequence_type", "optional_type"):
        holds = proto.sequence_type if kind == "sequence_type" else proto.optional_type
        item = _value_type(holds.elem_type)
    return ValueType(_type_text(proto), None, item=item)


def _type_text(proto: TypeProto) -> str:
    match proto.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_element_text(proto.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({_element_text(proto.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({_type_text(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({_type_text(proto.optional_type.elem_type)})"
        case "map_type":
            return f"map({_element_text(proto.map_type.key_type)},{_type_text(proto.map_type.value_type)})"
    return ""


def _element_text(element_type: int) -> str:
    """ONNX's name of an element type; like onnxruntime, `float16` and `double` for FLOAT16 and DOUBLE."""
    if not element_type or element_type not in onnx.TensorProto.DataType.values():
        return "undefined"
    return helper.tensor_dtype_to_string(element_type).removeprefix("TensorProto.").lower()
