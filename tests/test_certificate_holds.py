"""The certificate holds on rewrites that are right but look different, each written by hand."""

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from support.certificate_models import CONV_LEAKY_RELU, FUSED, MUL_ADD, TAIL, external, image, parse, with_weight

from graphopt.certificate import certify
from graphopt.errors import UsageError
from graphopt.value_numbering import ValueNumbering

CONV_ACT = image("c = Conv <pads: ints = [1,1,1,1]> (x, w, b)  y = LeakyRelu <alpha: float = 0.2> (c)")
CONV_ACT_FUSED = image("y = ai.ngine.ConvLeakyRelu <pads: ints = [1,1,1,1], alpha: float = 0.2> (x, w, b)")


def assert_same(original: onnx.ModelProto, rewritten: onnx.ModelProto) -> None:
    """The proof succeeds in both directions."""
    for one, other in ((original, rewritten), (rewritten, original)):
        certificate = certify(one, other)
        assert certificate.ok, certificate.reason
        assert certificate.outputs == len(original.graph.output)
        assert certificate.output is None
        assert certificate.reason is None


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


@pytest.mark.parametrize(
    ("attribute", "dtype", "dims", "values"),
    [
        ("value: tensor = float[2] {1, 2}", TensorProto.FLOAT, [2], [1.0, 2.0]),
        ("value_float: float = 0.2", TensorProto.FLOAT, [], [0.2]),
        ("value_floats: floats = [0.2, 0.3]", TensorProto.FLOAT, [2], [0.2, 0.3]),
        ("value_int: int = -7", TensorProto.INT64, [], [-7]),
        ("value_ints: ints = [1, -2, 3]", TensorProto.INT64, [3], [1, -2, 3]),
        ('value_string: string = "a"', TensorProto.STRING, [], [b"a"]),
        ('value_strings: strings = ["a", "b"]', TensorProto.STRING, [2], [b"a", b"b"]),
    ],
)
def test_constant_node_and_initializer_of_the_same_content(attribute, dtype, dims, values):
    original = parse(f"g (float[n] a) => (float[n] y) {{ k = Constant <{attribute}> ()  y = my.Op (a, k) }}")
    rewritten = parse("g (float[n] a) => (float[n] y) { y = my.Op (a, other) }")
    rewritten.graph.initializer.append(helper.make_tensor("other", dtype, dims, values))
    assert_same(original, rewritten)


def test_large_constants_of_other_names():
    """Names decide quickly; where they do not prove it, contents do."""
    weight = np.arange(5000, dtype=np.float32)
    renamed = with_weight(weight)
    renamed.graph.initializer[0].name = renamed.graph.node[0].input[1] = "renamed"
    assert_same(with_weight(weight), renamed)
    node = parse("g (float[n] a) => (float[n] y) { k = Constant ()  y = my.Op (a, k) }")
    node.graph.node[0].attribute.append(helper.make_attribute("value", numpy_helper.from_array(weight)))
    assert_same(with_weight(weight), node)


OTHER_TYPES = "float32 float64 float16 bfloat16 float8_e4m3fn complex64 complex128 bool"
INTEGER_TYPES = "int4 int8 int32 int64 uint16 uint32 uint64"


@pytest.mark.parametrize("dtype", [*OTHER_TYPES.split(), *INTEGER_TYPES.split()])
def test_raw_bytes_and_typed_fields(dtype):
    """One content, stored either way; negative numbers and NaN among it where the type has them."""
    kind = helper.tensor_dtype_to_np_dtype(_data_type(dtype))
    array = np.array([-1.5, 2.5, 0.0, 3.0] if "float" in dtype or "complex" in dtype else [1, 0, 3, 2]).astype(kind)
    if dtype.startswith("int"):
        array[0] = -array[0]
    raw = numpy_helper.from_array(array)
    typed = helper.make_tensor("k", raw.data_type, array.shape, array.tolist())
    assert raw.HasField("raw_data")
    assert not typed.HasField("raw_data")
    original, rewritten = with_weight(array), with_weight(array)
    rewritten.graph.initializer[0].CopyFrom(typed)
    assert_same(original, rewritten)


def _data_type(name: str) -> int:
    names = {"float32": "FLOAT", "float64": "DOUBLE", "float8_e4m3fn": "FLOAT8E4M3FN"}
    return TensorProto.DataType.Value(names.get(name, name.upper()))


def test_an_external_offset_of_0_is_the_default():
    original, rewritten = external(), external()
    for model in (original, rewritten):
        next(entry for entry in model.graph.initializer[0].external_data if entry.key == "offset").value = "0"
    del rewritten.graph.initializer[0].external_data[1]
    assert_same(original, rewritten)


def test_nan_equals_itself():
    nans = np.array([np.nan, -np.nan, 1], np.float32)
    assert_same(with_weight(nans), with_weight(nans))
    typed = with_weight(nans)
    typed.graph.initializer[0].CopyFrom(helper.make_tensor("k", TensorProto.FLOAT, [3], nans.tolist()))
    assert_same(with_weight(nans), typed)


def test_sparse_initializers():
    text = "g (float[3] a) => (float[3] y) { y = Add (a, s) }"
    models = []
    for value in (1.0, 1.0, 2.0):
        model = parse(text)
        values = helper.make_tensor("s", TensorProto.FLOAT, [1], [value])
        indices = helper.make_tensor("", TensorProto.INT64, [1], [2])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
        models.append(model)
    assert_same(models[0], models[1])
    assert not certify(models[0], models[2]).ok


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


def test_ir_3_raised_to_8():
    """Below IR 4 an initializer among the inputs is a constant; raised, it is dropped from the inputs."""
    graph = "g (float[n,4,h,w] x{}) => (float[n,4,h,w] y) <float[4,4,1,1] w = {{{}}}> {{ {} }}"
    weights = ",".join(map(str, range(16)))
    original = parse(graph.format("", weights, "c = Conv (x, w)  y = LeakyRelu (c)"), ir=3)
    original.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 4, 1, 1]))
    rewritten = parse(graph.format("", weights, "y = ai.ngine.ConvLeakyRelu (x, w)"), FUSED)
    assert_same(original, rewritten)
    rewritten.graph.input.append(original.graph.input[1])
    assert not certify(original, rewritten).ok


def test_overridable_initializers_stay():
    text = "g (float[n] a, float k = {{0.5}}, float[n] c) => (float[n] y) {{ {} }}"
    original = parse(text.format("m = Mul (a, k)  y = Add (m, c)"))
    assert_same(original, parse(text.format("y = ai.ngine.MulAdd (a, k, c)"), MUL_ADD))


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


def test_nodes_in_any_order():
    original = parse(image("c = Conv (x, w, b)  y = LeakyRelu (c)"))
    shuffled = parse(image("y = LeakyRelu (c)  c = Conv (x, w, b)"))
    assert_same(original, shuffled)
    captured = (
        "y = If (q) <then_branch = t () => (float z) { z = Relu (u) }, else_branch = e () => (float v) { v = Neg (u) }>"
    )
    graph = "g (float a, bool q) => (float y) {{ {} {} }}"
    assert_same(parse(graph.format("u = Abs (a)", captured)), parse(graph.format(captured, "u = Abs (a)")))


def test_a_body_may_use_a_name_that_is_made_later_outside():
    text = """g (float a, bool q) => (float z) {{ y = If (q) <then_branch = t () => (float z) {{ z = {} (a) }},
        else_branch = e () => (float v) {{ v = Neg (a) }}>  z = Abs (y) }}"""
    assert_same(parse(text.format("Relu")), parse(text.format("Relu")))
    assert not certify(parse(text.format("Relu")), parse(text.format("Exp"))).ok


def test_an_absent_output_at_the_end_is_no_output():
    original, rewritten = (parse("g (float[n] a) => (float[n] y) { y = Dropout (a) }") for _ in range(2))
    rewritten.graph.node[0].output.append("")
    assert_same(original, rewritten)


def test_a_custom_operator_keeps_its_name_and_is_proven():
    original = parse(image("c = Conv (x, w)  l = LeakyRelu (c)  y = my.Op <k: int = 1> (l)"))
    assert_same(original, parse(image("l = ai.ngine.ConvLeakyRelu (x, w)  y = my.Op <k: int = 1> (l)"), FUSED))
    assert not certify(
        original, parse(image("l = ai.ngine.ConvLeakyRelu (x, w)  y = my.Op <k: int = 2> (l)"), FUSED)
    ).ok


def test_random_nodes_that_are_the_same_nodes():
    text = "g (float[n] a) => (float[n] y) {{ r = RandomNormalLike (a)  {} }}"
    original = parse(text.format("m = Mul (r, a)  y = Add (m, a)"))
    assert_same(original, parse(text.format("y = ai.ngine.MulAdd (r, a, a)"), MUL_ADD))


def test_a_random_node_may_end_a_fused_call():
    body = '<domain: "ai.ngine", opset_import: ["" : 17]> F (a) => (y) { b = Relu (a)  y = RandomNormalLike (b) }'
    text = "g (float[n] a) => (float[n] y) {{ {} }}"
    original = parse(text.format("b = Relu (a)  r = RandomNormalLike (b)  y = Neg (r)"))
    assert_same(original, parse(text.format("r = ai.ngine.F (a)  y = Neg (r)"), body))


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


def test_a_subgraph_attribute_of_an_unknown_operator_is_read():
    def model(op: str, default: float) -> onnx.ModelProto:
        made = parse("g (float[n] a) => (float[n] y) { y = my.Map (a) }")
        body = onnx.parser.parse_graph(f"b (float[n] p, float d = {{{default}}}) => (float[n] r) {{ r = {op} (p, d) }}")
        made.graph.node[0].attribute.append(AttributeProto(name="bodies", type=AttributeProto.GRAPHS, graphs=[body]))
        return made

    assert_same(model("Mul", 1.0), model("Mul", 1.0))
    assert not certify(model("Mul", 1.0), model("Sub", 1.0)).ok
    assert not certify(model("Mul", 1.0), model("Mul", 2.0)).ok
