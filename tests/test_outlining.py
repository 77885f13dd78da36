"""From a match to a fused node and its function: bodies, domains, and everything else of the model left as it was."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from support.text_models import assert_fuses, assert_same_numbers, fused, model, nodes, random_array

import graphopt

CONV = (
    "Conv <auto_pad=@auto_pad, dilations=@dilations, group=@group, kernel_shape=@kernel_shape, pads=@pads, "
    "strides=@strides>"
)
TWO = "float[n,k,h,w] y, float[n,m,h,w] z"


def bodies(source: ModelProto) -> Mapping[str, list[str]]:
    """The functions of a model: the nodes of each, by its full name."""
    return {f"{function.domain}.{function.name}": nodes(function) for function in source.functions}


def imports(source: ModelProto) -> dict[str, int]:
    return {entry.domain: entry.version for entry in source.opset_import}


# Bodies.


def test_one_body_lives_in_the_plain_domain():
    result = fused(model("c = Conv (x, w, b)  d = LeakyRelu (c)  e = Conv (d, w, b)  y = LeakyRelu (e)"))
    assert bodies(result) == {
        "ai.ngine.ConvLeakyRelu": [f"c = {CONV} (x, w, bias)", "y = LeakyRelu <alpha=@alpha> (c)"]
    }
    assert imports(result) == {"": 17, "ai.ngine": 1}


def test_a_body_is_flat_and_spelled_out():
    result = fused(model("c = Conv (x, w, b)  t = LeakyRelu (c)  y = Concat <axis: int = 1> (x, x, t)"))
    assert bodies(result) == {
        "ai.ngine.ConcatFusedTail": [
            f"tail_c = {CONV} (x, w, bias)",
            "tail = LeakyRelu <alpha=@alpha> (tail_c)",
            "y = Concat <axis=@axis> (prefix_0, prefix_1, tail)",
        ]
    }
    (function,) = result.functions
    assert list(function.input) == ["prefix_0", "prefix_1", "x", "w", "bias"]
    assert {entry.domain: entry.version for entry in function.opset_import} == {"": 17}


def test_bodies_that_nothing_calls_any_more_are_not_emitted():
    result = fused(model("c = Conv (x, w, b)  t = LeakyRelu (c)  y = Concat <axis: int = 1> (x, t)"))
    assert [function.name for function in result.functions] == ["ConcatFusedTail"]


@pytest.mark.parametrize("opset", [13, 15, 18])
def test_a_body_has_the_opset_of_the_model(opset: int):
    result = fused(model("m = Mul (x, scale)  y = Add (m, x)", opset=opset))
    assert result.functions[0].opset_import[0].version == opset


def test_attributes_of_a_call_are_those_of_the_contract():
    (call,) = fused(model("c = Conv (x, w, b)  t = LeakyRelu (c)  y = Concat <axis: int = 1> (x, t)")).graph.node
    kinds = {attribute.name: attribute.type for attribute in call.attribute}
    types = onnx.AttributeProto
    assert kinds == {"axis": types.INT, "prefix_count": types.INT, "producer_op": types.STRING, "alpha": types.FLOAT}


# Sub-domains.


@pytest.mark.parametrize(
    ("body", "domains"),
    [
        pytest.param(
            """t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)
               u = Conv (x, w, b)  z = Concat <axis: int = 1> (x, x, u)""",
            ["ai.ngine.p1", "ai.ngine.p2"],
            id="prefix counts",
        ),
        pytest.param(
            """t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)
               c = Conv (x, w, b)  u = LeakyRelu (c)  z = Concat <axis: int = 1> (x, u)""",
            ["ai.ngine.Conv", "ai.ngine.ConvLeakyRelu"],
            id="producers",
        ),
        pytest.param(
            """t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, x, t)
               c = Conv (x, w, b)  u = LeakyRelu (c)  z = Concat <axis: int = 1> (x, u)""",
            ["ai.ngine.Conv.p2", "ai.ngine.ConvLeakyRelu.p1"],
            id="producers and prefix counts",
        ),
        pytest.param(
            """t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)
               u = Conv (x, w)  z = Concat <axis: int = 1> (x, u)""",
            ["ai.ngine.bias", "ai.ngine.no_bias"],
            id="with and without a bias",
        ),
    ],
)
def test_bodies_that_differ_are_told_apart_by_just_what_differs(body: str, domains: list[str]):
    source = model(body, outputs=TWO)
    result = fused(source)
    assert [node.domain for node in result.graph.node] == domains
    assert {node.op_type for node in result.graph.node} == {"ConcatFusedTail"}
    assert [(function.domain, function.name) for function in result.functions] == [
        (domain, "ConcatFusedTail") for domain in domains
    ]
    assert not any(function.overload for function in result.functions)
    assert imports(result) == {"": 17, **dict.fromkeys(domains, 1)}
    assert_same_numbers(source, result)


def test_operators_with_one_body_stay_in_the_plain_domain_beside_one_with_two():
    source = model(
        """t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)
           u = Conv (x, w, b)  v = Concat <axis: int = 1> (x, x, u)
           m = Mul (x, scale)  z = Add (m, x)""",
        outputs=f"{TWO}, float[n,l,h,w] v",
    )
    result = fused(source)
    assert [node.domain for node in result.graph.node] == ["ai.ngine.p1", "ai.ngine.p2", "ai.ngine"]
    assert_same_numbers(source, result)


def test_an_absent_bias_is_absent_in_the_body_too():
    """onnxruntime takes `Conv(x, w, "")` for another convolution than `Conv(x, w)`, and its sums come out otherwise."""
    result = assert_fuses(model("c = Conv (x, w)  y = LeakyRelu (c)"), "y = ai.ngine.ConvLeakyRelu (x, w)")
    assert bodies(result)["ai.ngine.ConvLeakyRelu"][0] == f"c = {CONV} (x, w)"
    result = assert_fuses(model("c = Conv (x, w)  y = PRelu (c, slope)"), "y = ai.ngine.ConvPRelu (x, w, , slope)")
    assert bodies(result)["ai.ngine.ConvPRelu"] == [f"c = {CONV} (x, w)", "y = PRelu (c, slope)"]
    assert list(result.functions[0].input) == ["x", "w", "bias", "slope"]
    named = assert_fuses(model('c = Conv (x, w, "")  y = LeakyRelu (c)'), "y = ai.ngine.ConvLeakyRelu (x, w, )")
    assert bodies(named)["ai.ngine.ConvLeakyRelu"][0] == f"c = {CONV} (x, w, bias)"


def test_constants_of_several_types_have_a_body_each(tmp_path):
    rule = tmp_path / "rule.onnxtxt"
    rule.write_text(
        '<domain: "ai.ngine", opset_import: ["" : 17]> Half (x) => (y) '
        "{ h = Constant <value = float {0.5}> ()  m = Mul (x, h)  y = Relu (m) }"
    )
    source = model(
        "m = Mul (x, k)  y = Relu (m)  d = Mul (p, q)  z = Relu (d)",
        inputs="float[n,4,h,w] x, double[n,4,h,w] p",
        outputs="float[n,4,h,w] y, double[n,4,h,w] z",
        constants={"k": np.array(0.5, np.float32), "q": np.array(0.5, np.float64)},
    )
    result = fused(source, rules=rule)
    assert nodes(result) == ["y = ai.ngine.float.Half (x)", "z = ai.ngine.double.Half (p)"]
    assert_same_numbers(source, result)


# Functions that the model has already.


def test_bodies_that_are_in_the_model_keep_their_domain():
    once = fused(model("t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)"))
    once.graph.node.extend(
        [helper.make_node("Conv", ["x", "w", "b"], ["u"]), helper.make_node("Concat", ["x", "x", "u"], ["z"], axis=1)]
    )
    once.graph.output.add().CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 12, "h", "w"]))
    twice = fused(once)
    domains = [node.domain for node in twice.graph.node]
    assert domains == ["ai.ngine", "ai.ngine.Conv.p2.opset17"]  # all that may differ from the one that was there
    assert [function.domain for function in twice.functions] == domains
    assert twice.functions[0] == once.functions[0]
    assert_same_numbers(once, twice)


def test_a_new_call_of_a_body_that_is_in_the_model():
    """The same body once more may share the function or have its own; both calls must mean what they meant."""
    once = fused(model("t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)"))
    once.graph.node.extend(
        [helper.make_node("Conv", ["x", "w", "b"], ["u"]), helper.make_node("Concat", ["y", "u"], ["z"], axis=1)]
    )
    once.graph.output.add().CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 12, "h", "w"]))
    twice = fused(once)
    assert [node.op_type for node in twice.graph.node] == ["ConcatFusedTail"] * 2
    assert twice.graph.node[0].domain == "ai.ngine"
    assert_same_numbers(once, twice)


FOREIGN = """
<domain: "ai.ngine", opset_import: ["" : 17]>
ConvLeakyRelu <alpha> (x, w, b) => (y) { c = Conv (x, w, b)  r = Relu (c)  y = LeakyRelu <alpha: float = @alpha> (r) }
"""


def test_a_foreign_function_of_the_same_name_keeps_its_meaning():
    source = model(
        """a = ai.ngine.ConvLeakyRelu <alpha: float = 0.5> (x, w, b)
           v = Concat <axis: int = 1> (x, a)
           c = Conv (x, w, b)  y = LeakyRelu <alpha: float = 0.5> (c)""",
        outputs="float[n,8,h,w] v, float[n,4,h,w] y",
        functions=FOREIGN,
        imports='"ai.ngine" : 1',
    )
    report = graphopt.fuse(source).report
    assert report.counts["ConcatFusedTail"] == 0  # the foreign call is no convolution tail
    result = fused(source)
    assert [node.op_type for node in result.graph.node] == ["ConvLeakyRelu", "Concat", "ConvLeakyRelu"]
    assert result.graph.node[0].domain == "ai.ngine"
    assert result.graph.node[2].domain.startswith("ai.ngine.")
    assert result.functions[0] == source.functions[0]
    numbers = assert_same_numbers(source, result)
    assert (numbers["v"][:, 4:] >= 0).all()
    assert (numbers["y"] < 0).any()


# Without functions.


def test_bare_calls():
    source = model(
        """t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)
           u = Conv (x, w, b)  z = Concat <axis: int = 1> (x, x, u)""",
        outputs=TWO,
        ir=7,
    )
    result = graphopt.fuse(source, functions=False)
    assert not result.report.functions
    assert not result.model.functions
    assert nodes(result.model) == [
        "y = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (x, x, w, b)",
        "z = ai.ngine.ConcatFusedTail <axis=1, prefix_count=2, producer_op=Conv> (x, x, x, w, b)",
    ]
    assert imports(result.model) == {"": 17, "ai.ngine": 1}
    assert result.model.ir_version == 7  # nothing in it needs a newer one


# The rest of the model.


def test_an_old_ir_version_is_raised_and_initializers_leave_the_inputs():
    """From IR 4 on, an initializer among the inputs is a default that callers may override."""
    source = model(
        "c = Conv (x, w, b)  y = LeakyRelu (c)",
        inputs="float[n,4,h,w] x, float[4,4,1,1] w, float[4] b",
        constants={"w": random_array("w", (4, 4, 1, 1)), "b": random_array("b", (4,))},
        ir=3,
    )
    result = fused(source)
    assert result.ir_version == 8
    assert [value.name for value in result.graph.input] == ["x"]
    assert_same_numbers(source, result)


def test_an_overridable_initializer_stays_one():
    source = model(
        "c = Conv (x, w, b)  y = LeakyRelu (c)",
        inputs="float[n,4,h,w] x, float[4,4,1,1] w",
        constants={"w": random_array("w", (4, 4, 1, 1))},
        ir=4,
    )
    result = fused(source)
    assert result.ir_version == 8
    assert [value.name for value in result.graph.input] == ["x", "w"]
    given = {"x": random_array("x", (1, 4, 2, 2)), "w": random_array("other", (4, 4, 1, 1))}
    assert_same_numbers(source, result, given)


def test_a_newer_ir_version_stays():
    assert fused(model("m = Mul (x, scale)  y = Add (m, x)", ir=10)).ir_version == 10


def test_value_info_of_values_that_are_gone_goes_and_the_rest_stays():
    source = model(
        "s = Sigmoid (x)  c = Conv (s, w, b)  y = LeakyRelu (c)", value_info="float[n,4,h,w] s, float[n,4,h,w] c"
    )
    source.graph.quantization_annotation.add(tensor_name="c")
    source.graph.quantization_annotation.add(tensor_name="s")
    result = fused(source)
    assert [info.name for info in result.graph.value_info] == ["s"]
    assert [entry.tensor_name for entry in result.graph.quantization_annotation] == ["s"]


def test_whatever_the_rewrite_does_not_touch_is_as_it_was():
    source = model(
        "s = my.Own (x)  c = Conv (s, w, b)  y = LeakyRelu (c)  z = Relu (s)",
        outputs="float[n,4,h,w] y, float[n,4,h,w] z",
        functions='<domain: "my", opset_import: ["" : 17]> Own (x) => (y) { y = Sigmoid (x) }',
        imports='"my" : 3',
    )
    source.producer_name, source.producer_version, source.model_version = "somebody", "1.2", 7
    source.domain, source.doc_string = "com.example", "a model"
    source.metadata_props.add(key="author", value="me")
    source.graph.doc_string = "a graph"
    source.graph.node[0].name, source.graph.node[0].doc_string = "own", "a call"
    source.graph.node[0].metadata_props.add(key="place", value="first")
    source.graph.input[0].doc_string = "an image"
    source.graph.initializer[0].doc_string = "a weight"
    result = fused(source)
    for field in ("producer_name", "producer_version", "model_version", "domain", "doc_string"):
        assert getattr(result, field) == getattr(source, field)
    assert (result.metadata_props[0].key, result.metadata_props[0].value) == ("author", "me")
    assert result.graph.doc_string == "a graph"
    assert (result.graph.node[0], result.graph.node[2]) == (source.graph.node[0], source.graph.node[3])
    assert list(result.graph.input) == list(source.graph.input)
    assert list(result.graph.output) == list(source.graph.output)
    assert list(result.graph.initializer) == list(source.graph.initializer)
    assert result.functions[0] == source.functions[0]
    assert imports(result)["my"] == 3


def test_a_fused_node_carries_the_names_of_what_it_replaced_and_the_model_the_rules():
    source = model("c = Conv (x, w, b)  t = LeakyRelu (c)  y = Concat <axis: int = 1> (x, t)")
    for node, name in zip(source.graph.node, ("conv", "act", "cat"), strict=True):
        node.name = name
    result = fused(source)
    (call,) = result.graph.node
    assert call.name == "cat"
    assert {entry.key: entry.value for entry in call.metadata_props}["graphopt.replaces"] == "conv, act, cat"
    assert [entry.value for entry in result.metadata_props] == [graphopt.load_rules().digest]


def test_a_model_without_candidates_is_given_back_as_it_was():
    source = model("y = Relu (x)", ir=3)
    assert fused(source) == source


def test_a_bare_call_never_runs_a_function_of_the_models_own() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17, "ai.ngine" : 1]>
    g (float[1,2,4,4] x, float[2,2,1,1] w) => (float[1,2,4,4] y, float[1,2,4,4] z) {
      c = Conv (x, w)
      y = LeakyRelu (c)
      z = ai.ngine.ConvLeakyRelu (x)
    }
    <domain: "ai.ngine", opset_import: ["" : 17]>
    ConvLeakyRelu (x) => (y) { y = Abs (x) }
    """
    with pytest.raises(graphopt.UsageError, match=r"has a function ai\.ngine\.ConvLeakyRelu of its own"):
        graphopt.fuse(onnx.parser.parse_model(text), functions=False)
    assert graphopt.fuse(onnx.parser.parse_model(text)).report.counts["ConvLeakyRelu"] == 1
