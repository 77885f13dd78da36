"""Calls of model-local functions: bodies put in, or left to a kernel that means the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ngine_ref import InferenceSession, ModelError, UnknownOperatorError
from ngine_ref.loading.model import load
from ngine_ref.nodes.functions import expand
from ngine_ref.registry import Array

HEADER = '<ir_version: 9, opset_import: ["" : 17, "ai.ngine" : 1, "ai.ngine.p1" : 1, "my" : 1]>\n'
X = np.array([[[1, -2, 3, -4]], [[0, 5, -6, 7]]], np.float32)
W = np.array([[[2.0]], [[-1.0]]], np.float32)


def parse(text: str, **weights: Array) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEADER + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def run(model: onnx.ModelProto, **feeds: Array) -> list[Array]:
    return InferenceSession(model).run(None, feeds)


def operators_run(model: onnx.ModelProto) -> list[str]:
    """The operators of the main graph once its calls are expanded."""
    loaded = load(model)
    return [node.op_type for node in expand(loaded.graph.nodes, loaded.functions)]


CONV_LEAKY = """
g (float[2, 1, 4] x) => (float[2, 2, 4] y) { y = ai.ngine.ConvLeakyRelu <alpha: float = 0.25> (x, w) }
<domain: "ai.ngine", opset_import: ["" : 17]>
ConvLeakyRelu <alpha, group> (x, w) => (y) { BODY }
"""
ACTIVATED = np.where(X * W.reshape(1, 2, 1) < 0, X * W.reshape(1, 2, 1) / 4, X * W.reshape(1, 2, 1))


@pytest.mark.parametrize(
    ("body", "operators"),
    [
        ("c = Conv <group: int = @group> (x, w)\n y = LeakyRelu <alpha: float = @alpha> (c)", ["ConvLeakyRelu"]),
        ("c = Conv(x, w)\n y = LeakyRelu <alpha: float = 0.25> (c)", ["ConvLeakyRelu"]),
        ("c = Conv(x, w)\n y = LeakyRelu(c)", ["Conv", "LeakyRelu"]),
        ("c = Conv(x, w)\n y = LeakyRelu <alpha: float = 0.75> (c)", ["Conv", "LeakyRelu"]),
        ("c = LeakyRelu <alpha: float = @alpha> (x)\n y = Conv(c, w)", ["LeakyRelu", "Conv"]),
        ("c = Conv <dilations: ints = [2]> (x, w)\n y = LeakyRelu <alpha: float = @alpha> (c)", ["Conv", "LeakyRelu"]),
        ("c = Conv(x, w)\n d = Neg(c)\n y = LeakyRelu <alpha: float = @alpha> (c)", ["Conv", "Neg", "LeakyRelu"]),
        ("c = Conv(x, w)\n y = Relu(c)", ["Conv", "Relu"]),
    ],
)
def test_a_kernel_stands_in_only_for_its_own_meaning(body: str, operators: list[str]):
    assert operators_run(parse(CONV_LEAKY.replace("BODY", body), w=W)) == operators


def test_the_body_wins_where_the_name_means_something_else():
    model = parse(CONV_LEAKY.replace("BODY", "c = Conv(x, w)\n y = Neg(c)"), w=W)
    np.testing.assert_array_equal(run(model, x=X)[0], -X * W.reshape(1, 2, 1))


def test_the_kernel_computes_what_the_body_says():
    model = parse(CONV_LEAKY.replace("BODY", "c = Conv(x, w)\n y = LeakyRelu <alpha: float = @alpha> (c)"), w=W)
    np.testing.assert_array_equal(run(model, x=X)[0], ACTIVATED)


def test_a_sub_domain_has_the_same_kernels():
    model = parse(
        """g (float[2, 1, 4] x) => (float[2, 3, 4] y) {
          y = ai.ngine.p1.ConcatFusedTail <prefix_count: int = 1, axis: int = 1, producer_op: string = "ConvLeakyRelu",
                                           alpha: float = 0.25> (x, x, w)
        }
        <domain: "ai.ngine.p1", opset_import: ["" : 17]>
        ConcatFusedTail <alpha, axis, prefix_count, producer_op> (p, x, w) => (y) {
          c = Conv(x, w)
          t = LeakyRelu <alpha: float = @alpha> (c)
          y = Concat <axis: int = @axis> (p, t)
        }""",
        w=W,
    )
    assert operators_run(model) == ["ConcatFusedTail"]
    np.testing.assert_array_equal(run(model, x=X)[0], np.concatenate([X, ACTIVATED], 1))
    del model.functions[:]
    np.testing.assert_array_equal(run(model, x=X)[0], np.concatenate([X, ACTIVATED], 1))


EXTENDED = {
    "ConvRelu(x, w)": "c = Conv(x, w)\n y = Relu(c)",
    "ConvRelu <pads: ints = [1, 1], group: int = 1> (x, w)": "c = Conv <pads: ints = [1, 1]> (x, w)\n y = Relu(c)",
    "ConvAddRelu(x, w, , x)": "c = Conv(x, w)\n a = Add(x, c)\n y = Relu(a)",
    "ConvClip(x, w, , half, one)": "c = Conv(x, w)\n y = Clip(c, half, one)",
    "ConvHardSigmoid <alpha: float = 0.2> (x, w)": "c = Conv(x, w)\n y = HardSigmoid(c)",
    "ConvMulAdd(x, w, , half, one)": "c = Conv(x, w)\n m = Mul(c, half)\n y = Add(m, one)",
    "ConvSiLU(x, w)": "c = Conv(x, w)\n s = Sigmoid(c)\n y = Mul(s, c)",
    "MatMulAdd(x, matrix, one)": "p = MatMul(x, matrix)\n y = Add(p, one)",
    "MulSub(x, half, one)": "p = Mul(x, half)\n y = Sub(p, one)",
    'ConcatFusedTail <prefix_count: int = 1, axis: int = 1, producer_op: string = "ConvClip"> (x, x, w, , half, one)': (
        "c = Conv(x, w)\n t = Clip(c, half, one)\n y = Concat <axis: int = 1> (x, t)"
    ),
    'ConcatFusedTail <prefix_count: int = 0, producer_op: string = "ConvHardSigmoid", alpha: float = 0.5> (x, w)': (
        "c = Conv(x, w)\n t = HardSigmoid <alpha: float = 0.5> (c)\n y = Concat <axis: int = 1> (t)"
    ),
}


@pytest.mark.parametrize("call", EXTENDED)
def test_every_fused_operator_has_its_meaning(call: str):
    weights = {
        "w": W[:1],
        "matrix": np.eye(4, dtype=np.float32),
        "half": np.array(0.5, np.float32),
        "one": np.array(1, np.float32),
    }
    plain = parse(f"g (float[2, 1, 4] x) => (float[A, B, C] y) {{ {EXTENDED[call]} }}", **weights)
    model = parse(f"g (float[2, 1, 4] x) => (float[A, B, C] y) {{ y = ai.ngine.{call} }}", **weights)
    [node] = model.graph.node
    slots = {name: f"slot{slot}" for slot, name in enumerate(node.input) if name}
    body = [onnx.NodeProto.FromString(part.SerializeToString()) for part in plain.graph.node]
    for part in body:
        part.input[:] = [slots.get(name, name) for name in part.input]
    formal = [slots.get(name, f"absent{slot}") for slot, name in enumerate(node.input)]
    if len(set(formal)) < len(formal):  # the same value twice: either slot is right
        formal[0] = "first"
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("ai.ngine", node.op_type, formal, ["y"], body, imports))
    assert operators_run(model) == [node.op_type]
    np.testing.assert_array_equal(run(model, x=X)[0], run(plain, x=X)[0])


def test_mul_add_in_either_order_of_operands():
    text = """g (float[3] a, float[3] b, float[3] c) => (float[3] y) { y = ai.ngine.MulAdd(a, b, c) }
    <domain: "ai.ngine", opset_import: ["" : 17]>
    MulAdd (a, b, c) => (y) { BODY }"""
    for body in ("m = Mul(a, b)\n y = Add(m, c)", "m = Mul(b, a)\n y = Add(c, m)"):
        assert operators_run(parse(text.replace("BODY", body))) == ["MulAdd"]
    assert operators_run(parse(text.replace("BODY", "m = Mul(a, c)\n y = Add(m, b)"))) == ["Mul", "Add"]


def test_attributes_are_bound_through_nested_calls():
    model = parse(
        """g (float[2, 1, 4] x) => (float[2, 1, 4] y, float[2, 1, 4] z) {
          y = my.Outer <slope: float = 0.5> (x)
          z = my.Outer(x)
        }
        <domain: "my", opset_import: ["" : 17, "my" : 1]>
        Outer <slope: float = 0.125> (x) => (y) { m = my.Inner <steep: float = @slope> (x)
          y = Neg(m) }
        <domain: "my", opset_import: ["" : 17]>
        Inner <steep> (x) => (m) { m = LeakyRelu <alpha: float = @steep> (x) }"""
    )
    y, z = run(model, x=X)
    np.testing.assert_array_equal(y, -np.where(X < 0, X / 2, X))
    np.testing.assert_array_equal(z, -np.where(X < 0, X / 8, X))


def test_an_attribute_without_value_stays_absent():
    model = parse(
        """g (float[2, 1, 4] x) => (float[2, 1, 4] y) { y = my.Leak(x) }
        <domain: "my", opset_import: ["" : 17]>
        Leak <steep> (x) => (y) { y = LeakyRelu <alpha: float = @steep> (x) }"""
    )
    np.testing.assert_array_equal(run(model, x=X)[0], np.where(X < 0, X * np.float32(0.01), X))


def test_names_inside_never_meet_names_outside():
    """Two calls, a body that uses the caller's names for other values, and a branch that reads an argument."""
    model = parse(
        """g (float[2, 1, 4] x, bool c) => (float[2, 1, 4] y) {
          t = my.F(x, c)
          u = Neg(t)
          y = my.F(u, c)
        }
        <domain: "my", opset_import: ["" : 17]>
        F (u, c) => (r) {
          t = Add(u, u)
          r = If(c) <
            then_branch = yes () => (x) { y = Add(t, u)
              x = Identity(y) },
            else_branch = no () => (x) { x = Sub(u, t) }
          >
        }"""
    )
    np.testing.assert_array_equal(run(model, x=X, c=np.array(True))[0], -9 * X)
    np.testing.assert_array_equal(run(model, x=X, c=np.array(False))[0], -X)


def test_a_function_may_hand_its_input_on_and_ignore_absent_ones():
    model = parse(
        """g (float[2, 1, 4] x) => (float[2, 1, 4] y, float[2, 1, 4] z) {
          a, b = my.Both(x, )
          y = Relu(a)
          z = Relu(b)
        }
        <domain: "my", opset_import: ["" : 17]>
        Both (p, q) => (p, r) { r = Clip(p, q) }"""
    )
    y, z = run(model, x=X)
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    np.testing.assert_array_equal(z, np.maximum(X, 0))


def test_each_scope_has_its_own_opset():
    """Softmax flattened its input up to opset 12; a function may import that while the model has 17."""
    model = parse(
        """g (float[2, 1, 4] x) => (float[2, 1, 4] y, float[2, 1, 4] z) {
          y = my.Old(x)
          z = Softmax <axis: int = 0> (x)
        }
        <domain: "my", opset_import: ["" : 12]>
        Old (x) => (y) { y = Clip(x) }"""
    )
    nodes = expand(load(model).graph.nodes, load(model).functions)
    assert [(node.op_type, node.opset) for node in nodes] == [("Clip", 12), ("Softmax", 17)]


def test_overloads_are_told_apart():
    model = parse(
        """g (float[2, 1, 4] x) => (float[2, 1, 4] y) { a = my.F(x)
          y = my.F(a) }
        <domain: "my", opset_import: ["" : 17], overload: "one">
        F (x) => (y) { y = Neg(x) }
        <domain: "my", opset_import: ["" : 17], overload: "two">
        F (x) => (y) { y = Add(x, x) }"""
    )
    model.ir_version = 10
    model.graph.node[0].overload, model.graph.node[1].overload = "one", "two"
    np.testing.assert_array_equal(run(model, x=X)[0], -2 * X)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            """g (float[1] x) => (float[1] y) { y = my.F(x) }
            <domain: "my", opset_import: ["my" : 1]> F (x) => (y) { y = my.G(x) }
            <domain: "my", opset_import: ["my" : 1]> G (x) => (y) { y = my.F(x) }""",
            "The function my::. calls itself",
        ),
        (
            """g (float[1] x) => (float[1] y) { y = my.F(x, x) }
            <domain: "my", opset_import: ["" : 17]> F (x) => (y) { y = Neg(x) }""",
            "has 2 inputs and 1 outputs, but its function takes 1 and gives 1",
        ),
        (
            """g (float[1] x) => (float[1] y) { y = my.F(x) }
            <domain: "my", opset_import: ["" : 17]> F (x) => (y) { y = Neg(nowhere) }""",
            "reads the value 'F/1/nowhere', which nothing makes",
        ),
    ],
)
def test_broken_functions(text: str, sentence: str):
    with pytest.raises(ModelError, match=sentence):
        InferenceSession(parse(text))


def test_a_function_twice():
    model = parse(CONV_LEAKY.replace("BODY", "y = Conv(x, w)"), w=W)
    model.functions.append(model.functions[0])
    with pytest.raises(ModelError, match=r"defines the function ai\.ngine::ConvLeakyRelu twice"):
        InferenceSession(model)


def test_long_chains_of_functions_need_no_recursion():
    count = 3000
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    functions = [
        helper.make_function(
            "my", f"F{index}", ["x"], ["y"], [helper.make_node(f"F{index + 1}", ["x"], ["y"], domain="my")], imports
        )
        for index in range(count)
    ]
    functions.append(
        helper.make_function("my", f"F{count}", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], imports)
    )
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("F0", ["x"], ["y"], domain="my")], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)
    np.testing.assert_array_equal(run(model, x=np.float32([1, -2]))[0], [-1, 2])


def test_functions_that_explode_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ngine_ref.nodes.functions.MOST_NODES", 1000)
    bodies = "".join(
        f"""<domain: "my", opset_import: ["" : 17, "my" : 1]>
        F{index} (x) => (y) {{ m = my.F{index + 1}(x)
          y = my.F{index + 1}(m) }}
        """
        for index in range(40)
    )
    text = "g (float[1] x) => (float[1] y) { y = my.F0(x) }" + bodies
    with pytest.raises(ModelError, match="stand for more than 1000 nodes"):
        InferenceSession(parse(text + '<domain: "my", opset_import: ["" : 17]> F40 (x) => (y) { y = Neg(x) }'))


def test_an_unknown_operator_is_named():
    model = parse("g (float[1] x) => (float[1] y) { y = my.Unknown(x) }")
    with pytest.raises(UnknownOperatorError, match=r"my::Unknown node 'y' \(opset 1\) has no kernel"):
        run(model, x=np.float32([1]))
