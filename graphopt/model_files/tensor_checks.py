"""Does a tensor hold exactly what its type and dims say? A fault is a sentence with a place for the tensor's title."""

from __future__ import annotations

from onnx import SparseTensorProto, TensorProto

from graphopt.model_files.tensor_size import element_count, tensor_size


def tensor_fault(tensor: TensorProto, is_external: bool) -> str | None:
    """What is wrong with a dense tensor; None where its data is what it must be. External data is not looked at."""
    # Shapes repeat in a model, so the size of each is worked out once.
    size = tensor_size(tensor.data_type, tuple(tensor.dims[:]))
    if size is None:
        of = f"the element type {tensor.data_type} and the shape {_shape(tensor)}"
        return f"{{}} cannot have {of}; the file may be damaged."
    if is_external:
        return "{} holds strings, which cannot be stored as external data." if size.field == "string_data" else None
    if tensor.HasField("raw_data"):
        if size.field == "string_data":
            return "{} holds strings as raw data, and ONNX allows string_data only."
        # len() copies the bytes, and so does every other way to their size; the copy is gone at once.
        found, needed, unit = len(tensor.raw_data), size.bytes, "bytes of raw data"
    else:
        found, needed, unit = len(getattr(tensor, size.field)), size.entries, f"entries in {size.field}"
    if found == needed:
        return None
    kind = TensorProto.DataType.Name(tensor.data_type)
    return (
        f"the data of {{}} does not match its dims: {kind} {_shape(tensor)} needs {needed} {unit}, and it has {found}; "
        "the file may be cut or damaged."
    )


def sparse_fault(sparse: SparseTensorProto) -> str | None:
    """What is wrong with how the parts of a sparse tensor go together; None where they do."""
    stored, indices, rank = list(sparse.values.dims), list(sparse.indices.dims), len(sparse.dims)
    if element_count(sparse.dims) is None:
        return "{} has an impossible shape; the file may be damaged."
    if len(stored) == 1 and indices in (stored, [*stored, rank]) and sparse.indices.data_type == TensorProto.INT64:
        return None
    return (
        f"{{}} needs one int64 index, or a row of {rank}, for each of its values; its values have shape {stored} and "
        f"its indices {indices}."
    )


def _shape(tensor: TensorProto) -> str:
    dims = list(tensor.dims)
    return str(dims) if len(dims) <= 8 else f"of {len(dims)} dims"
