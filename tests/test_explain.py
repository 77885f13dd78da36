"""`explain`: every decision about a node, with a verdict on each condition."""

from pathlib import Path

import onnx
import pytest
from support.command_line import graphopt_command
from support.text_models import IMAGE, model

import graphopt
from graphopt import Explanation, UsageError

FIVE = ["channel axis", "two inputs", "convolution tail", "sole reader", "adjacent"]
OUTPUTS = "float[n,k,h,w] a, float[n,8,h,w] d, float[n,4,h,w] y"
SOURCE = """
    c = Conv (x, w, b)
    t = LeakyRelu (c)
    a = Concat <axis: int = 1> (x, t)
    d = Concat <axis: int = 1> (x, x)
    m = Mul (x, scale)
    y = Add (m, x)
"""


def explained(text: str, node: str, outputs: str = "float[n,k,h,w] y", **options: object) -> Explanation:
    """The one explanation of a node."""
    (found,), _ = graphopt.explain(model(text, outputs=outputs), node, **options)
    return found


def marks(found: Explanation) -> str:
    """The verdicts as a word: + holds, - does not, . was not asked."""
    return "".join({True: "+", False: "-", None: "."}[verdict.holds] for verdict in found.verdicts)


def test_a_fused_concat_passes_all_five():
    found = explained(SOURCE, "a", OUTPUTS)
    assert (found.rule, found.anchor, found.outcome) == ("ConcatFusedTail", "Concat 'a'", "fused")
    assert [(verdict.number, verdict.name) for verdict in found.verdicts] == list(enumerate(FIVE, start=1))
    assert marks(found) == "+++++"


@pytest.mark.parametrize(
    ("text", "expected", "number", "at"),
    [
        ("t = Conv (x, w)  y = Concat <axis: int = 2> (x, t)", "-++++", 1, "y"),
        ("t = Conv (x, w)  y = Concat <axis: int = 1> (t)", "+-+++", 2, "y"),
        ("t = Relu (x)  y = Concat <axis: int = 1> (x, t)", "++-..", 3, "t"),
        ("t = Conv (x, w)  y = Concat <axis: int = 1> (t, t)", "+++-+", 4, "t"),
        ("t = Relu (x)  y = Concat <axis: int = 2> (x, t)", "-+-..", 1, "y"),
        ("t = Conv (x, w)  y = Concat <axis: int = 2> (t, t)", "-++-+", 1, "y"),
    ],
)
def test_a_refused_concat_names_every_condition_that_fails(text: str, expected: str, number: int, at: str):
    found = explained(text, "y")
    assert found.outcome == "refused"
    assert marks(found) == expected
    first = next(verdict for verdict in found.verdicts if verdict.holds is False)
    assert (first.number, first.at) == (number, at)
    assert first.sentence
    assert all(verdict.sentence == "" for verdict in found.verdicts if verdict.holds is not False)


def test_adjacency_in_the_order_of_the_file():
    text = "t = Conv (x, w)  s = Relu (x)  y = Concat <axis: int = 1> (s, t)"
    assert marks(explained(text, "y", order="file")) == "++++-"
    assert marks(explained(text, "y")) == "+++++"


def test_the_sentence_for_several_rules_names_all_their_operators():
    found = explained("t = Relu (x)  y = Concat <axis: int = 1> (x, t)", "y")
    sentence = "'t' is made by Relu 't', not by Conv, ConvLeakyRelu or ConvPRelu"
    assert found.sentence == sentence
    assert found.verdicts[2].sentence == sentence


def test_a_node_may_be_asked_for_by_its_name_or_its_output():
    source = model(SOURCE, outputs=OUTPUTS)
    source.graph.node[2].name = "the join"
    by_name, _ = graphopt.explain(source, "the join")
    by_output, _ = graphopt.explain(source, "a")
    assert by_name == by_output
    assert by_name[0].anchor == "Concat 'the join'"


def test_every_candidate_once():
    found, result = graphopt.explain(model(SOURCE, outputs=OUTPUTS))
    assert [(item.rule, item.anchor, item.outcome) for item in found] == [
        ("ConvLeakyRelu", "LeakyRelu 't'", "fused"),
        ("ConcatFusedTail", "Concat 'a'", "fused"),
        ("ConcatFusedTail", "Concat 'd'", "refused"),
        ("MulAdd", "Add 'y'", "fused"),
    ]
    assert result.report.counts == {"ConvLeakyRelu": 1, "ConvPRelu": 0, "ConcatFusedTail": 1, "MulAdd": 1}


def test_what_is_no_candidate():
    found = explained("y = Relu (x)", "y")
    assert (found.outcome, found.sentence) == ("no match", "no rule is anchored at Relu")
    found = explained("s = Relu (x)  y = Add (s, x)", "y")
    assert (found.rule, found.outcome) == ("MulAdd", "no match")
    assert found.sentence == "'s' is made by Relu 's', not by Mul"


def test_a_node_inside_a_fused_one():
    found = explained(SOURCE, "c", OUTPUTS)
    assert (found.outcome, found.sentence) == ("fused", "it is part of ConvLeakyRelu 't'")


def test_an_absorbed_candidate(tmp_path: Path):
    rule = tmp_path / "rule.onnxtxt"
    rule.write_text('<domain: "ai.ngine", opset_import: ["" : 17]> TwoRelus (x) => (y) { a = Relu (x)  y = Relu (a) }')
    source = model("p = Relu (x)  q = Relu (p)  y = Relu (q)")
    found, result = graphopt.explain(source, rules=rule)
    assert [(item.anchor, item.outcome) for item in found] == [("Relu 'q'", "fused"), ("Relu 'y'", "absorbed")]
    assert found[1].sentence == "an earlier fusion took it: 'q'"
    (absorption,) = result.report.absorptions
    assert (absorption.rule, absorption.anchor, absorption.by) == ("TwoRelus", "y", "q")


def test_inside_a_body():
    source = model(
        """y = If (condition) <then_branch = yes () => (float[n,4,h,w] p) { c = Conv (x, w)  p = LeakyRelu (c) },
                               else_branch = no () => (float[n,4,h,w] q) { q = Relu (x) }>""",
        inputs=f"{IMAGE}, bool condition",
    )
    (found,), _ = graphopt.explain(source, "p")
    assert (found.outcome, found.scope) == ("fused", "then_branch of If 'y'")


def test_nonsense():
    with pytest.raises(UsageError, match="has no node or value 'nonsense'; `graphopt explain MODEL` lists candidates"):
        graphopt.explain(model(SOURCE, outputs=OUTPUTS), "nonsense")


def test_on_the_command_line(tmp_path: Path):
    onnx.save(model("t = Conv (x, w)  y = Concat <axis: int = 2> (t, t)"), tmp_path / "m.onnx")
    done = graphopt_command("explain", "m.onnx", "y", folder=tmp_path, COLUMNS="120")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.rstrip() for line in done.stdout.decode().splitlines() if line.strip()] == [
        "Concat 'y' as ConcatFusedTail: refused",
        "  1 ✗ channel axis     Concat 'y' joins along axis 2, not along axis 1",
        "  2 ✓ two inputs",
        "  3 ✓ convolution tail",
        "  4 ✗ sole reader      't' is read 2 times: by Concat 'y' (2 times)",
        "  5 ✓ adjacent",
    ]
