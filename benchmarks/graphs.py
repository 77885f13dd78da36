"""The graphs that rewriting is measured on. `python benchmarks/graphs.py NAME PATH` writes one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from graphopt.demo_models import rrdbnet

_EXTERNAL_TENSORS = 12
_EXTERNAL_CHANNELS = 1 << 14  # a 1x1 convolution of so many channels has 1 GiB of weights


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph to measure on."""

    title: str
    build: Callable[[], ModelProto]
    peers: bool = True
    """Whether the peers get it too: the largest are beyond them."""
    external_bytes: int = 0
    """The size of its data file `weights.bin`, which is one hole."""


Shape = list[str | int]


def _model(
    name: str, nodes: list[NodeProto], weights: list[TensorProto], shape: Shape, output_shape: Shape | None = None
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, output_shape or shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._random = np.random.default_rng(0)

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], f"{op_type}_{len(self.nodes)}", **attributes))
        return output

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        values = self._random.standard_normal(shape, np.float32) * np.float32(0.1)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def conv_silu(self, x: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> str:
        y = self.node(
            "Conv",
            x,
            self.weight(outputs, inputs, kernel, kernel),
            self.weight(outputs),
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )
        return self.node("Mul", y, self.node("Sigmoid", y))


def yolo(stages: int = 12, channels: int = 16) -> ModelProto:
    """SiLU-heavy, as the YOLO family is: every convolution is followed by Sigmoid and Mul, read twice each."""
    b = _Builder()
    x = b.conv_silu("input", 3, channels, stride=2)
    for _ in range(stages):
        left = b.conv_silu(x, channels, channels, kernel=1)
        parts = [left, b.conv_silu(x, channels, channels, kernel=1)]
        for _ in range(8):
            inner = b.conv_silu(b.conv_silu(parts[-1], channels, channels), channels, channels)
            parts.append(b.node("Add", parts[-1], inner))
        x = b.conv_silu(b.node("Concat", *parts, axis=1), len(parts) * channels, channels, kernel=1)
    return _model(
        "yolo", b.nodes, b.weights, ["batch", 3, "height", "width"], ["batch", channels, "out_height", "out_width"]
    )


def transformer(layers: int = 40, width: int = 32, heads: int = 4) -> ModelProto:
    """Encoder layers: many an Add and a Mul, and none of them fits a rule. It measures the cost of saying no."""
    b = _Builder()
    b.weights.append(numpy_helper.from_array(np.array([0, 0, heads, width // heads], np.int64), "split"))
    b.weights.append(numpy_helper.from_array(np.array([0, 0, width], np.int64), "join"))
    b.weights += [
        numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("one", 1), ("half", 0.5), ("root", 2**0.5))
    ]

    def linear(x: str, inputs: int, outputs: int) -> str:
        return b.node("Add", b.node("MatMul", x, b.weight(inputs, outputs)), b.weight(outputs))

    def head(x: str, perm: list[int]) -> str:
        return b.node("Transpose", b.node("Reshape", linear(x, width, width), "split"), perm=perm)

    x = "input"
    for _ in range(layers):
        normal = b.node("LayerNormalization", x, b.weight(width), b.weight(width))
        scores = b.node("Mul", b.node("MatMul", head(normal, [0, 2, 1, 3]), head(normal, [0, 2, 3, 1])), "half")
        mixed = b.node("MatMul", b.node("Softmax", scores, axis=-1), head(normal, [0, 2, 1, 3]))
        joined = b.node("Reshape", b.node("Transpose", mixed, perm=[0, 2, 1, 3]), "join")
        x = b.node("Add", x, linear(joined, width, width))
        wide = linear(b.node("LayerNormalization", x, b.weight(width), b.weight(width)), width, 4 * width)
        error = b.node("Add", b.node("Erf", b.node("Div", wide, "root")), "one")
        x = b.node("Add", x, linear(b.node("Mul", b.node("Mul", wide, error), "half"), 4 * width, width))
    return _model("transformer", b.nodes, b.weights, ["batch", "length", width])


def external() -> ModelProto:
    """Convolutions whose weights, one GiB each, lie in `weights.bin`; there is nothing in it but a hole."""
    b = _Builder()
    channels = _EXTERNAL_CHANNELS
    x = "input"
    for index in range(_EXTERNAL_TENSORS):
        weight = TensorProto(
            name=f"large{index}",
            data_type=TensorProto.FLOAT,
            dims=[channels, channels, 1, 1],
            data_location=TensorProto.EXTERNAL,
        )
        place = {"location": "weights.bin", "offset": index << 30, "length": 1 << 30}
        for key, value in place.items():
            weight.external_data.add(key=key, value=str(value))
        b.weights.append(weight)
        x = b.node("LeakyRelu", b.node("Conv", x, weight.name, kernel_shape=[1, 1]), alpha=0.2)
    return _model("external", b.nodes, b.weights, ["batch", channels, "height", "width"])


GRAPHS = {
    "rrdbnet-1k": Graph("RRDBNet-23, 67 MB", rrdbnet),
    "rrdbnet-9k": Graph("RRDBNet, 200 blocks", partial(rrdbnet, 2, 1, 200)),
    "rrdbnet-94k": Graph("RRDBNet, 2,000 blocks", partial(rrdbnet, 2, 1, 2000)),
    "rrdbnet-300k": Graph("RRDBNet, 6,383 blocks", partial(rrdbnet, 2, 1, 6383), peers=False),
    "yolo": Graph("YOLO-shaped, SiLU", yolo),
    "transformer": Graph("transformer, no fusion", transformer),
    "external-12g": Graph("12 GiB external", external, peers=False, external_bytes=_EXTERNAL_TENSORS << 30),
}


def write(name: str, path: Path) -> int:
    """Build a graph and write it, its data file beside it as a sparse file; returns the number of its nodes."""
    graph = GRAPHS[name]
    model = graph.build()
    path.write_bytes(model.SerializeToString())
    if graph.external_bytes:
        with path.with_name("weights.bin").open("wb") as file:
            file.truncate(graph.external_bytes)
    return len(model.graph.node)


if __name__ == "__main__":
    print(write(sys.argv[1], Path(sys.argv[2])))
