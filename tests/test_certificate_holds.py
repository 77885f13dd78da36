"""The certificate holds on rewrites that are right but look different, each written by hand."""

import onnx
import pytest
from onnx import TensorProto, helper
from support.certificate_models import CONV_LEAKY_RELU, FUSED, MUL_ADD, TAIL, assert_same, image, parse

from graphopt.errors import UsageError
from graphopt.proof.certificate import certify
from graphopt.proof.value_numbering import ValueNumbering

CONV_ACT = image("c = Conv <pads: ints = [1,1,1,1]> (x, w, b)  y = LeakyRelu <alpha: float = 0.2> (c)")
CONV_ACT_FUSED = image("y = ai.ngine.ConvLeakyRelu <pads: ints = [1,1,1,1], alpha: float = 0.2> (x, w, b)")


def test_fused_call():
    assert_same(parse(CONV_ACT), parse(CONV_ACT_FUSED, FUSED))


def test_bare_call_with_a_body_handed_over():
    bare = parse(CONV_ACT_FUSED)
    function = parse(CONV_ACT_FUSED, FUSED).functions[0]
    assert certify(parse(CONV_ACT), bare, [function]).ok
    other_version = parse(CONV_ACT_FUSED)
    other_version.opset_import[1].version = 2
    assert certify(bare, other_version).ok


def test_bodies_handed_over_are_not_guessed():
    function = parse(CONV_ACT_FUSED, FUSED).functions[0]
    other = parse(CONV_ACT_FUSED, FUSED.replace("LeakyRelu <alpha: float = @alpha> (c)", "Relu (c)")).functions[0]
    bare = parse(CONV_ACT_FUSED)
    with pytest.raises(UsageError, match=r"2 bodies were given for ai\.ngine\.ConvLeakyRelu"):
        certify(parse(CONV_ACT), bare, [function, other])
    assert certify(parse(CONV_ACT), bare, [function, function]).ok
    assert certify(parse(CONV_ACT), bare, lambda call: function if call.output[0] == "y" else other).ok
    assert not certify(parse(CONV_ACT), bare, lambda call: other).ok
    assert certify(parse(CONV_ACT), parse(CONV_ACT_FUSED, FUSED), [other, other]).ok  # its own goes first


def test_neither_model_is_changed():
    original, rewritten = parse(CONV_ACT), parse(CONV_ACT_FUSED, FUSED)
    before = original.SerializeToString(), rewritten.SerializeToString()
    certify(original, rewritten)
    assert before == (original.SerializeToString(), rewritten.SerializeToString())


def test_sub_domains_tell_bodies_apart():
    bodies = [CONV_LEAKY_RELU.format(domain=f"ai.ngine.p{k}") for k in (1, 2)]
    bodies[1] = bodies[1].replace("LeakyRelu <alpha: float = @alpha> (c)", "Relu (c)").replace(", alpha>", ">")
    original = parse(image("c = Conv (x, w, b)  l = LeakyRelu (c)  d = Conv (l, w, b)  y = Relu (d)"))
    one, other = "ai.ngine.p1.ConvLeakyRelu", "ai.ngine.p2.ConvLeakyRelu"
    assert_same(original, parse(image(f"l = {one} (x, w, b)  y = {other} (l, w, b)"), *bodies))
    assert not certify(original, parse(image(f"l = {other} (x, w, b)  y = {one} (l, w, b)"), *bodies)).ok


def test_fused_again():
    """An original that has fused calls itself is numbered by the same bodies."""
    tail = TAIL.replace("t = Conv", "t = ai.ngine.ConvLeakyRelu").replace(
        "opset_import: [", 'opset_import: ["ai.ngine" : 1, '
    )
    once = parse(image("t = ai.ngine.ConvLeakyRelu (x, w, b)  y = Concat <axis: int = 1> (x, t)"), FUSED)
    twice = parse(image("y = ai.ngine.ConcatFusedTail <axis: int = 1> (x, x, w, b)"), FUSED, tail)
    plain = parse(image("c = Conv (x, w, b)  t = LeakyRelu (c)  y = Concat <axis: int = 1> (x, t)"))
    assert_same(once, twice)
    assert_same(plain, twice)


@pytest.mark.parametrize("product", ["m = Mul (a, k)  y = Add (m, c)", "m = Mul (k, a)  y = Add (c, m)"])
def test_operands_of_add_and_mul_have_no_order(product):
    graph = "g (float[n] a, float[n] c) => (float[n] y) <float k = {0.2}> "
    assert_same(parse(f"{graph} {{ {product} }}"), parse(graph + "{ y = ai.ngine.MulAdd (a, k, c) }", MUL_ADD))


@pytest.mark.parametrize("known", ["float[n,4,h,w] p", "float[] p"], ids=["by the input", "by the weight"])
def test_negative_axis(known):
    weights = ", ".join("1" * 16)
    graph = f"g ({known}, float[] x) => (float[] y) <float[4,4,1,1] w = {{{weights}}}, float[1] b = {{0}}> "
    original = graph + "{ t = Conv (x, w, b)  y = Concat <axis: int = -3> (p, t) }"
    rewritten = graph + "{ y = ai.ngine.ConcatFusedTail <axis: int = 1> (p, x, w, b) }"
    assert_same(parse(original), parse(rewritten, TAIL))


def test_negative_axis_by_value_info():
    text = "g (float[] a) => (float[] y) <float[n,4] p> { p = Abs (a)  y = Concat <axis: int = -1> (p, a) }"
    bare = parse(text)
    del bare.graph.value_info[:]
    assert_same(parse(text), parse(text.replace("-1", "1")))
    assert not certify(bare, parse(text.replace("-1", "1"))).ok


def test_value_info_that_is_lost_parts_nothing():
    declared = parse("g (float[] a) => (float[] y) <float[n,4] p> { p = Abs (a)  y = Concat <axis: int = -1> (p, a) }")
    bare = onnx.ModelProto()
    bare.CopyFrom(declared)
    del bare.graph.value_info[:]
    assert_same(declared, bare)


@pytest.mark.parametrize(
    ("op", "written"),
    [
        ("Conv (x, w)", 'Conv (x, w, "")'),
        ("Conv (x, w)", "Conv <group: int = 1, dilations: ints = [1,1], strides: ints = [1,1]> (x, w)"),
        ("Conv (x, w)", 'Conv <auto_pad: string = "NOTSET", pads: ints = [0,0,0,0]> (x, w)'),
        ("Conv (x, w)", "Conv <kernel_shape: ints = [1,1]> (x, w)"),
        ("LeakyRelu (x)", "LeakyRelu <alpha: float = 0.01> (x)"),
        ("Clip (x)", 'Clip (x, "", "")'),
        ("Softmax (x)", "Softmax <axis: int = -1> (x)"),
    ],
)
def test_what_is_written_out_is_what_is_left_out(op, written):
    assert_same(parse(image(f"y = {op}")), parse(image(f"y = {written}")))
    assert_same(parse(image(f"y = {op}")), parse(image(f"y = ai.onnx.{written}")))


def test_an_absent_attribute_of_a_call_takes_the_default_of_the_function():
    body = FUSED.replace("strides, alpha>", "strides, alpha: float = 0.2>")
    original = parse(image("c = Conv (x, w)  y = LeakyRelu <alpha: float = 0.2> (c)"))
    assert_same(original, parse(image("y = ai.ngine.ConvLeakyRelu (x, w)"), body))


def test_identity_is_an_alias():
    text = "g (float[n] a) => (float[n] y) {{ {} }}"
    aliased = parse(text.format("s = Identity (a)  r = Relu (s)  y = Identity (r)"))
    assert_same(parse(text.format("y = Relu (a)")), aliased)


def test_a_concat_may_start_from_a_shorter_one():
    graph = "g (float[n,1] x, float[n,1] x1, float[n,1] x2) => (float[n,2] p, float[n,3] y) "
    shorter = graph + "{ p = Concat <axis: int = 1> (x, x1)  "
    assert_same(
        parse(shorter + "y = Concat <axis: int = 1> (x, x1, x2) }"),
        parse(shorter + "y = Concat <axis: int = 1> (p, x2) }"),
    )
    assert not certify(
        parse(shorter + "y = Concat <axis: int = 1> (x, x1, x2) }"),
        parse(shorter + "y = Concat <axis: int = 0> (p, x2) }"),
    ).ok


def test_nodes_in_any_order():
    original = parse(image("c = Conv (x, w, b)  y = LeakyRelu (c)"))
    shuffled = parse(image("y = LeakyRelu (c)  c = Conv (x, w, b)"))
    assert_same(original, shuffled)
    captured = (
        "y = If (q) <then_branch = t () => (float z) { z = Relu (u) }, else_branch = e () => (float v) { v = Neg (u) }>"
    )
    graph = "g (float a, bool q) => (float y) {{ {} {} }}"
    assert_same(parse(graph.format("u = Abs (a)", captured)), parse(graph.format(captured, "u = Abs (a)")))


def test_an_initializer_without_a_name_is_no_input():
    original, named = parse(image('y = Conv (x, w, "")')), parse(image('y = Conv (x, w, "")'))
    original.graph.initializer.add(data_type=TensorProto.FLOAT, dims=[1], float_data=[1.0])
    assert_same(original, named)


def test_an_absent_output_at_the_end_is_no_output():
    original, rewritten = (parse("g (float[n] a) => (float[n] y) { y = Dropout (a) }") for _ in range(2))
    rewritten.graph.node[0].output.append("")
    assert_same(original, rewritten)


def test_deep_chains_need_no_recursion():
    nodes = [helper.make_node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(20_000)]
    model = parse("g (float[n] v0) => (float[n] v20000) { }")
    model.graph.node.extend(nodes)
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(model)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(reversed(nodes))
    assert_same(model, shuffled)
    shuffled.graph.node[-1].op_type = "Neg"
    assert certify(model, shuffled).reason == (
        "output 'v20000': where the original has Relu 'v1', there is Neg after fusing"
    )


def test_a_dense_ladder_is_numbered_in_linear_space():
    """Each rung joins all before it: written out, the last expression would have 2 to the 25 leaves."""
    model = parse("g (float[n,1] v0) => (float[n,m] v25) { }")
    for k in range(1, 26):
        model.graph.node.append(helper.make_node("Concat", [f"v{i}" for i in range(k)], [f"v{k}"], axis=1))
    numbering = ValueNumbering()
    numbering.number(model)
    assert len(numbering.expressions) < 25 * 25
    assert_same(model, model)


def test_two_models_share_one_table():
    numbering = ValueNumbering()
    before, after = numbering.number(parse(CONV_ACT)), numbering.number(parse(CONV_ACT_FUSED, FUSED))
    assert before.outputs == after.outputs
    assert before.values["w"] == after.values["w"] != before.values["b"]
    assert set(before.values) - set(after.values) == {"c"}
