"""Models as ONNX text, fused functions written by hand, and proofs that must hold or fail."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from graphopt.proof.certificate import certify

HEADER = (
    '<ir_version: {ir}, opset_import: ["" : {opset}, "ai.ngine" : 1, "my" : 1, "ai.ngine.p1" : 1, "ai.ngine.p2" : 1]>'
)

CONV_LEAKY_RELU = """
<domain: "{domain}", opset_import: ["" : 17]>
ConvLeakyRelu <auto_pad, dilations, group, kernel_shape, pads, strides, alpha> (x, w, b) => (y)
{{
  c = Conv <auto_pad: string = @auto_pad, dilations: ints = @dilations, group: int = @group,
            kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides> (x, w, b)
  y = LeakyRelu <alpha: float = @alpha> (c)
}}
"""
FUSED = CONV_LEAKY_RELU.format(domain="ai.ngine")
MUL_ADD = """
<domain: "ai.ngine", opset_import: ["" : 17]>
MulAdd (a, b, c) => (y) { m = Mul (a, b)  y = Add (m, c) }
"""
TAIL = """
<domain: "ai.ngine", opset_import: ["" : 17]>
ConcatFusedTail <axis, auto_pad, dilations, group, kernel_shape, pads, strides, prefix_count, producer_op>
    (p0, x, w, b) => (y)
{
  t = Conv <auto_pad: string = @auto_pad, dilations: ints = @dilations, group: int = @group,
            kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides> (x, w, b)
  y = Concat <axis: int = @axis> (p0, t)
}
"""


def parse(text: str, *functions: str, opset: int = 17, ir: int = 8) -> onnx.ModelProto:
    """A model from the text of its graph and of its functions."""
    return onnx.parser.parse_model(HEADER.format(opset=opset, ir=ir) + text + "".join(functions))


def image(body: str, outputs: str = "float[n,4,h,w] y", extra: str = "") -> str:
    """A graph that reads an image `x` and has a convolution's weights."""
    return f"""
        g (float[n,4,h,w] x) => ({outputs})
        <float[4,4,1,1] w = {{1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}}, float[4] b = {{1,2,3,4}}{extra}>
        {{ {body} }}"""


def with_weight(weight: np.ndarray) -> onnx.ModelProto:
    """One node that reads an initializer `k`."""
    model = parse("g (float[n] a) => (float[n] y) { y = my.Op (a, k) }")
    model.graph.initializer.append(numpy_helper.from_array(weight, "k"))
    return model


def external() -> onnx.ModelProto:
    """One node that reads an initializer whose data lies in another file, which does not exist."""
    model = with_weight(np.zeros(4, np.float32))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "a.bin"), ("offset", "16"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return model


def assert_same(original: onnx.ModelProto, rewritten: onnx.ModelProto) -> None:
    """The proof succeeds in both directions."""
    for one, other in ((original, rewritten), (rewritten, original)):
        certificate = certify(one, other)
        assert certificate.ok, certificate.reason
        assert certificate.outputs == len(original.graph.output)
        assert certificate.output is None
        assert certificate.reason is None


def reason(original: onnx.ModelProto, rewritten: onnx.ModelProto) -> str:
    """The sentence of a proof that must fail, in both directions."""
    assert not certify(rewritten, original).ok
    certificate = certify(original, rewritten)
    assert not certificate.ok
    assert certificate.reason is not None
    return certificate.reason
