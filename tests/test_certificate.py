"""The certificate fails on rewrites that are wrong, each written by hand, and says what is wrong."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.certificate_models import FUSED, MUL_ADD, TAIL, external, image, parse, with_weight

from graphopt.certificate import certify
from graphopt.demo_models import rrdbnet, span, srvgg
from graphopt.errors import ModelError


def reason(original: onnx.ModelProto, rewritten: onnx.ModelProto) -> str:
    """The sentence of a proof that must fail, in both directions."""
    assert not certify(rewritten, original).ok
    certificate = certify(original, rewritten)
    assert not certificate.ok
    assert certificate.reason is not None
    return certificate.reason


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


def test_another_input_type():
    text = "g ({} a) => (float[n] y) {{ y = Cast <to: int = 1> (a) }}"
    assert reason(parse(text.format("float[n]")), parse(text.format("double[n]"))) == (
        "input 'a' has another type after fusing"
    )


def test_lost_input():
    text = "g (float[n] a{}) => (float[n] y) {{ y = Relu (a) }}"
    assert "inputs were a, b and are a" in reason(parse(text.format(", float[n] b")), parse(text.format("")))


@pytest.mark.parametrize("elements", [4, 40_000])
def test_one_bit_of_a_weight(elements):
    original, rewritten = with_weight(np.ones(elements, np.float32)), with_weight(np.ones(elements, np.float32))
    data = bytearray(rewritten.graph.initializer[0].raw_data)
    data[5] ^= 1
    rewritten.graph.initializer[0].raw_data = bytes(data)
    assert "constant" in reason(original, rewritten)


@pytest.mark.parametrize("size", [2, 2000])
@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (float("nan"), -float("nan")), (1.0, 1.0 + 2**-23)], ids=["zero", "nan", "ulp"]
)
def test_bits_of_typed_fields(one, other, size):
    original, rewritten = with_weight(np.ones(size, np.float32)), with_weight(np.ones(size, np.float32))
    for model, value in ((original, one), (rewritten, other)):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.float_data.extend([value] + [1.0] * (size - 1))
    reason(original, rewritten)
    assert certify(original, onnx.load_from_string(original.SerializeToString())).ok


def test_other_dims_of_the_same_bytes():
    reason(with_weight(np.ones((2, 8), np.float32)), with_weight(np.ones((8, 2), np.float32)))


def test_other_type_of_the_same_bytes():
    reason(with_weight(np.zeros(4, np.float32)), with_weight(np.zeros(4, np.int32)))


@pytest.mark.parametrize(("key", "value"), [("location", "b.bin"), ("offset", "64"), ("length", "12")])
def test_changed_external_place(key, value):
    original, rewritten = external(), external()
    next(entry for entry in rewritten.graph.initializer[0].external_data if entry.key == key).value = value
    reason(original, rewritten)
    assert certify(original, external()).ok


def test_changed_constant():
    text = "g (float[n] a) => (float[n] y) {{ k = Constant <value: tensor = float {{{}}}> ()  y = Mul (a, k) }}"
    assert reason(parse(text.format("0.2")), parse(text.format("0.25"))) == (
        "output 'y': where the original has a constant 0.2 'k', there is a constant 0.25 after fusing"
    )


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


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli", "my.Op"])
def test_two_nodes_that_may_differ_are_never_equal(op):
    text = "g (float[n] a) => (float[n] y) {{ r = {0} (a)  s = {0} (a)  y = Sub (r, {1}) }}"
    original = parse(text.format(op, "s"))
    reason(original, parse(text.format(op, "r")))
    assert certify(original, parse(text.format(op, "s"))).ok


def test_seeds_do_not_make_random_nodes_equal():
    text = """g () => (float[2] y) {{ r = RandomNormal <seed: float = 1.0, shape: ints = [2]> ()
        s = RandomNormal <seed: float = 1.0, shape: ints = [2]> ()  y = Sub (r, {}) }}"""
    reason(parse(text.format("s")), parse(text.format("r")))


@pytest.mark.parametrize(("mode", "equal"), [("t", False), ("on", False), ("off", True), ("", True)])
def test_dropout_is_random_while_it_trains(mode, equal):
    text = """g (float[n] a, bool t) => (float[n] y) <bool on = {{1}}, bool off = {{0}}, float q = {{0.5}}>
        {{ r = Dropout (a, q, {0})  s = Dropout (a, q, {0})  y = Sub (r, {1}) }}"""
    one, other = parse(text.format(mode, "s")), parse(text.format(mode, "r"))
    assert certify(one, other).ok is equal


NOISE = {
    "itself": "y = RandomNormalLike (a)",
    "in a fused call": "y = ai.ngine.Noise (a)",
    "in a function": "y = my.Noise (a)",
    "in a body": """q = Constant <value: tensor = bool {1}> ()  y = If (q) <
        then_branch = t () => (float[n] z) { z = RandomNormalLike (a) },
        else_branch = e () => (float[n] v) { v = Neg (a) }>""",
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE.keys())
def test_random_inside_a_function_called_twice(noise):
    imports = 'opset_import: ["" : 17, "ai.ngine" : 1, "my" : 1]'
    bodies = [f'<domain: "my", {imports}> F (a) => (y) {{ {noise} }}']
    bodies += [f'<domain: "{name}", {imports}> Noise (a) => (y) {{ y = Bernoulli (a) }}' for name in ("my", "ai.ngine")]
    text = "g (float[n] a) => (float[n] y) {{ r = my.F (a)  s = my.F (a)  y = Sub (r, {}) }}"
    reason(parse(text.format("s"), *bodies), parse(text.format("r"), *bodies))
    assert certify(parse(text.format("s"), *bodies), parse(text.format("s"), *bodies)).ok


def test_two_random_nodes_inside_one_fused_call():
    body = """<domain: "ai.ngine", opset_import: ["" : 17]> F (a) => (y)
        {{ r = Bernoulli (a)  s = Bernoulli (a)  y = Sub (r, {}) }}"""
    text = "g (float[n] a) => (float[n] y) { y = ai.ngine.F (a) }"
    reason(parse(text, body.format("s")), parse(text, body.format("r")))


def test_random_inside_two_bodies():
    branch = """If (c) <then_branch = t () => (float[n] z) {z = RandomNormalLike (a)},
        else_branch = e () => (float[n] q) {q = Neg (a)}>"""
    text = "g (float[n] a, bool c) => (float[n] y) {{ r = {0}  s = {0}  y = Sub (r, {1}) }}"
    reason(parse(text.format(branch, "s")), parse(text.format(branch, "r")))


def test_random_inside_fused_calls():
    body = '<domain: "ai.ngine", opset_import: ["" : 17]> Noise (a) => (y) { r = RandomNormalLike (a)  y = Relu (r) }'
    text = "g (float[n] a) => (float[n] y) {{ r = ai.ngine.Noise (a)  s = ai.ngine.Noise (a)  y = Sub (r, {}) }}"
    reason(parse(text.format("s"), body), parse(text.format("r"), body))


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


def test_overridable_initializer_is_not_a_constant():
    text = "g (float[n] a, float k = {0.5}) => (float[n] y) { y = Mul (a, k) }"
    fixed = "g (float[n] a) => (float[n] y) <float k = {0.5}> { y = Mul (a, k) }"
    assert "the inputs were a, k and are a" in reason(parse(text), parse(fixed))
    reason(parse(text), parse(text.replace("0.5", "0.25")))


def test_invalid_originals_are_errors():
    text = "g (float[n] a) => (float[n] y) {{ y = {} }}"
    body = '<domain: "my", opset_import: ["" : 17, "my" : 1]> F (a) => (y) { y = my.F (a) }'
    valid = parse(text.format("Relu (a)"))
    with pytest.raises(ModelError, match="nothing makes value 'u'"):
        certify(parse(text.format("Relu (u)")), valid)
    with pytest.raises(ModelError, match=r"Function my\.F calls itself"):
        certify(parse(text.format("my.F (a)"), body), valid)


def test_a_bomb_of_fused_functions_is_an_error(monkeypatch):
    monkeypatch.setattr("graphopt.value_numbering.INLINED_NODES", 1000)
    head = '<domain: "ai.ngine", opset_import: ["" : 17, "ai.ngine" : 1]>'
    functions = [f"{head} F0 (a) => (y) {{ y = Relu (a) }}"]
    for level in range(1, 64):
        inner = f"ai.ngine.F{level - 1}"
        functions.append(f"{head} F{level} (a) => (y) {{ b = {inner} (a)  y = {inner} (b) }}")
    model = parse("g (float[n] a) => (float[n] y) { y = ai.ngine.F63 (a) }", *functions)
    with pytest.raises(ModelError, match="stand for more than 1,000 nodes"):
        certify(model, model)


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
