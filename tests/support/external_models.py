"""Models with weights in files of their own."""

from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, parser

VALUES = np.arange(300, dtype=np.float32)


def external(name: str, dims: list[int], **place: object) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def with_initializers(*tensors: TensorProto) -> ModelProto:
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Relu(x) }')
    model.graph.initializer.extend(tensors)
    return model


def write(folder: Path, *tensors: TensorProto, data: bytes | None = None, location: str = "w.bin") -> Path:
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    (folder / location).write_bytes(VALUES.tobytes() if data is None else data)
    path = folder / "m.onnx"
    path.write_bytes(with_initializers(*tensors).SerializeToString())
    return path
