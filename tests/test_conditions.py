"""Each condition failing alone: its number, its name, its sentence, and the node or value at fault."""

import numpy as np
import onnx
import pytest
from support.text_models import (
    assert_fuses,
    assert_refused,
    fused,
    model,
    nodes,
    random_array,
    refusals,
)

import graphopt

TAIL = "ConcatFusedTail"
TWO = "float[n,4,h,w] y, float[n,4,h,w] z"


# The five conditions of ConcatFusedTail.


def test_all_five_hold():
    assert_fuses(
        model("s = Sigmoid (x)  t = Conv (s, w, b)  y = Concat <axis: int = 1> (x, t)"),
        "s = Sigmoid (x)",
        "y = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (x, s, w, b)",
    )


@pytest.mark.parametrize(("axis", "counted"), [(0, 0), (2, 2), (-1, 3), (-4, 0)])
def test_1_another_axis(axis: int, counted: int):
    source = model(f"t = Conv (x, w, b)  y = Concat <axis: int = {axis}> (x, t)")
    reason = f"Concat 'y' joins along axis {counted}, not along axis 1"
    assert_refused(source, TAIL, 1, "channel axis", reason, "y")


def test_1_a_negative_axis_is_counted_from_the_rank_of_the_weight():
    assert_fuses(
        model("t = Conv (x, w, b)  y = Concat <axis: int = -3> (x, t)", outputs="float[a,b,c,d] y"),
        "y = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (x, x, w, b)",
    )
    with_activation = model("c = Conv (x, w, b)  t = LeakyRelu (c)  y = Concat <axis: int = -3> (x, t)")
    assert graphopt.fuse(with_activation).report.counts[TAIL] == 1


def test_1_a_negative_axis_of_unknown_rank():
    """Neither the inputs nor the weight have a known rank."""
    source = model("t = Conv (p, k)  y = Concat <axis: int = -3> (p, t)", inputs="float p, float k", outputs="float y")
    for value in (*source.graph.input, *source.graph.output):
        value.type.tensor_type.ClearField("shape")
    reason = "Concat 'y' joins along axis -3, and the rank to count it from is unknown"
    assert_refused(source, TAIL, 1, "channel axis", reason, "y")


def test_2_one_input():
    source = model("t = Conv (x, w, b)  y = Concat <axis: int = 1> (t)")
    assert_refused(source, TAIL, 2, "two inputs", "Concat 'y' has 1 input, it needs at least 2", "y")


def test_3_the_last_input_is_no_convolution():
    source = model("t = Conv (x, w, b)  y = Concat <axis: int = 1> (t, x)")
    reason = "'x' is an input, not made by Conv, ConvLeakyRelu or ConvPRelu"
    assert_refused(source, TAIL, 3, "convolution tail", reason, "x")


@pytest.mark.parametrize(
    ("tail", "what"),
    [
        ("t = Sigmoid (x)", "'t' is made by Sigmoid 't', not by Conv, ConvLeakyRelu or ConvPRelu"),
        ("t = ConvTranspose (x, w, b)", "'t' is made by ConvTranspose 't', not by Conv, ConvLeakyRelu or ConvPRelu"),
        ("c = Conv (x, w, b)  t = Relu (c)", "'t' is made by Relu 't', not by Conv, ConvLeakyRelu or ConvPRelu"),
    ],
)
def test_3_the_last_input_is_made_by_something_else(tail: str, what: str):
    assert_refused(model(f"{tail}  y = Concat <axis: int = 1> (x, t)"), TAIL, 3, "convolution tail", what, "t")


def test_3_a_leaky_relu_of_another_domain_is_another_operator():
    source = model(
        "c = Conv (x, w, b)  t = other.LeakyRelu (c)  y = Concat <axis: int = 1> (x, t)", imports='"other" : 1'
    )
    result = graphopt.fuse(source)
    assert nodes(result.model) == nodes(source)
    assert result.report.counts == {"ConvLeakyRelu": 0, "ConvPRelu": 0, "ConcatFusedTail": 0, "MulAdd": 0}
    reason = "'t' is made by LeakyRelu 't' of domain 'other', not by Conv, ConvLeakyRelu or ConvPRelu"
    assert refusals(source, TAIL) == [(3, "convolution tail", reason, "t")]


@pytest.mark.parametrize("operator", ["ConvLeakyRelu", "Conv"])
def test_3_a_fused_operator_of_another_domain_is_another_operator(operator: str):
    source = model(f"t = other.{operator} (x, w, b)  y = Concat <axis: int = 1> (x, t)", imports='"other" : 1')
    reason = f"'t' is made by {operator} 't' of domain 'other', not by Conv, ConvLeakyRelu or ConvPRelu"
    assert_refused(source, TAIL, 3, "convolution tail", reason, "t")


def test_3_onnx_under_its_long_name_is_the_same_operator():
    source = model("t = ai.onnx.Conv (x, w, b)  y = ai.onnx.Concat <axis: int = 1> (x, t)", imports='"ai.onnx" : 17')
    del source.opset_import[0]
    assert graphopt.fuse(source).report.counts[TAIL] == 1


def test_4_read_by_another_node():
    source = model("t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)  z = Relu (t)", outputs=TWO)
    reason = "'t' is read 2 times: by Concat 'y' and by Relu 'z'"
    assert_refused(source, TAIL, 4, "sole reader", reason, "t")


def test_4_also_a_graph_output():
    source = model(
        "t = Conv (x, w, b)  y = Concat <axis: int = 1> (x, t)", outputs="float[n,8,h,w] y, float[n,4,h,w] t"
    )
    reason = "'t' is read 2 times: by Concat 'y' and as a graph output"
    assert_refused(source, TAIL, 4, "sole reader", reason, "t")


def test_4_each_slot_counts():
    source = model("t = Conv (x, w, b)  y = Concat <axis: int = 1> (t, t)")
    assert_refused(source, TAIL, 4, "sole reader", "'t' is read 2 times: by Concat 'y' (2 times)", "t")


CAPTURE = """
    t = Conv (x, w, b)
    y = Concat <axis: int = 1> (x, t)
    z = If (condition) <then_branch = yes () => (float[n,4,h,w] v) {{ {then} }},
                        else_branch = no () => (float[n,4,h,w] e) {{ e = Identity (x) }}>
"""


@pytest.mark.parametrize(
    "then",
    [
        "v = Relu (t)",
        """v = If (condition) <then_branch = deeper () => (float[n,4,h,w] i) { i = Relu (t) },
                               else_branch = other () => (float[n,4,h,w] j) { j = Identity (x) }>""",
    ],
    ids=["in a body", "in a body inside a body"],
)
def test_4_read_inside_a_body(then: str):
    source = model(CAPTURE.format(then=then), inputs="float[n,4,h,w] x, bool condition", outputs=TWO)
    reason = "'t' is read 2 times: by Concat 'y' and inside a body of If 'z'"
    assert_refused(source, TAIL, 4, "sole reader", reason, "t")
    other = model(CAPTURE.format(then="v = Relu (x)"), inputs="float[n,4,h,w] x, bool condition", outputs=TWO)
    assert graphopt.fuse(other).report.counts[TAIL] == 1


APART = """
    t = Conv (x, w, b)
    s = Sigmoid (x)
    r = Relu (s)
    y = Concat <axis: int = 1> (r, t)
"""


def test_5_nodes_between_in_the_file():
    source = model(APART)
    reason = "2 nodes between Conv 't' and Concat 'y' in the file"
    assert_refused(source, TAIL, 5, "adjacent", reason, "r", order="file")


def test_5_the_engine_sinks_the_convolution_to_its_reader():
    assert_fuses(
        model(APART),
        "s = Sigmoid (x)",
        "r = Relu (s)",
        "y = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (r, x, w, b)",
        order="sink",
    )


def test_5_adjacent_in_the_file():
    source = model("s = Sigmoid (x)  t = Conv (x, w, b)  y = Concat <axis: int = 1> (s, t)")
    assert graphopt.fuse(source, order="file").report.counts[TAIL] == 1


def test_5_a_fused_producer_stands_where_its_activation_stood():
    text = "c = Conv (x, w, b)  s = Sigmoid (x)  t = LeakyRelu (c)  y = Concat <axis: int = 1> (s, t)"
    report = graphopt.fuse(model(text), order="file").report
    assert (report.counts["ConvLeakyRelu"], report.counts[TAIL]) == (1, 1)


def test_an_order_that_is_none():
    with pytest.raises(graphopt.UsageError, match="There is no order 'random'; choose sink or file"):
        graphopt.fuse(model("y = Relu (x)"), order="random")


def test_the_smallest_failing_number_is_reported():
    source = model("t = Conv (x, w, b)  y = Concat <axis: int = 2> (t, t)")
    assert [refusal[0] for refusal in refusals(source, TAIL)] == [1]


def test_every_concat_is_a_candidate_and_has_one_decision():
    source = model(
        """a = Concat <axis: int = 0> (x, x)
           t = Conv (x, w, b)
           e = Concat <axis: int = 1> (x, t)
           y = Concat <axis: int = 1> (x, x)""",
        outputs="float[m,4,h,w] a, float[n,8,h,w] e, float[n,8,h,w] y",
    )
    report = graphopt.fuse(source).report
    assert [fusion.node for fusion in report.fusions] == ["e"]
    assert [(r.anchor, r.condition) for r in report.refusals] == [("a", 1), ("y", 3)]


# Conv, then an activation.


def test_the_convolution_before_a_leaky_relu_is_read_elsewhere():
    source = model("c = Conv (x, w, b)  y = LeakyRelu (c)  z = Relu (c)", outputs=TWO)
    reason = "'c' is read 2 times: by LeakyRelu 'y' and by Relu 'z'"
    assert_refused(source, "ConvLeakyRelu", 1, "sole reader", reason, "c")


def test_the_convolution_before_a_leaky_relu_is_an_output():
    source = model("z = Conv (x, w, b)  y = LeakyRelu (z)", outputs=TWO)
    reason = "'z' is read 2 times: by LeakyRelu 'y' and as a graph output"
    assert_refused(source, "ConvLeakyRelu", 1, "sole reader", reason, "z")


def test_a_leaky_relu_behind_something_else_is_no_candidate():
    source = model("c = Sigmoid (x)  y = LeakyRelu (c)")
    assert refusals(source, "ConvLeakyRelu") == []


# The slope of ConvPRelu.

IMAGES = {1: "float[n,4,l] x", 2: "float[n,4,h,w] x", 3: "float[n,4,d,h,w] x"}
RESULTS = {rank: text.replace("x", "y") for rank, text in IMAGES.items()}


def prelu(shape: tuple[int, ...], rank: int = 2) -> onnx.ModelProto:
    constants = {
        "weight": random_array("weight", (4, 4) + (1,) * rank),
        "s": random_array("s", shape),
    }
    return model(
        "c = Conv (x, weight)  y = PRelu (c, s)", inputs=IMAGES[rank], outputs=RESULTS[rank], constants=constants
    )


@pytest.mark.parametrize(
    ("rank", "shape"),
    [
        (1, (4, 1)), (1, (1, 4, 1)), (1, (1,)), (1, ()),
        (2, (4, 1, 1)), (2, (1, 4, 1, 1)), (2, (1,)), (2, ()), (2, (1, 1, 1)), (2, (1, 1, 1, 1)),
        (3, (4, 1, 1, 1)), (3, (1, 4, 1, 1, 1)), (3, (1,)),
    ],
)  # fmt: skip
def test_slopes_that_fit(rank: int, shape: tuple[int, ...]):
    assert_fuses(prelu(shape, rank), "y = ai.ngine.ConvPRelu (x, weight, , s)")


@pytest.mark.parametrize(
    ("rank", "shape", "reason"),
    [
        (1, (4,), "slope 's' has shape [4], which ONNX aligns with the last axis, not with the channels"),
        (2, (4,), "slope 's' has shape [4], which ONNX aligns with the last axis, not with the channels"),
        (2, (4, 1), "slope 's' has shape [4, 1], neither one element nor one a channel ([4, 1, 1])"),
        (2, (1, 4, 4), "slope 's' has shape [1, 4, 4], neither one element nor one a channel ([4, 1, 1])"),
        (2, (4, 4, 4), "slope 's' has shape [4, 4, 4], neither one element nor one a channel ([4, 1, 1])"),
        (3, (4, 1, 1), "slope 's' has shape [4, 1, 1], neither one element nor one a channel ([4, 1, 1, 1])"),
        (3, (4,), "slope 's' has shape [4], which ONNX aligns with the last axis, not with the channels"),
    ],
)
def test_slopes_that_do_not_fit(rank: int, shape: tuple[int, ...], reason: str):
    """A plain `[C]` is one slope a column, even where the image is as wide as it has channels."""
    assert_refused(prelu(shape, rank), "ConvPRelu", 2, "channel slope", reason, "s")


def test_a_slope_of_higher_rank_than_the_image():
    source = prelu((1, 1, 4, 1, 1))
    assert graphopt.fuse(source).report.counts["ConvPRelu"] == 0


@pytest.mark.parametrize(
    ("declared", "fits"), [("float[4,1,1] s", True), ("float[1] s", True), ("float[k,1,1] s", False)]
)
def test_an_overridable_slope_needs_a_declared_shape_that_fits(declared: str, fits: bool):
    source = model(
        "c = Conv (x, w)  y = PRelu (c, s)",
        inputs=f"float[n,4,h,w] x, {declared}",
        constants={"s": random_array("s", (1,) if declared == "float[1] s" else (4, 1, 1))},
    )
    if fits:
        assert graphopt.fuse(source).report.counts["ConvPRelu"] == 1
    else:
        reason = "the shape of slope 's' is not known before the model runs"
        assert_refused(source, "ConvPRelu", 2, "channel slope", reason, "s")


@pytest.mark.parametrize(("declared", "fits"), [("float[4,1,1] s", True), ("", False)])
def test_a_slope_computed_at_run_time_needs_a_declared_shape(declared: str, fits: bool):
    source = model(
        "s = Sigmoid (r)  c = Conv (x, w)  y = PRelu (c, s)",
        inputs="float[n,4,h,w] x, float[4,1,1] r",
        value_info=declared,
    )
    if fits:
        assert_fuses(source, "s = Sigmoid (r)", "y = ai.ngine.ConvPRelu (x, w, , s)")
    else:
        reason = "the shape of slope 's' is not known before the model runs"
        assert_refused(source, "ConvPRelu", 2, "channel slope", reason, "s")


def test_a_slope_made_after_the_convolution():
    """The fused node stands where the PRelu stood, behind whatever makes the slope."""
    source = model(
        "c = Conv (x, w)  s = Sigmoid (r)  y = PRelu (c, s)",
        inputs="float[n,4,h,w] x, float[4,1,1] r",
        value_info="float[4,1,1] s",
    )
    assert_fuses(source, "s = Sigmoid (r)", "y = ai.ngine.ConvPRelu (x, w, , s)")


# The operands of MulAdd in their canonical order: a the data, b the scale.


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("shape", [(), (1,), (4, 1, 1), (1, 4, 1, 1), (1, 4, 5, 6), (6,)])
def test_a_constant_is_the_scale(shape: tuple[int, ...], first: bool):
    operands = "k, x" if first else "x, k"
    source = model(f"m = Mul ({operands})  y = Add (m, x)", constants={"k": random_array("k", shape)})
    assert_fuses(source, "y = ai.ngine.MulAdd (x, k, x)")


@pytest.mark.parametrize("operands", ["s, x", "x, s"])
@pytest.mark.parametrize("shape", ["", "[1]", "[4,1,1]", "[1,4,1,1]"])
def test_a_scalar_or_per_channel_operand_is_the_scale(operands: str, shape: str):
    source = model(f"m = Mul ({operands})  y = Add (m, x)", inputs=f"float[n,4,h,w] x, float{shape} s")
    assert nodes(fused(source)) == ["y = ai.ngine.MulAdd (x, s, x)"]


def test_of_two_data_operands_the_order_stays():
    source = model("m = Mul (q, p)  y = Add (m, p)", inputs="float[n,4,h,w] p, float[n,4,h,w] q")
    assert_fuses(source, "y = ai.ngine.MulAdd (q, p, p)")


def test_of_two_constants_the_scale_is_the_per_channel_one():
    constants = {"k": np.ones((1, 4, 5, 6), np.float32), "s": random_array("s", (4, 1, 1))}
    source = model("m = Mul (s, k)  y = Add (x, m)", constants=constants)
    assert_fuses(source, "y = ai.ngine.MulAdd (k, s, x)")
