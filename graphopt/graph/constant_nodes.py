"""The tensors that Constant nodes hold, in whichever of its forms a node is written."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import NodeProto, TensorProto


def held_tensor(node: NodeProto) -> TensorProto | None:
    """The tensor that a Constant node holds, None for forms that are no dense tensor."""
    if len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.ref_attr_name:
        return None
    if attribute.name == "value":
        tensor: TensorProto = attribute.t
        return tensor
    if attribute.name in ("value_float", "value_floats"):
        floats = [attribute.f] if attribute.name == "value_float" else attribute.floats
        return _tensor(TensorProto.FLOAT, floats, scalar=attribute.name == "value_float")
    if attribute.name in ("value_int", "value_ints"):
        ints = [attribute.i] if attribute.name == "value_int" else attribute.ints
        return _tensor(TensorProto.INT64, ints, scalar=attribute.name == "value_int")
    if attribute.name in ("value_string", "value_strings"):
        texts = [attribute.s] if attribute.name == "value_string" else attribute.strings
        dims = [] if attribute.name == "value_string" else [len(texts)]
        return TensorProto(data_type=TensorProto.STRING, dims=dims, string_data=texts)
    return None


def _tensor(data_type: int, values: Iterable[float], *, scalar: bool) -> TensorProto:
    values = list(values)
    tensor = TensorProto(data_type=data_type, dims=[] if scalar else [len(values)])
    if data_type == TensorProto.FLOAT:
        tensor.float_data.extend(values)
    else:
        tensor.int64_data.extend(int(value) for value in values)
    return tensor
