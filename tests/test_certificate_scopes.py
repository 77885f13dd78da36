"""The certificate inside bodies of If, Loop and others, and inside functions."""

import onnx
import pytest
from onnx import AttributeProto, helper
from support.certificate_models import FUSED, MUL_ADD, assert_same, image, parse, reason

from graphopt.errors import ModelError
from graphopt.proof.certificate import certify


def test_body_of_a_local_function_changed():
    text = "g (float[n] a) => (float[n] y) { y = my.F (a) }"
    body = '<domain: "my", opset_import: ["" : 17]> F (a) => (y) {{ m = Neg (a)  y = {} (m) }}'
    sentence = reason(parse(text, body.format("Relu")), parse(text, body.format("Sigmoid")))
    assert sentence == ("output 'y': where the original has Relu (in what makes 'y'), there is Sigmoid after fusing")


def test_inputs_of_a_local_function_swapped():
    text = "g (float[n] a, float[n] b) => (float[n] y) { y = my.F (a, b) }"
    body = '<domain: "my", opset_import: ["" : 17]> F (a, b) => (y) {{ y = Sub ({}) }}'
    reason(parse(text, body.format("a, b")), parse(text, body.format("b, a")))


def test_default_of_a_local_function_changed():
    text = "g (float[n] a) => (float[n] y) { y = my.F (a) }"
    body = (
        '<domain: "my", opset_import: ["" : 17]> F <alpha: float = {}> (a) => (y)'
        "{{ y = LeakyRelu <alpha: float = @alpha> (a) }}"
    )
    reason(parse(text, body.format("0.2")), parse(text, body.format("0.3")))


def test_attribute_of_a_call_changed():
    text = "g (float[n] a) => (float[n] y) {{ y = my.F <alpha: float = {}> (a) }}"
    body = '<domain: "my", opset_import: ["" : 17]> F <alpha> (a) => (y) { y = LeakyRelu <alpha: float = @alpha> (a) }'
    assert "has alpha 0.2 in the original and 0.3" in reason(
        parse(text.format("0.2"), body), parse(text.format("0.3"), body)
    )


def test_captured_value_swapped_in_a_body():
    text = """g (float[n] a, float[n] b, bool c) => (float[n] y) {{ y = If (c) <
        then_branch = t () => (float[n] z) {{ z = Sub ({}) }},
        else_branch = e () => (float[n] q) {{ q = Neg (a) }}> }}"""
    sentence = reason(parse(text.format("a, b")), parse(text.format("b, a")))
    assert sentence == "output 'y': Sub (in what makes 'y') reads its inputs in another order after fusing"


def test_branches_exchanged():
    text = """g (float[n] a, bool c) => (float[n] y) {{ y = If (c) <
        {} = t () => (float[n] z) {{ z = Relu (a) }}, {} = e () => (float[n] q) {{ q = Neg (a) }}> }}"""
    reason(parse(text.format("then_branch", "else_branch")), parse(text.format("else_branch", "then_branch")))


def test_inputs_of_a_loop_body_are_told_apart():
    text = """g (float[n] a, float[n] b, int64 k, bool c) => (float[n] y, float[n] z) {{ y, z = Loop (k, c, a, b) <
        body = l (int64 i, bool q, float[n] u, float[n] v) => (bool r, float[n] s, float[n] t)
        {{ r = Identity (q)  s = Sub ({})  t = Identity (v) }}> }}"""
    reason(parse(text.format("u, v")), parse(text.format("v, u")))


def test_input_of_an_inner_body_is_not_that_of_the_outer():
    text = """g (float[n] a, int64 k, bool c) => (float[n] y) {{ y = Loop (k, c, a) <
        body = l (int64 i, bool q, float[n] u) => (bool r, float[n] s) {{ r = Identity (q)  s = Loop (k, q, u) <
            inner = m (int64 i2, bool q2, float[n] u2) => (bool r2, float[n] s2)
            {{ r2 = Identity (q2)  s2 = Neg ({}) }}> }}> }}"""
    reason(parse(text.format("u").replace("inner", "body")), parse(text.format("u2").replace("inner", "body")))


def test_a_bomb_of_fused_functions_is_an_error(monkeypatch):
    monkeypatch.setattr("graphopt.proof.value_numbering.INLINED_NODES", 1000)
    head = '<domain: "ai.ngine", opset_import: ["" : 17, "ai.ngine" : 1]>'
    functions = [f"{head} F0 (a) => (y) {{ y = Relu (a) }}"]
    for level in range(1, 64):
        inner = f"ai.ngine.F{level - 1}"
        functions.append(f"{head} F{level} (a) => (y) {{ b = {inner} (a)  y = {inner} (b) }}")
    model = parse("g (float[n] a) => (float[n] y) { y = ai.ngine.F63 (a) }", *functions)
    with pytest.raises(ModelError, match="stand for more than 1,000 nodes"):
        certify(model, model)


IF = """g (float[n,4,h,w] x, bool q) => (float[n,4,h,w] y)
    <float[1,4,1,1] w = {{1,2,3,4}}, float[1] b = {{5}}> {{ y = If (q) <
    then_branch = t () => (float[n,4,h,w] z) {{ {} }}, else_branch = e () => (float[n,4,h,w] v) {{ v = Neg (x) }}> }}"""


def test_fused_inside_a_body():
    original = parse(IF.format("c = Conv (x, w, b)  z = LeakyRelu (c)"))
    assert_same(original, parse(IF.format("z = ai.ngine.ConvLeakyRelu (x, w, b)"), FUSED))
    assert not certify(original, parse(IF.format("z = ai.ngine.ConvLeakyRelu (x, w)"), FUSED)).ok


def test_fused_inside_a_loop_whose_body_has_its_own_names():
    text = """g (float[n] a, float[n] d, int64 k, bool c) => (float[n] y) {{ y = Loop (k, c, a) <
        body = l (int64 i, bool q, float[n] {0}) => (bool r, float[n] s) {{ r = Identity (q)  {1} }}> }}"""
    original = parse(text.format("u", "m = Mul (u, d)  s = Add (m, a)"))
    assert_same(original, parse(text.format("v", "s = ai.ngine.MulAdd (d, v, a)"), MUL_ADD))


LOCAL = '<domain: "my", opset_import: ["" : 17, "ai.ngine" : 1]> Block <slope> (p, k, d) => (r) {{ {} }}'


def test_fused_inside_a_local_function():
    graph = image("h = my.Block <slope: float = 0.2> (x, w, b)  y = my.Block <slope: float = 0.3> (h, w)")
    plain = LOCAL.format("c = Conv (p, k, d)  r = LeakyRelu <alpha: float = @slope> (c)")
    fused = LOCAL.format("r = ai.ngine.ConvLeakyRelu <alpha: float = @slope> (p, k, d)")
    lost = LOCAL.format("r = ai.ngine.ConvLeakyRelu (p, k, d)")
    assert_same(parse(graph, plain), parse(graph, fused, FUSED))
    assert not certify(parse(graph, plain), parse(graph, lost, FUSED)).ok


def test_references_inside_a_body_inside_a_function():
    body = """<domain: "ai.ngine", opset_import: ["" : 17]> Act <alpha> (q, a) => (y) { y = If (q) <
        then_branch = t () => (z) { z = LeakyRelu <alpha: float = @alpha> (a) },
        else_branch = e () => (v) { v = Neg (a) }> }"""
    text = "g (bool q, float[n] a) => (float[n] y) {{ y = {} }}"
    plain = """If (q) <then_branch = t () => (float[n] z) {{ z = LeakyRelu <alpha: float = {}> (a) }},
        else_branch = e () => (float[n] v) {{ v = Neg (a) }}>"""
    call = parse(text.format("ai.ngine.Act <alpha: float = 0.2> (q, a)"), body)
    assert_same(parse(text.format(plain.format(0.2))), call)
    assert not certify(parse(text.format(plain.format(0.3))), call).ok


def test_overloads_are_functions_of_their_own():
    model = parse(
        "g (float[n] a) => (float[n] y) { b = my.F (a)  y = my.F (b) }",
        '<domain: "my", opset_import: ["" : 17]> F (a) => (y) { y = Relu (a) }',
        '<domain: "my", opset_import: ["" : 17], overload: "other"> F (a) => (y) { y = Neg (a) }',
        ir=10,
    )
    same, other = onnx.ModelProto(), onnx.ModelProto()
    same.CopyFrom(model)
    other.CopyFrom(model)
    other.graph.node[1].overload = "other"
    assert_same(model, same)
    assert not certify(model, other).ok
    same.CopyFrom(other)
    assert_same(other, same)
    same.functions[1].node[0].op_type = "Exp"
    assert not certify(other, same).ok


def test_nested_functions_cost_no_blow_up():
    """Forty levels of two calls each: inlined, they would be a million million nodes."""
    functions = ['<domain: "my", opset_import: ["" : 17]> F0 (a) => (y) { y = Relu (a) }']
    for level in range(1, 41):
        functions.append(
            f'<domain: "my", opset_import: ["" : 17, "my" : 1]> F{level} (a) => (y)'
            f"{{ b = my.F{level - 1} (a)  y = my.F{level - 1} (b) }}"
        )
    model = parse("g (float[n] a) => (float[n] y) { y = my.F40 (a) }", *functions)
    changed = parse(
        "g (float[n] a) => (float[n] y) { y = my.F40 (a) }", functions[0].replace("Relu", "Neg"), *functions[1:]
    )
    assert_same(model, model)
    assert not certify(model, changed).ok


def test_a_body_may_use_a_name_that_is_made_later_outside():
    text = """g (float a, bool q) => (float z) {{ y = If (q) <then_branch = t () => (float z) {{ z = {} (a) }},
        else_branch = e () => (float v) {{ v = Neg (a) }}>  z = Abs (y) }}"""
    assert_same(parse(text.format("Relu")), parse(text.format("Relu")))
    assert not certify(parse(text.format("Relu")), parse(text.format("Exp"))).ok


def test_a_subgraph_attribute_of_an_unknown_operator_is_read():
    def model(op: str, default: float) -> onnx.ModelProto:
        made = parse("g (float[n] a) => (float[n] y) { y = my.Map (a) }")
        body = onnx.parser.parse_graph(f"b (float[n] p, float d = {{{default}}}) => (float[n] r) {{ r = {op} (p, d) }}")
        made.graph.node[0].attribute.append(AttributeProto(name="bodies", type=AttributeProto.GRAPHS, graphs=[body]))
        return made

    assert_same(model("Mul", 1.0), model("Mul", 1.0))
    assert not certify(model("Mul", 1.0), model("Sub", 1.0)).ok
    assert not certify(model("Mul", 1.0), model("Mul", 2.0)).ok


def test_default_subgraphs_of_a_fused_function_count():
    def model(op: str) -> onnx.ModelProto:
        body = '<domain: "ai.ngine", opset_import: ["" : 17, "my" : 1]> F (a) => (y) { y = SequenceMap (a) }'
        made = parse("g (seq(float[n]) a) => (seq(float[n]) y) { y = ai.ngine.F (a) }", body)
        graph = onnx.parser.parse_graph(f"b (float[n] p) => (float[n] r) {{ r = {op} (p) }}")
        made.functions[0].attribute_proto.append(helper.make_attribute("map", graph))
        made.functions[0].node[0].attribute.append(
            AttributeProto(name="body", type=AttributeProto.GRAPH, ref_attr_name="map")
        )
        return made

    assert_same(model("Relu"), model("Relu"))
    assert not certify(model("Relu"), model("Neg")).ok
