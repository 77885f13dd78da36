"""Where a rule's body occurs in a graph: operand orders, absent inputs, attributes, constants, shared values."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper
from support.text_models import assert_fuses, assert_same_numbers, fused, model, nodes, random_array, refusals

import graphopt
from graphopt import RuleSet, load_rules
from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.scope_reading import read_scopes
from graphopt.matching.match import Match
from graphopt.matching.matcher import match

RuleMaker = Callable[..., RuleSet]


@pytest.fixture
def rule(tmp_path) -> RuleMaker:
    """Makes a set of one rule `Op` from the text of its body."""

    def make(body: str, signature: str = "Op (x) => (y)") -> RuleSet:
        path = tmp_path / "rule.onnxtxt"
        path.write_text(f'<domain: "ai.ngine", opset_import: ["" : 17, "require" : 1]> {signature} {{ {body} }}')
        return load_rules(path)

    return make


def why(source: ModelProto, node: str, rules: RuleSet) -> str:
    """Why there is no match at a node."""
    (found,), _ = graphopt.explain(source, node, rules=rules)
    assert found.outcome == "no match"
    return found.sentence


# Operands of Add and Mul.

THREE = "float[n,4,h,w] p, float[n,4,h,w] q, float[n,4,h,w] r"


@pytest.mark.parametrize("add", ["Add (m, r)", "Add (r, m)"])
@pytest.mark.parametrize(("mul", "call"), [("Mul (p, q)", "p, q"), ("Mul (q, p)", "q, p")])
def test_either_order_of_a_sum(add: str, mul: str, call: str):
    assert_fuses(model(f"m = {mul}  y = {add}", inputs=THREE), f"y = ai.ngine.MulAdd ({call}, r)")


@pytest.mark.parametrize("add", ["Add (m, n)", "Add (n, m)"])
def test_of_two_products_the_one_that_only_the_sum_reads_is_fused(add: str):
    outputs = "float[n,4,h,w] y, float[n,4,h,w] z"
    source = model(f"m = Mul (p, q)  n = Mul (q, r)  z = Relu (m)  y = {add}", inputs=THREE, outputs=outputs)
    assert_fuses(source, "m = Mul (p, q)", "z = Relu (m)", "y = ai.ngine.MulAdd (q, r, m)")


def test_of_two_products_that_only_the_sum_reads_exactly_one_is_fused():
    source = model("m = Mul (p, q)  n = Mul (q, r)  y = Add (m, n)", inputs=THREE)
    assert_fuses(source, "n = Mul (q, r)", "y = ai.ngine.MulAdd (p, q, n)")


def test_of_two_products_that_others_read_too_none_is_fused():
    outputs = "float[n,4,h,w] y, float[n,4,h,w] m, float[n,4,h,w] k"
    source = model("m = Mul (p, q)  k = Mul (q, r)  y = Add (m, k)", inputs=THREE, outputs=outputs)
    assert nodes(fused(source)) == nodes(source)
    assert refusals(source, "MulAdd") == [
        (1, "sole reader", "'m' is read 2 times: by Add 'y' and as a graph output", "m")
    ]


def test_the_refusal_is_that_of_the_operands_that_got_furthest(rule: RuleMaker):
    """Of `m` the first condition fails, of `n` the second: that is the one to tell."""
    body = "m = Mul (a, b)  = require.sole_reader (m)  = require.channel_slope (b, c)  y = Add (m, c)"
    rules = rule(body, "Op (a, b, c) => (y)")
    outputs = "float[n,4,h,w] y, float[n,4,h,w] m"
    source = model("m = Mul (p, q)  n = Mul (q, r)  y = Add (m, n)", inputs=THREE, outputs=outputs)
    reason = "the shape of slope 'r' is not known before the model runs"
    assert refusals(source, "Op", rules=rules) == [(2, "channel slope", reason, "r")]


def test_a_square_plus_itself():
    assert_fuses(model("m = Mul (x, x)  y = Add (x, m)"), "y = ai.ngine.MulAdd (x, x, x)")


def test_a_product_added_to_itself_is_read_twice():
    source = model("m = Mul (x, scale)  y = Add (m, m)")
    assert nodes(fused(source)) == nodes(source)
    assert refusals(source, "MulAdd") == [(1, "sole reader", "'m' is read 2 times: by Add 'y' (2 times)", "m")]


def test_a_chain_shares_no_node_between_two_matches():
    source = model("m = Mul (x, scale)  s = Add (m, x)  k = Mul (s, scale)  y = Add (k, s)")
    assert_fuses(source, "s = ai.ngine.MulAdd (x, scale, x)", "y = ai.ngine.MulAdd (s, scale, s)")


def test_operands_of_a_subtraction_have_an_order(rule: RuleMaker):
    rules = rule("s = Sigmoid (x)  y = Sub (x, s)")
    assert nodes(fused(model("s = Sigmoid (x)  y = Sub (x, s)"), rules=rules)) == ["y = ai.ngine.Op (x)"]
    other = model("s = Sigmoid (x)  y = Sub (s, x)")
    assert graphopt.fuse(other, rules=rules).report.counts == {"Op": 0}


# Inputs that may be absent, and inputs of any number.


@pytest.mark.parametrize(
    ("conv", "call"),
    [("Conv (x, w, b)", "x, w, b"), ("Conv (x, w)", "x, w"), ('Conv (x, w, "")', "x, w, ")],
)
def test_a_bias_may_be_absent_and_stays_as_it_is_written(conv: str, call: str):
    assert_fuses(model(f"c = {conv}  y = LeakyRelu (c)"), f"y = ai.ngine.ConvLeakyRelu ({call})")


@pytest.mark.parametrize("conv", ["Conv (x, w)", 'Conv (x, w, "")'])
def test_an_absent_bias_before_a_slope_is_an_empty_name(conv: str):
    assert_fuses(model(f"c = {conv}  y = PRelu (c, slope)"), "y = ai.ngine.ConvPRelu (x, w, , slope)")


@pytest.mark.parametrize("prefix", ["x", "x, x", "x, s, x, s, x"])
def test_any_number_of_prefix_inputs(prefix: str):
    source = model(f"s = Sigmoid (x)  t = Conv (s, w, b)  y = Concat <axis: int = 1> ({prefix}, t)")
    count = prefix.count(",") + 1
    assert_fuses(
        source,
        "s = Sigmoid (x)",
        f"y = ai.ngine.ConcatFusedTail <axis=1, prefix_count={count}, producer_op=Conv> ({prefix}, s, w, b)",
    )


def test_a_rule_without_an_input_does_not_match_a_node_that_has_it(rule: RuleMaker):
    rules = rule("c = Conv (x, w)  y = Relu (c)", "Op (x, w) => (y)")
    assert nodes(fused(model("c = Conv (x, w)  y = Relu (c)"), rules=rules)) == ["y = ai.ngine.Op (x, w)"]
    sentence = why(model("c = Conv (x, w, b)  y = Relu (c)"), "y", rules)
    assert sentence == "Conv 'c' has 3 inputs, more than the rule knows"


def test_an_empty_input_of_a_rule_is_absent_in_the_model(rule: RuleMaker):
    rules = rule('c = Clip (x, "", top)  y = Relu (c)', "Op (x, top) => (y)")
    high = {"top": np.array(0.5, np.float32)}
    assert_fuses(model('c = Clip (x, "", top)  y = Relu (c)', constants=high), "y = ai.ngine.Op (x, top)", rules=rules)
    both = model("c = Clip (x, top, top)  y = Relu (c)", constants=high)
    assert why(both, "y", rules) == "Clip 'c' has an input 'top' where the rule has none"


# Attributes.


def test_attributes_are_carried_as_written_and_absent_ones_stay_absent():
    source = model(
        """c = Conv <auto_pad = "SAME_UPPER", group: int = 1> (x, k3)
           y = LeakyRelu <alpha: float = 0.25> (c)"""
    )
    assert_fuses(source, "y = ai.ngine.ConvLeakyRelu <alpha=0.25, auto_pad=SAME_UPPER, group=1> (x, k3)")


def test_an_exact_attribute(rule: RuleMaker):
    rules = rule("s = Sigmoid (x)  y = LeakyRelu <alpha: float = 0.01> (s)")
    for written in ("", "<alpha: float = 0.01>"):  # the operator's default, said or not
        source = model(f"s = Sigmoid (x)  y = LeakyRelu {written} (s)")
        assert graphopt.fuse(source, rules=rules).report.counts == {"Op": 1}
    source = model("s = Sigmoid (x)  y = LeakyRelu <alpha: float = 0.5> (s)")
    assert why(source, "y", rules) == "LeakyRelu 'y' has alpha = 0.5, the rule asks for alpha = 0.009999999776482582"


def test_an_attribute_that_the_rule_does_not_mention_must_be_the_default(rule: RuleMaker):
    rules = rule("c = Conv (x, w)  y = Relu (c)", "Op (x, w) => (y)")
    source = model("c = Conv <group: int = 1> (x, w)  y = Relu (c)")
    assert_fuses(source, "y = ai.ngine.Op (x, w)", rules=rules)
    source = model("c = Conv <strides: ints = [2, 2]> (x, w)  y = Relu (c)")
    assert nodes(fused(source, rules=rules)) == nodes(source)
    assert why(source, "y", rules) == "Conv 'c' has strides = [2, 2], which the rule does not know"


def test_one_attribute_of_a_rule_that_two_nodes_share(rule: RuleMaker):
    body = "a = LeakyRelu <alpha: float = @alpha> (x)  s = Sigmoid (a)  y = LeakyRelu <alpha: float = @alpha> (s)"
    rules = rule(body, "Op <alpha> (x) => (y)")
    text = "a = LeakyRelu <alpha: float = 0.5> (x)  s = Sigmoid (a)  y = LeakyRelu <alpha: float = {}> (s)"
    assert_fuses(model(text.format(0.5)), "y = ai.ngine.Op <alpha=0.5> (x)", rules=rules)
    assert "another alpha" in why(model(text.format(0.25)), "y", rules)


@pytest.mark.parametrize("written", ["first", "second"])
def test_a_shared_attribute_that_only_one_of_two_nodes_has(rule: RuleMaker, written: str):
    """The fused node has one value for both, so the node without it would get it too."""
    body = "a = LeakyRelu <alpha: float = @alpha> (x)  s = Sigmoid (a)  y = LeakyRelu <alpha: float = @alpha> (s)"
    rules = rule(body, "Op <alpha> (x) => (y)")
    first, second = ("<alpha: float = 0.5>", "") if written == "first" else ("", "<alpha: float = 0.5>")
    source = model(f"a = LeakyRelu {first} (x)  s = Sigmoid (a)  y = LeakyRelu {second} (s)")
    assert nodes(fused(source, rules=rules)) == nodes(source)


# Constants.

HARD_SIGMOID = "three = Constant <value = float {3.0}> ()  a = Add (x, three)  y = Relu (a)"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
@pytest.mark.parametrize("operands", ["x, k", "k, x"])
def test_a_constant_of_any_dtype_and_one_element_shape(
    rule: RuleMaker, dtype: type[np.generic], shape: tuple[int, ...], operands: str
):
    kind = {np.float32: "float", np.float16: "float16", np.float64: "double"}[dtype]
    source = model(
        f"a = Add ({operands})  y = Relu (a)",
        inputs=f"{kind}[n,4,h,w] x",
        outputs=f"{kind}[n,4,h,w] y",
        constants={"k": np.full(shape, 3, dtype)},
    )
    result = assert_fuses(source, "y = ai.ngine.Op (x)", rules=rule(HARD_SIGMOID))
    held = numpy_helper.to_array(result.functions[0].node[0].attribute[0].t)
    assert (held.dtype, held.shape, held.item()) == (dtype, shape, 3)  # the model's own, not the rule's


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_constant_is_equal_after_rounding(rule: RuleMaker, dtype: type[np.generic]):
    rules = rule("k = Constant <value = float {0.1}> ()  a = Mul (x, k)  y = Relu (a)")
    kind = {np.float32: "float", np.float16: "float16", np.float64: "double"}[dtype]
    types = {"inputs": f"{kind}[n,4,h,w] x", "outputs": f"{kind}[n,4,h,w] y"}
    for value, count in ((dtype(0.1), 1), (np.nextafter(dtype(0.1), dtype(1)), int(dtype is np.float64))):
        source = model("a = Mul (x, k)  y = Relu (a)", constants={"k": np.array(value, dtype)}, **types)
        result = graphopt.fuse(source, rules=rules)
        assert result.report.counts == {"Op": count}  # the next double still rounds to the same float
        assert_same_numbers(source, result.model)


@pytest.mark.parametrize(
    "constant", ["value = float {3.0}", "value_float: float = 3.0", "value_floats: floats = [3.0]"]
)
def test_a_constant_node_is_as_good_as_an_initializer(rule: RuleMaker, constant: str):
    source = model(f"k = Constant <{constant}> ()  i = Identity (k)  a = Add (x, i)  y = Relu (a)")
    result = fused(source, rules=rule(HARD_SIGMOID))
    assert nodes(result)[-1] == "y = ai.ngine.Op (x)"
    assert_same_numbers(source, result)


@pytest.mark.parametrize(
    ("shape", "value", "reason"),
    [
        ((), 3.5, "'k' is 3.5, the rule asks for 3"),
        ((4, 1, 1), 3, "'k' has shape [4, 1, 1], the rule asks for the number 3"),
        ((1, 1, 1, 1, 1), 3, "'k' has shape [1, 1, 1, 1, 1], which may raise the rank of the result"),
    ],
)
def test_a_constant_that_does_not_fit(rule: RuleMaker, shape: tuple[int, ...], value: float, reason: str):
    rules = rule("three = Constant <value = float {3.0}> ()  s = Sigmoid (x)  a = Add (s, three)  y = Relu (a)")
    source = model(
        "s = Sigmoid (x)  a = Add (s, k)  y = Relu (a)",
        outputs="float[" + ",".join("abcde"[: max(4, len(shape))]) + "] y",
        constants={"k": np.full(shape, value, np.float32)},
    )
    assert nodes(fused(source, rules=rules)) == nodes(source)
    assert why(source, "y", rules) == reason


def test_a_constant_that_callers_may_override_is_none(rule: RuleMaker):
    rules = rule("three = Constant <value = float {3.0}> ()  s = Sigmoid (x)  a = Add (s, three)  y = Relu (a)")
    three = {"k": np.array(3, np.float32)}
    text = "s = Sigmoid (x)  a = Add (s, k)  y = Relu (a)"
    source = model(text, inputs="float[n,4,h,w] x, float k", constants=three)
    assert why(source, "y", rules) == "'k' is not a constant, the rule asks for 3"
    listed = model(text, inputs="float[n,4,h,w] x, float k", constants=three, ir=3)  # no overriding before IR 4
    assert graphopt.fuse(listed, rules=rules).report.counts == {"Op": 1}


# Values that the pattern reads more than once.

SILU = "c = Conv (x, w)  s = Sigmoid (c)  y = Mul (c, s)"


def test_a_value_read_twice_inside_the_pattern(rule: RuleMaker):
    rules = rule(SILU, "Op (x, w) => (y)")
    for product in ("Mul (c, s)", "Mul (s, c)"):
        source = model(f"c = Conv (x, w)  s = Sigmoid (c)  y = {product}")
        assert nodes(fused(source, rules=rules)) == ["y = ai.ngine.Op (x, w)"]


def test_a_value_read_twice_inside_and_once_outside(rule: RuleMaker):
    rules = rule(SILU, "Op (x, w) => (y)")
    source = model(f"{SILU}  z = Relu (c)", outputs="float[n,4,h,w] y, float[n,4,h,w] z")
    assert nodes(fused(source, rules=rules)) == nodes(source)
    assert refusals(source, "Op", rules=rules) == [
        (
            1,
            "interior values",
            "'c' is also read outside the pattern: 3 times: by Sigmoid 's', by Mul 'y' and by Relu 'z'",
            "c",
        )
    ]


def test_two_values_that_the_pattern_has_as_one(rule: RuleMaker):
    rules = rule(SILU, "Op (x, w) => (y)")
    source = model("c = Conv (x, w)  d = Conv (x, w)  s = Sigmoid (c)  y = Mul (d, s)")
    assert nodes(fused(source, rules=rules)) == nodes(source)


def test_an_input_that_the_rule_reads_twice(rule: RuleMaker):
    rules = rule("s = Sigmoid (x)  y = Mul (x, s)")
    assert graphopt.fuse(model("s = Sigmoid (x)  y = Mul (s, x)"), rules=rules).report.counts == {"Op": 1}
    other = model("s = Sigmoid (x)  y = Mul (z, s)", inputs="float[n,4,h,w] x, float[n,4,h,w] z")
    assert graphopt.fuse(other, rules=rules).report.counts == {"Op": 0}


# The matcher itself.


def test_matching_changes_nothing_and_says_the_same_twice():
    source = model("m = Mul (p, q)  n = Mul (q, r)  y = Add (m, n)", inputs=THREE)
    (rule,) = (rule for rule in load_rules().rules if rule.op_type == "MulAdd")
    (scope,) = read_scopes(source)
    view = DataflowGraph(scope)
    before = source.SerializeToString(deterministic=True), list(scope.nodes)
    first, second = (list(match(rule, view, 2)) for _ in range(2))
    assert first == second
    assert (source.SerializeToString(deterministic=True), list(scope.nodes)) == before
    found = [{name: one.values[name] for name in "abc"} for one in first if isinstance(one, Match)]
    assert found == [
        {"a": "p", "b": "q", "c": "n"},
        {"a": "q", "b": "p", "c": "n"},
        {"a": "q", "b": "r", "c": "m"},
        {"a": "r", "b": "q", "c": "m"},
    ]


def test_a_chain_of_twenty_thousand_nodes_upside_down():
    """Nothing recurses: not the sort of the nodes, the matcher, or the proof."""
    made = []
    for step in range(10_000):
        made.append(helper.make_node("Mul", [f"v{step}", "scale"], [f"m{step}"]))
        made.append(helper.make_node("Add", [f"m{step}", "x"], [f"v{step + 1}"]))
    image = [1, 4, 2, 2]
    graph = helper.make_graph(
        made[::-1],
        "deep",
        [helper.make_tensor_value_info(name, 1, image) for name in ("v0", "x")],
        [helper.make_tensor_value_info("v10000", 1, image)],
        [numpy_helper.from_array(random_array("scale", (1, 4, 1, 1)), "scale")],
    )
    source = helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    result = graphopt.fuse(source)
    assert result.report.counts["MulAdd"] == 10_000
    assert result.report.nodes_after == 10_000
    assert nodes(result.model)[-1] == "v10000 = ai.ngine.MulAdd (v9999, scale, x)"


# Values with a further meaning.


def test_an_absent_input_is_read_by_nobody(rule: RuleMaker):
    rules = rule(
        'r = Relu (x)  ["once"] = require.sole_reader (low)  y = Clip (r, low, high)', "Op (x, low, high) => (y)"
    )
    source = model('r = Relu (x)  y = Clip (r, "", high)', inputs="float[n,4,h,w] x, float high")
    assert refusals(source, "Op", rules=rules) == [(1, "once", "'' is read by nobody", "")]


@pytest.mark.parametrize(
    ("body", "signature", "node", "readers"),
    [
        ("t = Relu (x)  y = Sub (t, b)", "Op (x, b) => (y)", "Sub (t, t)", "2 times: by Sub 'y' (2 times)"),
        (
            "= require.variadic <least: int = 1> (others)  t = Relu (x)  y = Concat <axis: int = @axis> (t, others)",
            "Op <axis> (x, others) => (y)",
            "Concat <axis: int = 1> (t, x, t)",
            "2 times: by Concat 'y' (2 times)",
        ),
    ],
)
def test_an_inner_value_that_is_an_input_too(rule: RuleMaker, body: str, signature: str, node: str, readers: str):
    ((_, _, reason, at),) = refusals(model(f"t = Relu (x)  y = {node}"), "Op", rules=rule(body, signature))
    assert (reason, at) == (f"'t' is also read as an input of the fused operator: {readers}", "t")
