"""What is no rule is refused, naming file, line and what to write instead."""

import pytest
from support.rule_texts import GOOD, HEADER, rule

from graphopt.errors import RuleError
from graphopt.rule_files.rule_loader import load_rule_text


def error(text: str) -> tuple[int, str]:
    """The line and the words of the error that a rule file is refused with."""
    with pytest.raises(RuleError) as caught:
        load_rule_text(text, "my.onnxtxt")
    message = str(caught.value)
    assert "\n" not in message
    source, line, words = message.split(":", 2)
    assert source == "my.onnxtxt"
    return int(line), words.strip()


def test_an_error_in_the_second_rule_has_the_second_rules_line():
    line, words = error(GOOD + rule("  s = Sigmoid (x)\n  y = Relu (nothing)"))
    assert (line, words.split(";")[0]) == (9 + 4, "'nothing' is read but nothing makes it")


@pytest.mark.parametrize("text", ["", "\n \n", "# only a comment\n"])
def test_an_empty_file(text: str):
    line, words = error(text)
    assert (line, words) == (1, "The file has no rule in it; rules/README.md shows how one is written.")


@pytest.mark.parametrize(
    ("signature", "body", "line", "words"),
    [
        pytest.param("Op (x) => (y)", "s = Relu (x)", 2, "The output 'y' is never made", id="output never made"),
        pytest.param(
            "Op (x) => (y)", "y = Relu (x)\ns = Sigmoid (y)", 2, "must make the output 'y'", id="output not made last"
        ),
        pytest.param(
            "Op (x) => (y)",
            "s = Sigmoid (x)\n\ny = Add (s, z)",
            6,
            "'z' is read but nothing makes it; make it before, or add it to the inputs.",
            id="undefined value",
        ),
        pytest.param(
            "Op (x) => (y)",
            "y = Relu (s)\ns = Sigmoid (x)",
            4,
            "'s' is read but nothing makes it; make it before",
            id="value made too late",
        ),
        pytest.param(
            "Op (x) => (y)",
            "s = Sigmoid (x)\n= require.sole_reader (z)\ny = Relu (s)",
            5,
            "'z' is read but nothing makes it",
            id="condition on nothing",
        ),
        pytest.param(
            "Op (x) => (y)",
            "s = Sigmoid (x)\nt = Tanh (x)\ny = Relu (s)",
            5,
            "Nothing reads 't'; remove that statement.",
            id="dead node",
        ),
        pytest.param(
            "Op (x) => (y)",
            "h = Constant <value = float {0.5}> ()\ny = Relu (x)",
            4,
            "Nothing reads 'h'; remove that statement.",
            id="dead constant",
        ),
        pytest.param(
            "Op (x, z) => (y)",
            "y = Relu (x)",
            2,
            "The input 'z' is never read; remove it from the header.",
            id="unused input",
        ),
        pytest.param(
            "Op (x) => (y)",
            "s = Sigmoid (x)\ns = Tanh (s)\ny = Relu (s)",
            5,
            "'s' is made twice; give the second value another name.",
            id="value made twice",
        ),
        pytest.param(
            "Op (x) => (y)",
            "x = Sigmoid (x)\ny = Relu (x)",
            4,
            "'x' is made twice",
            id="input made again",
        ),
        pytest.param(
            "Op (x) => (y)",
            "h = Constant <value = float {0.5}> ()\nh = Relu (x)\ny = Add (x, h)",
            5,
            "'h' is made twice",
            id="constant made again",
        ),
        pytest.param(
            "Op (x) => (y)",
            "h = Constant <value = float {0.5}> ()\nh = Constant <value = float {1.5}> ()\ny = Add (x, h)",
            4,  # statements are found by output and operator: the first of the two
            "'h' is made twice",
            id="constant made twice",
        ),
        pytest.param("Op (x, x) => (y)", "y = Add (x, x)", 2, "names 'x' twice in its header", id="input named twice"),
        pytest.param("Op (x) => (y, z)", "y = Relu (x)\nz = Relu (x)", 2, "has 2 outputs", id="two outputs"),
        pytest.param("Op (x) => (y)", "", 2, "has no operator in its body", id="empty body"),
        pytest.param(
            "Op (x) => (y)",
            "y = Reelu (x)",
            4,
            "ONNX has no operator 'Reelu' in opset 17; check its spelling.",
            id="unknown operator",
        ),
        pytest.param(
            "Op (x) => (y)", "y = Gelu (x)", 4, "ONNX has no operator 'Gelu' in opset 17", id="operator too new"
        ),
        pytest.param(
            "Op (x) => (y)",
            "y = LeakyRelu <slope: float = 0.1> (x)",
            4,
            "LeakyRelu has no attribute 'slope' in opset 17; it has alpha.",
            id="unknown attribute",
        ),
        pytest.param(
            "Op (x) => (y)",
            "y = LeakyRelu <alpha: int = 1> (x)",
            4,
            "The attribute 'alpha' of LeakyRelu is written as int; it is of type float: write `alpha: float = ...`.",
            id="attribute of another type",
        ),
        pytest.param(
            "Op <alpha> (x) => (y)",
            "y = LeakyRelu <alpha: int = @alpha> (x)",
            4,
            "is written as int; it is of type float",
            id="reference of another type",
        ),
        pytest.param(
            "Op (x) => (y)",
            "s = Sigmoid (x)\ny = LeakyRelu <alpha: float = @slope> (s)",
            5,
            "@slope is not among the attributes of Op; write it in the header: Op <slope, ...>.",
            id="reference to nothing",
        ),
        pytest.param(
            "Op (a, b, c) => (y)", "y = Relu (a, b, c)", 4, "Relu cannot have 3 inputs", id="too many operands"
        ),
        pytest.param("Op (x) => (y)", "y = Add (x)", 4, "Add cannot have 1 inputs", id="too few operands"),
        pytest.param(
            "Op (x) => (y)",
            "s = other.Thing (x)\ny = Relu (s)",
            4,
            "The operator Thing is of domain 'other', which the header does not import; "
            'write opset_import: ["other" : 1, ...].',
            id="domain not imported",
        ),
        pytest.param(
            "Op (x) => (y)",
            "s = Sigmoid (x)\n= require.lonely (s)\ny = Relu (s)",
            5,
            "There is no condition 'lonely'; there are axis, variadic, sole_reader",
            id="unknown condition",
        ),
        pytest.param(
            "Op (x) => (y)",
            's = Sigmoid (x)\n\n["one"] = require.adjacent (s)\ny = Relu (s)',
            6,
            "The condition adjacent speaks of 2 values; write require.adjacent (first, second).",
            id="condition with too few values",
        ),
        pytest.param(
            "Op <axis> (parts) => (y)",
            "= require.variadic (parts)\ny = Concat <axis: int = @axis> (parts)",
            4,
            "The condition variadic is written with <least: int = ...>.",
            id="condition without its parameter",
        ),
        pytest.param(
            "Op (x) => (y)",
            "h = Constant <value = float16 {3}> ()\ny = Mul (x, h)",
            4,
            "The constant 'h' is a float16; constants of a rule are float32: "
            "write it as Constant <value = float {3.0}> ()",
            id="float16 literal",
        ),
        pytest.param(
            "Op (x) => (y)",
            "h = Constant <value = int64 {3}> ()\ny = Mul (x, h)",
            4,
            "The constant 'h' is a int64; constants of a rule are float32",
            id="integer literal",
        ),
        pytest.param(
            "Op (x) => (y)",
            "h = Constant <value = float[2] {3, 4}> ()\ny = Mul (x, h)",
            4,
            "The constant 'h' has 2 elements; it must be a number.",
            id="constant of two elements",
        ),
        pytest.param(
            "Op <h> (x) => (y)",
            "k = Constant <value_float: float = @h> ()\ny = Mul (x, k)",
            4,
            "constants of a rule are float32",
            id="constant by reference",
        ),
        pytest.param(
            "Op <axis> (a, b) => (y)",
            "= require.variadic <least: int = 1> (a)\n= require.variadic <least: int = 1> (b)\n"
            "y = Concat <axis: int = @axis> (a, b)",
            2,
            "a and b cannot both stand for any number of inputs; keep one.",
            id="two variadic inputs",
        ),
        pytest.param(
            "Op <axis> (a, b) => (y)",
            "= require.variadic <least: int = 1> (a)\nt = Relu (a)\ny = Concat <axis: int = @axis> (t, b)",
            2,
            "'a' must be an input that the last statement reads once, to stand for many.",
            id="variadic input of an inner node",
        ),
        pytest.param(
            "Op (x) => (y)",
            "y = If <then_branch = t () => (float[1] a) { a = Identity (x) }, "
            "else_branch = e () => (float[1] a) { a = Identity (x) }> (x)",
            4,
            "If holds a graph; a rule's body is flat.",
            id="a graph in the body",
        ),
    ],
)
def test_refused(signature: str, body: str, line: int, words: str):
    found_line, found = error(rule(body, signature))
    assert words in found
    assert found_line == line


def test_a_missing_domain():
    line, words = error('\n<opset_import: ["" : 17]>\nOp (x) => (y)\n{ y = Relu (x) }\n')
    assert (line, words) == (3, 'Op has no domain of its own; begin it with <domain: "ai.ngine", ...>.')


def test_the_default_domain_is_no_domain_of_its_own():
    line, words = error(rule("y = Relu (x)", header='<domain: "ai.onnx", opset_import: ["" : 17]>'))
    assert (line, words.split(";")[0]) == (2, "Op has no domain of its own")


def test_no_import_of_onnx():
    line, words = error(rule("y = Relu (x)", header='<domain: "my", opset_import: ["my" : 1]>'))
    assert (line, words) == (
        4,
        "The operator Relu is of domain '', which the header does not import; write opset_import: [\"\" : 1, ...].",
    )


def test_no_import_of_the_conditions():
    body = "s = Sigmoid (x)\n= require.sole_reader (s)\ny = Relu (s)"
    line, words = error(rule(body, header='<domain: "my", opset_import: ["" : 17]>'))
    assert line == 5
    assert "of domain 'require', which the header does not import" in words


@pytest.mark.parametrize("garbage", ["garbage", "Op", "}", "{ y = Relu (x) }", "<domain: "])
def test_what_stands_behind_the_last_function(garbage: str):
    """onnx's parser stops at it without a word."""
    line, words = error(f"{GOOD}\n{garbage}\n")
    assert line == GOOD.count("\n") + 2
    assert "ot an ONNX function" in words


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("s = Sigmoid x\ny = Relu (s)", 4),
        ("s = Sigmoid (x)\ny = Relu (s", 6),
        ("s = Sigmoid (x)\n\n\ny = LeakyRelu <alpha float = 1> (s)", 7),
        ("y = Relu <= (x)", 4),
    ],
)
def test_a_syntax_error_has_the_line_of_the_file(body: str, line: int):
    found_line, words = error(rule(body))
    assert found_line == line
    assert words.startswith("Not an ONNX function: ")


def test_a_text_that_is_no_function_at_all():
    line, words = error("hello\nworld\n\n")
    assert line == 2
    assert "ot an ONNX function" in words


def test_comments_and_strings_do_not_shift_lines():
    text = f'# a }} brace, and a " quote\n{HEADER}\nOp (x) => (y)\n{{ # {{\n\ny = Reelu (x)\n}}\n'
    assert error(text)[0] == 6
