"""Three super-resolution topologies with seeded random weights, so that everything can be tried without a download.

Each is its published architecture node for node, at its published size unless the arguments say otherwise; the smaller
ones serve tests and benchmarks. Weights are drawn so that activations neither fade nor explode on the way through
(standard deviations between 0.02 and 200 everywhere), else a wrong rewrite could hide behind zeros or infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from graphopt.errors import UsageError

_OPSET = 17
_IR_VERSION = 8
_LEAKY_SLOPE = 0.2
_RESIDUAL_SCALE = 0.2

# Gains that keep the standard deviation of what follows: of a linear layer, LeakyRelu(0.2), PRelu and SiLU.
_LINEAR = 1.0
_AFTER_LEAKY_RELU = (2 / (1 + _LEAKY_SLOPE**2)) ** 0.5
_AFTER_PRELU = (2 / (1 + 0.25**2)) ** 0.5
_AFTER_SILU = 1.68


class _Graph:
    """Collects nodes and initializers in order; every method that adds a node returns its output's name."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._random = np.random.default_rng(seed)

    def node(
        self, op_type: str, inputs: Sequence[str], name: str, *, output: str | None = None, **attributes: Any
    ) -> str:
        output = output or f"{name}_output"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name, **attributes))
        return output

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> str:
        self.initializers.append(
            TensorProto(
                name=name, data_type=TensorProto.FLOAT, dims=array.shape, raw_data=array.astype(np.float32).tobytes()
            )
        )
        return name

    def uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> str:
        # Scaled in place and in float32: float64 temporaries would double the time to build 67 MB.
        array = self._random.random(shape, np.float32)
        array *= np.float32(high - low)
        array += np.float32(low)
        return self.constant(name, array)

    def conv(
        self, x: str, name: str, channels: tuple[int, int], gain: float, *, kernel: int = 3, output: str | None = None
    ) -> str:
        """A stride-1 convolution `(in, out)` that keeps the image's size; `gain` scales the unit-variance weights."""
        fan_in, fan_out = channels
        bound = gain * (3 / (fan_in * kernel * kernel)) ** 0.5
        weight = self.uniform(f"{name}.weight", (fan_out, fan_in, kernel, kernel), -bound, bound)
        bias = self.uniform(f"{name}.bias", (fan_out,), -0.05, 0.05)
        return self.node(
            "Conv",
            [x, weight, bias],
            name,
            output=output,
            dilations=[1, 1],
            group=1,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[1, 1],
        )

    def conv_leaky_relu(self, x: str, name: str, channels: tuple[int, int], gain: float) -> str:
        return self.node("LeakyRelu", [self.conv(x, name, channels, gain)], f"{name}.lrelu", alpha=_LEAKY_SLOPE)

    def nearest_resize(self, x: str, scales: str, name: str) -> str:
        return self.node(
            "Resize",
            [x, "", scales],
            name,
            coordinate_transformation_mode="asymmetric",
            mode="nearest",
            nearest_mode="floor",
        )

    def model(self, name: str) -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            name,
            [_image("input", "height", "width")],
            [_image("output", "out_height", "out_width")],
            self.initializers,
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="graphopt",
        )


def _image(name: str, height: str, width: str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, height, width])


def rrdbnet(features: int = 64, growth: int = 32, blocks: int = 23, seed: int = 0) -> ModelProto:
    """Real-ESRGAN's generator, x4: residual blocks of three dense blocks of five convolutions (arXiv:2107.10833).

    47 nodes a block and 12 around them; the defaults make realesrgan-x4plus, 1,093 nodes and 67 MB.

    Returns:
        A model from `input` [batch, 3, height, width] to `output` [batch, 3, 4*height, 4*width], float32, opset 17.
    """
    graph = _Graph(seed)
    scale = graph.constant("residual_scale", np.array([_RESIDUAL_SCALE]))
    doubled = graph.constant("doubled", np.array([1, 1, 2, 2]))

    def scaled_residual(x: str, shortcut: str, name: str) -> str:
        return graph.node("Add", [graph.node("Mul", [x, scale], f"{name}.mul"), shortcut], f"{name}.add")

    def dense_block(x: str, name: str) -> str:
        parts = [x]
        for step in range(1, 6):
            joint = x if step == 1 else graph.node("Concat", parts, f"{name}.cat{step - 1}", axis=1)
            channels = features + (step - 1) * growth
            if step < 5:
                parts.append(graph.conv_leaky_relu(joint, f"{name}.conv{step}", (channels, growth), _AFTER_LEAKY_RELU))
        return scaled_residual(graph.conv(joint, f"{name}.conv5", (channels, features), _LINEAR), x, name)

    first = trunk = graph.conv("input", "conv_first", (3, features), 2.0)
    for block in range(blocks):
        out = trunk
        for dense in range(1, 4):
            out = dense_block(out, f"body.{block}.rdb{dense}")
        trunk = scaled_residual(out, trunk, f"body.{block}")
    # `0.2 * out + x` carries x twice: the trunk grows 1.2 times a block, which conv_body takes back.
    body = graph.conv(trunk, "conv_body", (features, features), (1 + _RESIDUAL_SCALE) ** -blocks)
    x = graph.node("Add", [first, body], "conv_body.add")
    for step, gain in ((1, _LINEAR), (2, _AFTER_LEAKY_RELU)):
        x = graph.nearest_resize(x, doubled, f"up{step}.resize")
        x = graph.conv_leaky_relu(x, f"conv_up{step}", (features, features), gain)
    x = graph.conv_leaky_relu(x, "conv_hr", (features, features), _AFTER_LEAKY_RELU)
    graph.conv(x, "conv_last", (features, 3), _AFTER_LEAKY_RELU, output="output")
    return graph.model("realesrgan-x4plus")


def srvgg(features: int = 64, convolutions: int = 32, seed: int = 0) -> ModelProto:
    """SRVGGNetCompact, x4: a plain chain of convolutions and PRelus over an enlarged input (arXiv:2107.10833).

    The slopes are `[features, 1, 1]`, one a channel. The defaults make realesr-general-x4v3, 70 nodes.

    Returns:
        A model from `input` [batch, 3, height, width] to `output` [batch, 3, 4*height, 4*width], float32, opset 17.
    """
    graph = _Graph(seed)
    enlarged = graph.constant("enlarged", np.array([1, 1, 4, 4]))
    x = "input"
    for index in range(convolutions + 1):
        channels, gain = ((3, features), 2.0) if index == 0 else ((features, features), _AFTER_PRELU)
        x = graph.conv(x, f"body.{2 * index}", channels, gain)
        slope = graph.uniform(f"body.{2 * index + 1}.slope", (features, 1, 1), 0.05, 0.45)
        x = graph.node("PRelu", [x, slope], f"body.{2 * index + 1}")
    x = graph.conv(x, f"body.{2 * convolutions + 2}", (features, 48), 0.4)
    x = graph.node("DepthToSpace", [x], "upsampler", blocksize=4, mode="CRD")
    graph.node("Add", [x, graph.nearest_resize("input", enlarged, "base")], "residual", output="output")
    return graph.model("realesr-general-x4v3")


def span(features: int = 48, blocks: int = 6, seed: int = 0) -> ModelProto:
    """SPAN, x4, folded for inference: blocks with parameter-free attention (arXiv:2311.12770).

    The defaults make span-x4, 74 nodes. Five of its Adds read a product, and every such product is read elsewhere too.

    Returns:
        A model from `input` [batch, 3, height, width] to `output` [batch, 3, 4*height, 4*width], float32, opset 17.

    Raises:
        UsageError: fewer than two blocks; the network joins the first block's output with the last block's features.
    """
    if blocks < 2:
        raise UsageError(f"SPAN needs at least 2 blocks, not {blocks}.")
    graph = _Graph(seed)
    mean = graph.constant("mean", np.array([0.4488, 0.4371, 0.4040]).reshape(1, 3, 1, 1))
    image_range = graph.constant("image_range", np.array(255.0))
    half = graph.constant("half", np.array(0.5))
    square = (features, features)

    def silu(x: str, name: str) -> str:
        return graph.node("Mul", [x, graph.node("Sigmoid", [x], f"{name}.sigmoid")], f"{name}.silu")

    def block(x: str, name: str) -> tuple[str, str]:
        first = silu(graph.conv(x, f"{name}.c1", square, _LINEAR), f"{name}.c1")
        second = silu(graph.conv(first, f"{name}.c2", square, _AFTER_SILU), f"{name}.c2")
        # Attention shrinks what it weighs; larger features make up for it.
        third = graph.conv(second, f"{name}.c3", square, 2.4 * _AFTER_SILU)
        attention = graph.node("Sub", [graph.node("Sigmoid", [third], f"{name}.sigmoid"), half], f"{name}.attention")
        return graph.node("Mul", [graph.node("Add", [third, x], f"{name}.add"), attention], f"{name}.mul"), first

    centred = graph.node("Sub", ["input", mean], "centred")
    first = x = graph.conv(graph.node("Mul", [centred, image_range], "scaled"), "conv_1", (3, features), 3 / 255)
    outputs = []
    for index in range(1, blocks + 1):
        x, inner = block(x, f"block_{index}")
        outputs.append(x)
    last = graph.conv(x, "conv_2", square, _LINEAR)
    joint = graph.node("Concat", [first, last, outputs[0], inner], "cat", axis=1)
    x = graph.conv(joint, "conv_cat", (4 * features, features), _LINEAR, kernel=1)
    x = graph.conv(x, "upsampler.0", (features, 48), _LINEAR)
    graph.node("DepthToSpace", [x], "upsampler.1", output="output", blocksize=4, mode="CRD")
    return graph.model("span-x4")


DEMO_MODELS: dict[str, Callable[..., ModelProto]] = {
    "realesrgan-x4plus": rrdbnet,
    "realesr-general-x4v3": srvgg,
    "span-x4": span,
}
"""The demo models by name; called without arguments, each builder makes the full-size one."""


def build(name: str, seed: int = 0) -> ModelProto:
    """The demo model of that name, full size; the same seed gives the same bytes.

    Raises:
        UsageError: there is no demo model of that name.
    """
    if name not in DEMO_MODELS:
        raise UsageError(f"There is no demo model named {name!r}; there are {', '.join(DEMO_MODELS)}.")
    return DEMO_MODELS[name](seed=seed)
