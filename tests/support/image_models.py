"""Small models over an image, as ONNX text: what the tests of the rewriter are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import graphopt

WEIGHT = ", ".join(["0.5", "-0.25", "1", "2"] * 4)
WIDE = ", ".join(["0.125", "-0.5"] * 16)
HEADER = '<ir_version: {ir}, opset_import: ["": {opset}, "my": 1, "other": 1]>'
TOLERANCE = 1e-5
"""How close ngine_ref comes to onnxruntime."""
FUSED = "c = Conv(x,w,b)  y = LeakyRelu(c)"
LEAKY = {"ConvLeakyRelu": 1}
CONDITION = "float[1,4,5,5] x, bool p"
ELSE = "else_branch = e () => (float[1,4,5,5] q) { q = Abs(x) }"


def image(
    body: str,
    outputs: str = "float[1,4,5,5] y",
    inputs: str = "float[1,4,5,5] x",
    *,
    constants: str = "",
    functions: str = "",
    opset: int = 17,
    ir: int = 8,
) -> ModelProto:
    """A model that reads an image `x`, with weights for 1x1 convolutions of 4 (w) and 8 channels (wide)."""
    return onnx.parser.parse_model(
        f"""{HEADER.format(ir=ir, opset=opset)} g ({inputs}) => ({outputs})
        <float[4,4,1,1] w = {{{WEIGHT}}}, float[4] b = {{1,2,3,4}}, float[4,8,1,1] wide = {{{WIDE}}},
         float[1] k = {{0.125}}{constants}>
        {{ {body} }} {functions}"""
    )


def counts(result: graphopt.FusionResult) -> dict[str, int]:
    """How often each rule was applied, zeros left out."""
    return {operator: count for operator, count in result.report.counts.items() if count}


def plain(nodes: Sequence[NodeProto], output: str = "y", opset: int = 17) -> ModelProto:
    """A model of one pixel and one channel."""
    pixel = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 1])
    inits = [numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "w")]
    graph = helper.make_graph(nodes, "g", [pixel], [helper.make_tensor_value_info(output, 1, None)], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
