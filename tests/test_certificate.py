"""The certificate fails on rewrites that are wrong, each written by hand, and says what is wrong."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.certificate_models import FUSED, MUL_ADD, TAIL, image, parse, reason

from graphopt.demo_models import rrdbnet, span, srvgg
from graphopt.errors import ModelError
from graphopt.proof.certificate import certify

CONV_ACT = image("c = Conv (x, w, b)  y = LeakyRelu <alpha: float = 0.2> (c)")


def test_wrong_alpha():
    wrong = parse(image("y = ai.ngine.ConvLeakyRelu <alpha: float = 0.1> (x, w, b)"), FUSED)
    assert reason(parse(CONV_ACT), wrong) == (
        "output 'y': LeakyRelu 'y' has alpha 0.2 in the original and 0.1 after fusing"
    )


def test_alpha_lost():
    wrong = parse(image("y = ai.ngine.ConvLeakyRelu (x, w, b)"), FUSED)
    assert "has alpha 0.2 in the original and the default after fusing" in reason(parse(CONV_ACT), wrong)


def test_dropped_bias():
    wrong = parse(image("y = ai.ngine.ConvLeakyRelu <alpha: float = 0.2> (x, w)"), FUSED)
    assert reason(parse(CONV_ACT), wrong) == ("output 'y': Conv 'c' has 3 inputs in the original and 2 after fusing")


def test_missing_pads():
    original = parse(image("c = Conv <pads: ints = [1,1,1,1]> (x, w, b)  y = LeakyRelu (c)"))
    wrong = parse(image("y = ai.ngine.ConvLeakyRelu (x, w, b)"), FUSED)
    assert "Conv 'c' has pads [1, 1, 1, 1] in the original and the default" in reason(original, wrong)


def test_kernel_shape_that_contradicts_the_weight():
    original = parse(image("y = Conv <kernel_shape: ints = [3,3]> (x, w)"))
    assert "kernel_shape [3, 3] in the original and the default" in reason(original, parse(image("y = Conv (x, w)")))


def test_pads_under_auto_pad_are_kept():
    original = parse(image("""y = Conv <auto_pad: string = "SAME_UPPER", pads: ints = [0,0,0,0]> (x, w)"""))
    assert "pads" in reason(original, parse(image("""y = Conv <auto_pad: string = "SAME_UPPER"> (x, w)""")))


def test_swapped_operands_of_sub():
    text = "g (float[n] a, float[n] b) => (float[n] y) {{ y = Sub ({}) }}"
    assert reason(parse(text.format("a, b")), parse(text.format("b, a"))) == (
        "output 'y': Sub 'y' reads its inputs in another order after fusing"
    )


def test_swapped_input_and_weight():
    text = "g (float[1,1,3,3] a, float[1,1,3,3] b) => (float[1,1,1,1] y) {{ y = Conv ({}) }}"
    assert "Conv 'y' reads its inputs in another order" in reason(
        parse(text.format("a, b")), parse(text.format("b, a"))
    )


def test_swapped_addend():
    text = "g (float[n] a, float[n] b, float[n] c) => (float[n] y) "
    original = parse(text + "{ m = Mul (a, b)  y = Add (m, c) }")
    wrong = parse(text + "{ y = ai.ngine.MulAdd (a, c, b) }", MUL_ADD)
    assert "input 'c'" in reason(original, wrong)


def test_wrong_axis():
    text = image("t = Conv (x, w, b)  y = Concat <axis: int = 2> (x, t)")
    wrong = image("y = ai.ngine.ConcatFusedTail <axis: int = 1, prefix_count: int = 1> (x, x, w, b)")
    assert "Concat 'y' has axis 2 in the original and 1 after" in reason(parse(text), parse(wrong, TAIL))


def test_wrong_order_in_a_prefix():
    text = image("t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)")
    wrong = image("t = Conv (x, w, b)  y = Concat <axis: int = 1> (t, x)")
    assert "Concat 'y' reads its inputs in another order" in reason(parse(text), parse(wrong))


def test_concat_of_concats_is_no_longer_concat_reordered():
    text = "g (float[n,1] a, float[n,1] b, float[n,1] c) => (float[n,3] y) {{ {} }}"
    original = text.format("y = Concat <axis: int = 1> (a, b, c)")
    wrong = text.format("p = Concat <axis: int = 1> (a, c)  y = Concat <axis: int = 1> (p, b)")
    assert reason(parse(original), parse(wrong)).startswith("output 'y': ")


def test_fused_value_was_a_graph_output():
    outputs = "float[n,4,h,w] y, float[n,4,h,w] c"
    original = parse(image("c = Conv (x, w, b)  y = LeakyRelu (c)", outputs))
    call = "y = ai.ngine.ConvLeakyRelu (x, w, b)"
    assert reason(original, parse(image(call), FUSED)) == "the outputs were y, c and are y after fusing"
    certificate = certify(original, parse(image(call, outputs), FUSED))
    assert not certificate.ok
    assert certificate.reason == "after fusing, nothing makes value 'c', or its nodes form a cycle"


def test_outputs_of_one_node_exchanged():
    text = "g (float[n] a) => (float[n] y) {{ o, p, q = Split <axis: int = 0> (a)  y = Sub ({}) }}"
    assert "Sub 'y' reads its inputs in another order" in reason(parse(text.format("p, q")), parse(text.format("q, p")))


def test_outputs_in_another_order():
    text = "g (float[n] a) => ({}) {{ y = Relu (a)  z = Neg (a) }}"
    rewritten = parse(text.format("float[n] z, float[n] y"))
    assert "the outputs were y, z and are z, y" in reason(parse(text.format("float[n] y, float[n] z")), rewritten)


def test_second_output_differs():
    text = "g (float[n] a) => (float[n] y, float[n] z) {{ y = Relu (a)  z = {} (a) }}"
    certificate = certify(parse(text.format("Neg")), parse(text.format("Abs")))
    assert certificate.output == "z"
    assert certificate.reason == "output 'z': where the original has Neg 'z', there is Abs after fusing"


def test_the_operands_of_an_add_are_paired_before_they_are_compared():
    text = "g (float[n] a) => (float[n] y) {{ m = LeakyRelu <alpha: float = {}> (a)  z = Neg (a)  y = Add (m, z) }}"
    assert "LeakyRelu 'm' has alpha 0.2 in the original and 0.3" in reason(
        parse(text.format("0.2")), parse(text.format("0.3"))
    )


def test_another_input_type():
    text = "g ({} a) => (float[n] y) {{ y = Cast <to: int = 1> (a) }}"
    assert reason(parse(text.format("float[n]")), parse(text.format("double[n]"))) == (
        "input 'a' has another type after fusing"
    )


def test_lost_input():
    text = "g (float[n] a{}) => (float[n] y) {{ y = Relu (a) }}"
    assert "inputs were a, b and are a" in reason(parse(text.format(", float[n] b")), parse(text.format("")))


def test_number_of_outputs_can_be_a_mode():
    """A BatchNormalization of opset 9 trains when it makes all five outputs."""
    text = """g (float[n,2] x, float[2] s, float[2] b, float[2] m, float[2] v) => (float[n,2] y)
        {{ {} = BatchNormalization (x, s, b, m, v) }}"""
    assert "makes 1 outputs in the original and 5" in reason(
        parse(text.format("y"), opset=9), parse(text.format("y, p, q, r, t"), opset=9)
    )


def test_integer_attribute_is_not_float():
    text = "g (float[n] a) => (float[n] y) {{ y = my.Op <k: {} = 1> (a) }}"
    reason(parse(text.format("int")), parse(text.format("float")))


def test_another_opset():
    text = "g (float[n] a) => (float[n] y) { y = Relu (a) }"
    assert reason(parse(text), parse(text, opset=18)) == (
        "domain 'ai.onnx' is imported at version 17 in the original and 18 after fusing"
    )


def test_a_body_stamped_with_another_opset():
    text = "g (float[n,m] a) => (float[1,1] y) {{ y = {} (a) }}"
    body = '<domain: "ai.ngine", opset_import: ["" : 18]> Mean (a) => (y) { y = ReduceMean (a) }'
    reason(parse(text.format("ReduceMean")), parse(text.format("ai.ngine.Mean"), body))


def test_a_bare_call_is_not_its_meaning():
    bare = parse(image("y = ai.ngine.ConvLeakyRelu <alpha: float = 0.2> (x, w, b)"))
    reason(parse(CONV_ACT), bare)


def test_a_value_made_twice():
    twice = parse("g (float[n] a) => (float[n] y) { y = Relu (a)  y = Relu (a) }")
    original = parse("g (float[n] a) => (float[n] y) { y = Relu (a) }")
    assert certify(original, twice).reason == "after fusing, value 'y' is made twice"


def test_invalid_originals_are_errors():
    text = "g (float[n] a) => (float[n] y) {{ y = {} }}"
    body = '<domain: "my", opset_import: ["" : 17, "my" : 1]> F (a) => (y) { y = my.F (a) }'
    valid = parse(text.format("Relu (a)"))
    with pytest.raises(ModelError, match="nothing makes value 'u'"):
        certify(parse(text.format("Relu (u)")), valid)
    with pytest.raises(ModelError, match=r"Function my\.F calls itself"):
        certify(parse(text.format("my.F (a)"), body), valid)


def test_a_cycle_is_an_error():
    cycle = parse("g (float[n] a) => (float[n] y) { y = Add (a, z)  z = Relu (y) }")
    with pytest.raises(ModelError, match="form a cycle"):
        certify(cycle, cycle)


def mutations(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model with one node changed, in each of the ways a wrong rewrite might."""
    for index, node in enumerate(model.graph.node):
        changes: list[Callable[[onnx.NodeProto], object]] = []
        if len(node.input) > 1:
            changes.append(lambda changed: changed.input.pop())
        if len(set(node.input)) > 1 and node.op_type not in ("Add", "Mul"):
            changes.append(lambda changed: changed.input.reverse())
        changes.extend(lambda changed, at=at: changed.attribute.pop(at) for at in range(len(node.attribute)))
        changes.append(lambda changed: changed.input.__setitem__(0, "elsewhere"))
        for change in changes:
            mutant = onnx.ModelProto()
            mutant.CopyFrom(model)
            change(mutant.graph.node[index])
            yield mutant


@pytest.mark.parametrize(
    "build",
    [
        lambda: rrdbnet(features=4, growth=2, blocks=1),
        lambda: srvgg(features=4, convolutions=2),
        lambda: span(features=4, blocks=2),
    ],
    ids=["rrdbnet", "srvgg", "span"],
)
def test_every_node_of_a_model_counts(build):
    model = build()
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.125), "elsewhere"))
    for node in model.graph.node:  # what a change to its default would not change is left out
        kept = [attribute for attribute in node.attribute if not says_the_default(node, attribute)]
        del node.attribute[:]
        node.attribute.extend(kept)
    assert certify(model, model).ok
    count = 0
    for mutant in mutations(model):
        assert not certify(model, mutant).ok
        count += 1
    assert count > 2 * len(model.graph.node)


def says_the_default(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> bool:
    """Whether leaving this attribute out says the same."""
    default = onnx.defs.get_schema(node.op_type, 17).attributes[attribute.name].default_value
    if default.type != onnx.AttributeProto.UNDEFINED:
        return helper.get_attribute_value(default) == helper.get_attribute_value(attribute)
    return node.op_type == "Conv" and (
        attribute.name in ("strides", "dilations", "kernel_shape") or not any(attribute.ints)
    )
