"""Concat prefix sharing: done where it pays, nowhere else, and undone by unfuse."""

import re
from collections.abc import Sequence

import pytest
from onnx import ModelProto
from support.text_models import assert_fuses, assert_same_numbers, fused, model, nodes, random_array, refusals

import graphopt
from graphopt import demo_models

TAIL = "ConcatFusedTail"


def dense_block(steps: int = 3) -> str:
    """x1 = conv(x), x2 = conv([x, x1]), ... as text, every Concat in full."""
    lines, parts = ["t1 = Conv (x, w, b)"], ["x", "t1"]
    for step in range(2, steps + 2):
        lines.append(f"c{step - 1} = Concat <axis: int = 1> ({', '.join(parts)})")
        lines.append(f"t{step} = Conv (c{step - 1}, w{4 * step}, b)")
        parts.append(f"t{step}")
    return "  ".join([*lines[:-1], lines[-1].replace(f"t{steps + 1} =", "y =")])


def counts(source: ModelProto, **options: object) -> tuple[int, int]:
    """How many prefixes were shared, and how many Concats fused."""
    report = graphopt.fuse(source, **options).report
    return report.shared_prefixes, report.counts[TAIL]


def assert_left_alone(source: ModelProto, fusions: int = 0) -> None:
    """No Concat starts from another one."""
    assert counts(source) == (0, fusions)
    assert_same_numbers(source, fused(source))


@pytest.mark.parametrize(("blocks", "shared", "concats"), [(23, 207, 276), (6, 54, 72)])
def test_the_figures_of_the_dense_networks(blocks: int, shared: int, concats: int):
    source = demo_models.rrdbnet(features=4, growth=2, blocks=blocks)  # the topology alone decides
    assert counts(source) == (shared, concats)
    assert counts(source, share_prefix=False) == (0, concats // 4)


def test_a_dense_block_as_text():
    assert_fuses(
        model(dense_block()),
        "c1 = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (x, x, w, b)",
        "c2 = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (c1, c1, w8, b)",
        "c3 = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (c2, c2, w12, b)",
        "y = Conv (c3, w16, b)",
    )


def test_a_dense_block_without_sharing():
    source = model(dense_block())
    assert_fuses(
        source,
        "t1 = Conv (x, w, b)",
        "c1 = Concat <axis=1> (x, t1)",
        "t2 = Conv (c1, w8, b)",
        "c2 = Concat <axis=1> (x, t1, t2)",
        "c3 = ai.ngine.ConcatFusedTail <axis=1, prefix_count=3, producer_op=Conv> (x, t1, t2, c2, w12, b)",
        "y = Conv (c3, w16, b)",
        share_prefix=False,
    )
    reasons = [(number, at, reason) for number, _, reason, at in refusals(source, TAIL, share_prefix=False)]
    assert reasons == [
        (4, "t1", "'t1' is read 3 times: by Concat 'c1', by Concat 'c2' and by Concat 'c3'"),
        (4, "t2", "'t2' is read 2 times: by Concat 'c2' and by Concat 'c3'"),
    ]


def test_skipped_tails_share_nothing():
    source = model(dense_block())
    result = graphopt.fuse(source, skip_rules=[TAIL])
    assert result.report.shared_prefixes == 0
    assert nodes(result.model) == nodes(source)


def test_a_ladder_whose_tails_have_activations():
    source = model(re.sub(r"(t\d) = (Conv \(.*?\))", r"l\1 = \2  \1 = LeakyRelu (l\1)", dense_block()))
    assert counts(source) == (2, 3)
    assert_same_numbers(source, fused(source))


@pytest.mark.parametrize("steps", [1, 2, 25])
def test_ladders_of_any_height(steps: int):
    constants = {
        f"w{4 * step}": random_array(f"w{4 * step}", (4, 4 * step, 1, 1)) / step for step in range(2, steps + 2)
    }
    source = model(dense_block(steps), constants=constants)
    assert counts(source) == (steps - 1, steps)
    if steps > 2:
        assert_same_numbers(source, fused(source))


def concats(
    *lines: str, outputs: str = "float[n,k,h,w] y", inputs: str = "float[n,4,h,w] x, float[n,4,h,w] z"
) -> ModelProto:
    """A convolution `t` and these statements."""
    return model("t = Conv (x, w, b)  " + "  ".join(lines), inputs=inputs, outputs=outputs)


BOTH = "float[n,k,h,w] a, float[n,m,h,w] y"
SHORT = "a = Concat <axis: int = 1> (x, t)"
LONG = "y = Concat <axis: int = 1> (x, t, z)"


def test_it_pays():
    assert_fuses(
        concats(SHORT, LONG, outputs=BOTH),
        "a = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (x, x, w, b)",
        "y = Concat <axis=1> (a, z)",
    )


def test_the_longer_one_stands_first_in_the_file():
    assert_fuses(
        concats(LONG, SHORT, outputs=BOTH),
        "a = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (x, x, w, b)",
        "y = Concat <axis=1> (a, z)",
    )


def test_several_longer_ones():
    assert_fuses(
        concats(SHORT, LONG, "v = Concat <axis: int = 1> (x, t, x, z)", outputs=f"{BOTH}, float[n,l,h,w] v"),
        "a = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=Conv> (x, x, w, b)",
        "y = Concat <axis=1> (a, z)",
        "v = Concat <axis=1> (a, x, z)",
    )


@pytest.mark.parametrize(
    ("lines", "outputs", "why"),
    [
        ([SHORT, LONG.replace("(x, t, z)", "(x, t)")], BOTH, "duplicates"),
        ([SHORT, LONG.replace("(x, t, z)", "(z, t, x)")], BOTH, "another beginning"),
        ([SHORT, LONG.replace("(x, t, z)", "(z, x, t)")], BOTH, "not at the beginning"),
        ([SHORT, LONG.replace("(x, t, z)", "(x, t, t)")], BOTH, "the tail twice"),
        ([SHORT, LONG.replace("= 1", "= 2").replace("(x, t, z)", "(x, t, z)")], BOTH, "another axis"),
        ([SHORT.replace("= 1", "= 2"), LONG.replace("= 1", "= 2")], BOTH, "not the channels"),
        ([SHORT, LONG, "v = Relu (t)"], f"{BOTH}, float[n,4,h,w] v", "another reader"),
        ([SHORT, LONG], f"{BOTH}, float[n,4,h,w] t", "the tail is a graph output"),
        (["s = Sigmoid (x)", SHORT.replace("t)", "s)"), LONG.replace("t,", "s,"), "v = Relu (t)"],
         f"{BOTH}, float[n,4,h,w] v", "the tail is no convolution"),
    ],
)  # fmt: skip
def test_it_does_not_pay(lines: Sequence[str], outputs: str, why: str):
    assert_left_alone(concats(*lines, outputs=outputs))


def test_duplicates_are_refused_by_the_sole_reader():
    source = concats(SHORT, LONG.replace("(x, t, z)", "(x, t)"), outputs=BOTH)
    reason = "'t' is read 2 times: by Concat 'a' and by Concat 'y'"
    assert refusals(source, TAIL) == [(4, "sole reader", reason, "t")] * 2


def test_a_body_reads_the_tail():
    source = concats(
        SHORT,
        LONG,
        """v = If (condition) <then_branch = yes () => (float[n,4,h,w] p) { p = Relu (t) },
                               else_branch = no () => (float[n,4,h,w] q) { q = Relu (x) }>""",
        inputs="float[n,4,h,w] x, float[n,4,h,w] z, bool condition",
        outputs=f"{BOTH}, float[n,4,h,w] v",
    )
    assert_left_alone(source)


def test_a_prefix_that_is_read_elsewhere_is_no_hindrance():
    """Only the tail must be read by Concats alone; the shorter Concat itself may have any readers."""
    source = concats(SHORT, LONG, "v = Relu (a)", "u = Relu (x)", outputs=f"{BOTH}, float[n,8,h,w] v, float[n,4,h,w] u")
    assert counts(source) == (1, 1)
    assert_same_numbers(source, fused(source))


@pytest.mark.parametrize(("first", "second"), [("1", "-3"), ("-3", "1"), ("-3", "-3")])
def test_axes_written_differently(first: str, second: str):
    source = concats(SHORT.replace("= 1", f"= {first}"), LONG.replace("= 1", f"= {second}"), outputs=BOTH)
    for output in source.graph.output:
        output.type.tensor_type.shape.dim[1].dim_param = ""
    assert counts(source) == (1, 1)
    result = fused(source)
    assert nodes(result)[1] == f"y = Concat <axis={second}> (a, z)"
    assert_same_numbers(source, result)


def test_file_order_shares_only_what_it_can_fuse():
    source = concats("s = Sigmoid (x)", SHORT, LONG.replace("z)", "s)"), outputs=BOTH)
    assert counts(source, order="file") == (0, 0)
    assert counts(source, order="sink") == (1, 1)


@pytest.mark.parametrize("lines", [(SHORT, LONG), (LONG, SHORT)])
def test_unfuse_gives_back_every_concat(lines: Sequence[str]):
    source = concats(*lines, outputs=BOTH)
    assert sorted(nodes(graphopt.unfuse(fused(source)))) == sorted(nodes(source))


def test_unfuse_gives_back_a_ladder_node_for_node():
    source = model(dense_block())
    back = graphopt.unfuse(fused(source))
    assert nodes(back) == nodes(source)
    assert not any(node.metadata_props for node in back.graph.node)
