"""What the loader makes of a rule file."""

import numpy as np
from support.rule_texts import GOOD, rule

from graphopt.rule_files.rule_loader import load_rule_text
from graphopt.rule_files.rule_set import load_rules


def test_a_rule_is_read_as_written():
    (found,) = load_rule_text(GOOD, "my.onnxtxt")
    assert (found.domain, found.op_type, found.label, found.title) == ("my", "SigmoidRelu", "", "SigmoidRelu")
    assert (found.inputs, found.output, found.interior, found.variadic) == (("x",), "y", ("s",), None)
    assert [node.op_type for node in found.body] == ["Sigmoid", "Relu"]
    assert [(item.number, item.name) for item in found.numbered if item.number] == [(1, "sole reader")]
    assert (found.source, found.line) == ("my.onnxtxt", 3)


def test_conditions_are_numbered_by_their_place_and_named_by_their_label():
    (found,) = load_rule_text(
        rule(
            """["channel axis"] = require.axis <equals: int = 1> (y)
               = require.variadic <least: int = 1> (parts)
               ["tail"] t = Relu (x)
               = require.sole_reader (t)
               y = Concat <axis: int = @axis> (parts, t)""",
            "Op <axis> (parts, x) => (y)",
        ),
        "my.onnxtxt",
    )
    listed = [(item.number, item.name) for item in found.numbered if item.number]
    assert listed == [(1, "channel axis"), (2, "variadic"), (3, "tail"), (4, "sole reader")]
    assert found.variadic == "parts"
    assert found.anchor.references == {"axis": "axis"}


def test_a_preference_is_no_condition_and_takes_no_number():
    body = "= require.prefer_constant (b)\n m = Mul (a, b)\n = require.sole_reader (m)\n y = Add (m, c)"
    (found,) = load_rule_text(rule(body, "Op (a, b, c) => (y)"), "my.onnxtxt")
    assert [(item.number, item.name) for item in found.numbered if item.number] == [(1, "sole reader")]


def test_an_interior_value_is_guarded_even_if_the_rule_does_not_say_so():
    body = "s = Sigmoid (x)\n y = Mul (x, s)"
    (found,) = load_rule_text(rule(body), "my.onnxtxt")
    assert [(item.number, item.name, item.values) for item in found.conditions] == [(1, "interior values", ("s",))]


def test_what_a_rule_says_of_its_interior_is_not_said_again():
    (found, *_) = [rule for rule in load_rules("extended").rules if rule.op_type == "ConvSiLU"]
    assert [item.name for item in found.numbered if item.number] == ["only inside"]


def test_constants_are_float32_numbers_however_they_are_shaped():
    body = (
        "h = Constant <value = float {0.5}> ()\n q = Constant <value = float[1] {3}> ()\n"
        " f = Constant <value_float: float = 2> ()\n"
        " a = Mul (x, h)\n c = Mul (a, q)\n y = Add (c, f)"
    )
    (found,) = load_rule_text(rule(body), "my.onnxtxt")
    assert {name: float(value) for name, value in found.constants.items()} == {"h": 0.5, "q": 3.0, "f": 2.0}
    assert all(value.dtype == np.float32 and value.shape == () for value in found.constants.values())


def test_one_file_may_hold_several_rules_and_each_knows_its_line():
    first, second = load_rule_text(GOOD + GOOD.replace("SigmoidRelu", "Second"), "my.onnxtxt")
    assert (first.op_type, first.line, second.op_type, second.line) == ("SigmoidRelu", 3, "Second", 11)
