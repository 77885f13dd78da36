"""The shapes that a graph declares for its values."""

from __future__ import annotations

from functools import cached_property

from onnx import FunctionProto, GraphProto, TensorShapeProto, TypeProto

Dims = tuple[int | None, ...]
"""A shape; None is a size that is left open."""


def dim_size(dim: TensorShapeProto.Dimension) -> int | None:
    """The size of a declared dimension; None where it is left open, which some exporters write as -1."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def tensor_dims(tensor: TypeProto.Tensor) -> Dims | None:
    """The shape of a tensor type, None where it has none."""
    return tuple(dim_size(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None


class DeclaredShapes:
    """The shapes that a graph declares, read when the first is asked for."""

    def __init__(self, proto: GraphProto | FunctionProto) -> None:
        self.proto = proto

    @cached_property
    def by_name(self) -> dict[str, Dims]:
        """Shape by value name, for every value with a declared shape."""
        infos = list(self.proto.value_info)
        if isinstance(self.proto, GraphProto):
            infos += [*self.proto.input, *self.proto.output]
        tensors = [(info.name, info.type.tensor_type) for info in infos if info.type.HasField("tensor_type")]
        return {name: dims for name, tensor in tensors if (dims := tensor_dims(tensor)) is not None}
