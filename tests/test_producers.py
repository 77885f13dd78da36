"""A rule for any producer: a convolution of one's own takes part in ConcatFusedTail without a change to it."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from support.text_models import assert_fuses, assert_same_numbers, model, nodes, refusals

import graphopt
from graphopt import RuleError, load_rules

HEADER = '<domain: "ai.ngine", opset_import: ["" : 17, "require" : 1]{label}>'
SINUS = """
{header}
ConvSin <pads> ({inputs}) => (y)
{{
  = require.is_producer (y)
  c = Conv <pads: ints = @pads> ({inputs})
  ["sole reader"] = require.sole_reader (c)
  y = {activation} (c)
}}
"""


def producer(activation: str = "Sin", inputs: str = "x, w", label: str = "") -> str:
    header = HEADER.format(label=f', overload: "{label}"' if label else "")
    return SINUS.format(header=header, inputs=inputs, activation=activation)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ConvSin.onnxtxt").write_text(producer())
    return tmp_path


TAIL = "c = Conv <pads: ints = [1,1,1,1]> (x, k3)  t = Sin (c)  y = Concat <axis: int = 1> (x, t)"


def test_a_new_producer_is_one_file_its_own(folder: Path):
    source = model(TAIL)
    result = assert_fuses(
        source,
        "y = ai.ngine.ConcatFusedTail <axis=1, pads=[1,1,1,1], prefix_count=1, producer_op=ConvSin> (x, x, k3)",
        rules=["ngine", folder],
    )
    body = result.functions[0]
    assert [node.op_type for node in body.node] == ["Conv", "Sin", "Concat"]
    assert graphopt.unfuse(result, rules=["ngine", folder]) == source
    assert graphopt.fuse(result, rules=["ngine", folder]).model == result


def test_the_reason_names_every_producer(folder: Path):
    source = model("t = Relu (x)  y = Concat <axis: int = 1> (x, t)")
    ((number, _, reason, _),) = refusals(source, "ConcatFusedTail", rules=["ngine", folder])
    assert number == 3
    assert reason == "'t' is made by Relu 't', not by Conv, ConvLeakyRelu, ConvPRelu or ConvSin"


def test_it_shares_prefixes_like_any_other(folder: Path):
    source = model(
        """s = Conv (x, w)  t = Sin (s)  a = Concat <axis: int = 1> (x, t)
           u = Conv (a, w8)  v = Sin (u)  y = Concat <axis: int = 1> (x, t, v)"""
    )
    report = graphopt.fuse(source, rules=["ngine", folder]).report
    assert (report.shared_prefixes, report.counts["ConcatFusedTail"]) == (1, 2)


def test_without_the_mark_it_is_none(folder: Path):
    path = folder / "ConvSin.onnxtxt"
    path.write_text(path.read_text().replace("= require.is_producer (y)", ""))
    result = graphopt.fuse(model(TAIL), rules=["ngine", folder])
    assert (result.report.counts["ConvSin"], result.report.counts["ConcatFusedTail"]) == (1, 0)


def test_the_mark_is_no_condition_and_takes_no_number(folder: Path):
    (rule,) = load_rules(folder).rules
    assert [(item.number, item.name) for item in rule.numbered if item.number] == [(1, "sole reader")]


def test_a_producer_of_several_rules_makes_a_tail_of_each_signature(folder: Path):
    """Same inputs and attributes: one rule for both. Other inputs: one more, told apart by the producer's label."""
    (folder / "ConvSin.onnxtxt").write_text(producer(label="Sin") + producer("Cos", label="Cos"))
    titles = [rule.title for rule in load_rules(["ngine", folder]).rules if "ConvSin" in rule.title]
    assert titles == ["ConvSin[Sin]", "ConvSin[Cos]", "ConcatFusedTail[ConvSin]"]
    (folder / "ConvSin.onnxtxt").write_text(producer(label="bare") + producer("Cos", "x, w, bias", label="biased"))
    titles = [rule.title for rule in load_rules(["ngine", folder]).rules if rule.title.startswith("Concat")]
    assert titles[-2:] == ["ConcatFusedTail[ConvSin.bare]", "ConcatFusedTail[ConvSin.biased]"]


def test_tails_of_one_producer_with_several_bodies(folder: Path):
    (folder / "ConvSin.onnxtxt").write_text(producer(label="Sin") + producer("Cos", label="Cos"))
    source = model(
        """c = Conv (x, w)  t = Sin (c)  y = Concat <axis: int = 1> (x, t)
           d = Conv (x, w)  u = Cos (d)  z = Concat <axis: int = 1> (x, u)""",
        outputs="float[n,8,h,w] y, float[n,8,h,w] z",
    )
    result = graphopt.fuse(source, rules=["ngine", folder])
    assert result.report.counts["ConcatFusedTail"] == 2
    domains = [node.domain for node in result.model.graph.node]
    assert domains == ["ai.ngine.ConvSin.Sin", "ai.ngine.ConvSin.Cos"]
    assert [function.domain for function in result.model.functions] == domains
    assert_same_numbers(source, result.model)
    assert graphopt.unfuse(result.model, rules=["ngine", folder]) == source


TEMPLATE = """
<domain: "ai.ngine", opset_import: ["" : 17, "require" : 1]>
Doubled (scale, producer) => (z)
{
  t = require.any_producer (producer)
  ["sole reader"] = require.sole_reader (t)
  z = Mul (t, scale)
}
"""


def test_a_template_of_ones_own(folder: Path):
    (folder / "Doubled.onnxtxt").write_text(TEMPLATE)
    source = model("c = Conv (x, w)  t = Sin (c)  y = Mul (scale, t)")
    result = graphopt.fuse(source, rules=folder).model
    (call,) = result.graph.node
    assert (call.op_type, list(call.input)) == ("Doubled", ["scale", "x", "w"])
    assert {a.name: helper.get_attribute_value(a) for a in call.attribute} == {"producer_op": b"ConvSin"}
    assert_same_numbers(source, result)
    assert sorted(nodes(graphopt.unfuse(result, rules=folder))) == sorted(nodes(source))


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("(scale, producer)", "(w, producer)", 3, "'w' is a name of Doubled and of its producer ConvSin ("),
        (
            "t = require.any_producer (producer)",
            "t = require.any_producer (scale, producer)",
            5,
            "must have a statement",
        ),
        ("t = require.any_producer (producer)", "t = require.any_producer (other)", 5, "must have a statement"),
        ("z = Mul (t, scale)", "z = Mul (t, nothing)", 7, "'nothing' is read but nothing makes it"),
        ("=> (z)", "=> (q)", 3, "The output 'q' is never made"),
    ],
)
def test_a_broken_template(folder: Path, old: str, new: str, line: int, words: str):
    assert old in TEMPLATE
    (folder / "Doubled.onnxtxt").write_text(TEMPLATE.replace(old, new))
    with pytest.raises(RuleError) as caught:
        load_rules(folder)
    assert str(caught.value).startswith(f"{folder}/Doubled.onnxtxt:{line}: ")
    assert words in str(caught.value)


def test_constants_of_a_producer_are_found_again_in_a_tail(folder: Path):
    """The body of the tail holds the model's own constant, of its own dtype and shape."""
    text = producer().replace("y = Sin (c)", "h = Constant <value = float {0.5}> ()  m = Mul (c, h)  y = Sin (m)")
    (folder / "ConvSin.onnxtxt").write_text(text)
    source = model(
        "c = Conv (x, w)  m = Mul (c, half)  t = Sin (m)  y = Concat <axis: int = 1> (x, t)",
        constants={"half": np.full((1, 1, 1), 0.5, np.float32)},
    )
    result = graphopt.fuse(source, rules=["ngine", folder])
    assert result.report.counts["ConcatFusedTail"] == 1
    assert_same_numbers(source, result.model)
    assert graphopt.fuse(result.model, rules=["ngine", folder]).model == result.model
    assert graphopt.unfuse(result.model, rules=["ngine", folder]) == source
