"""Fusing wherever nodes can be: in the bodies of If, Loop and Scan, and in the model's own functions."""

import numpy as np
import onnx
from support.text_models import IMAGE, assert_same_numbers, feeds, model, nodes

import graphopt


def test_inside_the_bodies_of_if_loop_and_scan():
    source = model(
        """i = If (condition) <
               then_branch = yes () => (float[n,4,h,w] p) { c = Conv (x, w, b)  p = LeakyRelu (c) },
               else_branch = no () => (float[n,4,h,w] q) { m = Mul (x, scale)  q = Add (m, x) }>
           l = Loop (trips, condition, i) <
               body = step (int64 k, bool go, float[n,4,h,w] u) => (bool on, float[n,4,h,w] v)
                      { on = Identity (go)  d = Conv (u, w, b)  v = PRelu (d, slope) }>
           y = Scan (l) <num_scan_inputs: int = 1,
               body = row (float[4,h,w] r) => (float[8,h,w] s)
                      { f = Unsqueeze (r, zero)  g = Conv (f, w, b)
                        j = Concat <axis: int = 1> (f, g)  s = Squeeze (j, zero) }>""",
        inputs=f"{IMAGE}, bool condition",
        outputs="float[n,8,h,w] y",
        constants={"trips": np.array(2), "zero": np.array([0])},
    )
    result = graphopt.fuse(source)
    assert result.report.counts == {"ConvLeakyRelu": 1, "ConvPRelu": 1, "ConcatFusedTail": 1, "MulAdd": 1}
    where = {fusion.rule: fusion.scope for fusion in result.report.fusions}
    assert where == {
        "ConvLeakyRelu": "then_branch of If 'i'",
        "MulAdd": "else_branch of If 'i'",
        "ConvPRelu": "body of Loop 'l'",
        "ConcatFusedTail": "body of Scan 'y'",
    }
    onnx.checker.check_model(result.model)
    for condition in (True, False):
        given = {**feeds(source), "condition": np.array(condition)}
        assert_same_numbers(source, result.model, given)
    assert graphopt.unfuse(result.model) == source


def test_a_body_counts_its_own_outputs_as_readers():
    source = model(
        """y, z = If (condition) <
               then_branch = yes () => (float[n,4,h,w] p, float[n,4,h,w] c) { c = Conv (x, w, b)  p = LeakyRelu (c) },
               else_branch = no () => (float[n,4,h,w] q, float[n,4,h,w] o) { q = Relu (x)  o = Relu (x) }>""",
        inputs=f"{IMAGE}, bool condition",
        outputs="float[n,4,h,w] y, float[n,4,h,w] z",
    )
    (refusal,) = graphopt.fuse(source).report.refusals
    assert refusal.reason == "'c' is read 2 times: by LeakyRelu 'p' and as an output of then_branch of If 'y'"
    assert refusal.scope == "then_branch of If 'y'"


def test_a_weight_of_a_body_comes_from_the_graph_around_it():
    """A convolution outside, whose result only a body reads, is not the body's to fuse."""
    source = model(
        """c = Conv (x, w, b)
           y = If (condition) <
               then_branch = yes () => (float[n,4,h,w] p) { p = LeakyRelu (c) },
               else_branch = no () => (float[n,4,h,w] q) { q = Relu (x) }>""",
        inputs=f"{IMAGE}, bool condition",
    )
    report = graphopt.fuse(source).report
    assert report.counts["ConvLeakyRelu"] == 0
    assert report.nodes_after == report.nodes_before


LOCAL = """
<domain: "my", opset_import: ["" : 17]>
Block <alpha: float = 0.5, auto_pad> (x, w, b) => (y)
{
  c = Conv <auto_pad: string = @auto_pad> (x, w, b)
  t = LeakyRelu <alpha: float = @alpha> (c)
  y = Concat <axis: int = 1> (x, t)
}
"""


def test_inside_a_function_of_the_model_with_references_to_its_attributes():
    source = model(
        'd = my.Block <alpha: float = 0.25, auto_pad = "SAME_UPPER"> (x, k3, b)  y = my.Block (d, w8, b)',
        functions=LOCAL,
        imports='"my" : 1',
    )
    result = graphopt.fuse(source)
    assert (result.report.counts["ConvLeakyRelu"], result.report.counts["ConcatFusedTail"]) == (1, 1)
    assert nodes(result.model) == nodes(source)
    own = next(function for function in result.model.functions if function.domain == "my")
    assert nodes(own) == [
        "y = ai.ngine.ConcatFusedTail "
        "<alpha=@alpha, auto_pad=@auto_pad, axis=1, prefix_count=1, producer_op=ConvLeakyRelu> (x, x, w, b)"
    ]
    assert {entry.domain for entry in own.opset_import} == {"", "ai.ngine"}
    onnx.checker.check_model(result.model)
    assert_same_numbers(source, result.model)
    assert graphopt.unfuse(result.model) == source


def test_an_axis_that_a_function_leaves_to_its_caller():
    text = LOCAL.replace("<alpha: float = 0.5, auto_pad>", "<alpha: float = 0.5, auto_pad, axis>")
    source = model(
        "y = my.Block <axis: int = 1> (x, w, b)",
        functions=text.replace("axis: int = 1", "axis: int = @axis"),
        imports='"my" : 1',
    )
    report = graphopt.fuse(source).report
    assert report.counts["ConcatFusedTail"] == 0
    (refusal,) = (refusal for refusal in report.refusals if refusal.rule == "ConcatFusedTail")
    assert (refusal.condition, refusal.reason) == (1, "the axis of Concat 'y' is not a number in the model")
    assert refusal.scope == "function my::Block"


def test_a_function_with_another_opset_than_the_model():
    source = model(
        "d = my.Sum (x, scale)  m = Mul (d, scale)  y = Add (m, x)",
        functions='<domain: "my", opset_import: ["" : 13]> Sum (x, s) => (y) { m = Mul (x, s)  y = Add (m, x) }',
        imports='"my" : 1',
    )
    result = graphopt.fuse(source)
    assert result.report.counts["MulAdd"] == 2
    made = {f.domain: f.opset_import[0].version for f in result.model.functions if f.name == "MulAdd"}
    assert made == {"ai.ngine.opset13": 13, "ai.ngine.opset17": 17}
    assert_same_numbers(source, result.model)
