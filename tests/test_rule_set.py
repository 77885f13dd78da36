"""Where rules are found, that they fit together, the order they run in, and that a user's rule needs no Python."""

from pathlib import Path

import onnx
import pytest
from support.command_line import graphopt_command
from support.text_models import LEVELS, assert_same_numbers, feeds, model, nodes, run

import graphopt
from graphopt import RuleError, UsageError, load_rules

HEADER = '<domain: "my", opset_import: ["" : 17, "my" : 1, "require" : 1]>'


def text(name: str, body: str, inputs: str = "x", header: str = HEADER) -> str:
    return f"{header}\n{name} ({inputs}) => (y)\n{{\n{body}\n}}\n"


def write(folder: Path, **rules: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in rules.items():
        (folder / f"{name}.onnxtxt").write_text(content)
    return folder


def test_the_shipped_set():
    loaded = load_rules("ngine")
    assert loaded.operators == ("ConvLeakyRelu", "ConvPRelu", "ConcatFusedTail", "MulAdd")
    assert [rule.title for rule in loaded.rules if rule.op_type == "ConcatFusedTail"] == [
        "ConcatFusedTail[Conv]",
        "ConcatFusedTail[ConvLeakyRelu]",
        "ConcatFusedTail[ConvPRelu]",
    ]
    tail = ["channel axis", "two inputs", "convolution tail", "sole reader", "adjacent"]
    for rule in loaded.rules:
        listed = [(item.number, item.name) for item in rule.numbered if item.number]
        if rule.op_type == "ConcatFusedTail":
            assert listed == list(enumerate(tail, start=1))
        else:
            assert listed[0] == (1, "sole reader")


def test_a_file_a_folder_and_several_places(tmp_path: Path):
    folder = write(tmp_path, A=text("A", "y = Relu (x)"), B=text("B", "y = Sigmoid (x)"))
    (folder / "README.md").write_text("no rule")
    assert load_rules(folder).operators == ("A", "B")
    assert load_rules(str(folder / "B.onnxtxt")).operators == ("B",)
    both = load_rules(["ngine", folder / "A.onnxtxt"])
    assert set(both.operators) == {"A", "ConvLeakyRelu", "ConvPRelu", "MulAdd", "ConcatFusedTail"}
    assert load_rules([folder, folder / "A.onnxtxt"]).operators == ("A", "B")  # the same file once


def test_the_digest_follows_the_text(tmp_path: Path):
    one = load_rules(write(tmp_path, A=text("A", "y = Relu (x)"))).digest
    assert one == load_rules(tmp_path).digest
    assert one != load_rules(write(tmp_path, A=text("A", "y = Sigmoid (x)"))).digest


def test_skipping_an_operator_skips_what_is_built_on_it():
    loaded = load_rules(skip=["ConvLeakyRelu"])
    assert load_rules(skip="ConvLeakyRelu").operators == loaded.operators
    assert [rule.title for rule in loaded.rules] == [
        "ConvPRelu",
        "ConcatFusedTail[Conv]",
        "ConcatFusedTail[ConvPRelu]",
        "MulAdd",
    ]


def test_skipping_reaches_what_is_built_on_what_is_built_on_it(tmp_path: Path):
    folder = write(
        tmp_path,
        A=text("A", "y = Relu (x)"),
        B=text("B", "a = my.A (x)\ny = Sigmoid (a)"),
        C=text("C", "b = my.B (x)\ny = Tanh (b)"),
        D=text("D", "y = Tanh (x)"),
    )
    assert load_rules(folder, skip=["A"]).operators == ("D",)


def test_the_order_is_that_of_mentions_then_larger_bodies_then_names(tmp_path: Path):
    folder = write(
        tmp_path,
        Z=text("Z", "y = Relu (x)"),
        Base=text("Base", "y = Tanh (x)"),
        Big=text("Big", "s = Sigmoid (x)\nt = Tanh (s)\ny = Relu (t)"),
        AfterZ=text("AfterZ", "z = my.Z (x)\na = Sigmoid (z)\nb = Sigmoid (a)\ny = Sigmoid (b)"),
    )
    assert load_rules(folder).operators == ("Big", "Base", "Z", "AfterZ")


def test_rules_that_are_built_on_each_other(tmp_path: Path):
    folder = write(
        tmp_path,
        A=text("A", "b = my.B (x)\ny = Relu (b)"),
        B=text("B", "a = my.A (x)\ny = Relu (a)"),
    )
    with pytest.raises(RuleError, match=r"built on each other in a circle: (A -> B -> A|B -> A -> B)\.") as caught:
        load_rules(folder)
    assert str(caught.value).startswith(f"{folder}/")


def test_a_rule_that_is_built_on_itself(tmp_path: Path):
    with pytest.raises(RuleError, match=r"A\.onnxtxt:2: .* in a circle: A -> A\."):
        load_rules(write(tmp_path, A=text("A", "a = my.A (x)\ny = Relu (a)")))


def test_a_rule_twice(tmp_path: Path):
    folder = write(tmp_path, A=text("Same", "y = Relu (x)"), B=text("Same", "y = Tanh (x)"))
    with pytest.raises(RuleError, match=r"B\.onnxtxt:2: The rule Same is already in .*A\.onnxtxt:2; .* overload"):
        load_rules(folder)
    twice = text("Same", "y = Relu (x)")
    with pytest.raises(RuleError, match=r"A\.onnxtxt:7: The rule Same is already in .*A\.onnxtxt:2"):
        load_rules(write(tmp_path / "one", A=twice + twice))


def test_rules_of_one_name_told_apart_by_overload(tmp_path: Path):
    labelled = HEADER.replace('"my",', '"ai.ngine", overload: "{}",', 1)
    folder = write(
        tmp_path,
        A=text("Act", "s = Sigmoid (x)\ny = Relu (s)", header=labelled.format("Sigmoid"))
        + text("Act", "s = Tanh (x)\ny = Relu (s)", header=labelled.format("Tanh")),
    )
    source = model("a = Sigmoid (x)  b = Relu (a)  c = Tanh (b)  y = Relu (c)")
    fused = graphopt.fuse(source, rules=folder)
    assert fused.report.counts == {"Act": 2}
    assert nodes(fused.model) == ["b = ai.ngine.Sigmoid.Act (x)", "y = ai.ngine.Tanh.Act (b)"]
    assert_same_numbers(source, fused.model)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("a = my.Nothing (x)\ny = Relu (a)", "A is built on my.Nothing, and no rule here makes that."),
        ("b = my.B <alpha: float = 1> (x)\ny = Relu (b)", "B has no attribute 'alpha'; see the rule that makes it."),
    ],
)
def test_a_rule_built_on_what_is_not_there(tmp_path: Path, body: str, words: str):
    folder = write(tmp_path, A=text("A", body), B=text("B", "y = Tanh (x)"))
    with pytest.raises(RuleError) as caught:
        load_rules(folder)
    assert str(caught.value) == f"{folder}/A.onnxtxt:2: {words}"


def test_an_operator_of_a_domain_that_nobody_knows(tmp_path: Path):
    header = HEADER.replace('"my" : 1', '"com.other" : 1')
    with pytest.raises(RuleError, match=r"A\.onnxtxt:2: The operator Gone of domain 'com\.other' is not known to ONNX"):
        load_rules(write(tmp_path, A=text("A", "a = com.other.Gone (x)\ny = Relu (a)", header=header)))


def test_places_that_are_not_there(tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"There is no rule set, file or folder 'nothing'; the shipped sets are extended, ngine"
    ):
        load_rules("nothing")
    with pytest.raises(UsageError, match=r"has no rule file in it; a rule file's name ends in \.onnxtxt"):
        load_rules(tmp_path)
    with pytest.raises(UsageError, match=r"no rule 'Nothing' to skip; the rules are ConcatFusedTail, ConvLeakyRelu"):
        load_rules(skip=["Nothing"])


def test_a_rule_file_that_is_no_text(tmp_path: Path):
    path = tmp_path / "A.onnxtxt"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RuleError, match=r"A\.onnxtxt:1: The file is not a text in UTF-8"):
        load_rules(path)


SILU = """# SiLU of a convolution: x times Sigmoid(x), with x read twice inside.
<domain: "ai.ngine", opset_import: ["" : 17]>
ConvSiLU <auto_pad, dilations, group, kernel_shape, pads, strides> (x, w, b) => (y)
{
  c = Conv <auto_pad: string = @auto_pad, dilations: ints = @dilations, group: int = @group,
            kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides> (x, w, b)
  s = Sigmoid (c)
  y = Mul (c, s)
}
"""


def test_a_users_rule_file_is_all_it_takes(tmp_path: Path):
    """Ten lines in a folder; the command line fuses by them, and onnxruntime runs what comes out."""
    write(tmp_path / "rules", ConvSiLU=SILU)
    source = model(
        """a = Conv <pads: ints = [1,1,1,1]> (x, k3, b)
           t = Sigmoid (a)
           m = Mul (t, a)
           c = Conv (m, w, b)
           s = Sigmoid (c)
           y = Mul (c, s)"""
    )
    onnx.save(source, tmp_path / "m.onnx")
    done = graphopt_command("fuse", "m.onnx", "--rules", "rules", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    written = onnx.load(tmp_path / "m.fused.onnx")
    assert nodes(written) == [
        "m = ai.ngine.ConvSiLU <pads=[1,1,1,1]> (x, k3, b)",
        "y = ai.ngine.ConvSiLU (m, w, b)",
    ]
    # Above the first level onnxruntime has a SiLU of its own, for one order of the operands.
    assert_same_numbers(source, written, levels=LEVELS[:1])
    assert run(tmp_path / "m.fused.onnx", feeds(source))["y"].shape == (2, 4, 5, 6)
    back = graphopt.unfuse(written, rules=tmp_path / "rules")
    assert sorted(nodes(back)) == sorted(nodes(source))


def test_a_rule_may_have_a_domain_of_its_own(tmp_path: Path) -> None:
    rule = tmp_path / "SubRelu.onnxtxt"
    rule.write_text("""
<domain: "my.engine", opset_import: ["" : 17, "require" : 1]>
SubRelu (a, b) => (y)
{
  d = Sub (a, b)
  ["sole reader"] = require.sole_reader (d)
  y = Relu (d)
}
""")
    header = '<ir_version: 8, opset_import: ["" : 17]> '
    text = "g (float[4] x, float[4] w) => (float[4] y) { d = Sub (x, w) y = Relu (d) }"
    original = onnx.parser.parse_model(header + text)
    result = graphopt.fuse(original, rules=rule)
    assert [(node.domain, node.op_type) for node in result.model.graph.node] == [("my.engine", "SubRelu")]
    back = graphopt.unfuse(result.model, rules=rule)
    assert [node.op_type for node in back.graph.node] == ["Sub", "Relu"]
    assert [entry.domain for entry in back.opset_import] == [""]
    assert graphopt.fuse(result.model, rules=rule).model.SerializeToString() == result.model.SerializeToString()


# Rules of one's own, in a domain of one's own.

OWN = '<domain: "com.example", opset_import: ["" : 17, "com.example" : 1]>'
GATE = f"{OWN} Gate (x) => (y) {{ s = Sigmoid (x)  y = Relu (s) }}"
GATED = f"{OWN} TanhGate (x) => (y) {{ g = com.example.Gate (x)  y = Tanh (g) }}"


@pytest.fixture
def own_rules(tmp_path: Path) -> Path:
    return write(tmp_path / "own", Gate=GATE, TanhGate=GATED)


GATES = "s = Sigmoid (x)  g = Relu (s)  t = Tanh (g)  u = Sigmoid (t)  y = Relu (u)"


@pytest.mark.parametrize("functions", [True, False])
def test_rules_of_another_domain_fuse_and_are_undone(own_rules: Path, functions: bool):
    source = model(GATES)
    result = graphopt.fuse(source, rules=own_rules, functions=functions).model
    assert nodes(result) == ["t = com.example.TanhGate (x)", "y = com.example.Gate (t)"]
    assert graphopt.fuse(result, rules=own_rules, functions=functions).model == result
    assert graphopt.unfuse(result, rules=own_rules) == source
    if functions:
        assert_same_numbers(source, result)


@pytest.mark.parametrize("functions", [True, False])
@pytest.mark.parametrize("domain", ["com.example", "ai.ngine"])
def test_a_second_run_builds_on_what_the_first_one_made(own_rules: Path, domain: str, functions: bool):
    """Its original has fused nodes already, with functions or bare; the proof knows what they mean."""
    for path in own_rules.iterdir():
        path.write_text(path.read_text().replace("com.example", domain))
    source = model(GATES)
    first = graphopt.fuse(source, rules=own_rules, skip_rules=["TanhGate"], functions=functions).model
    assert nodes(first) == [f"g = {domain}.Gate (x)", "t = Tanh (g)", f"y = {domain}.Gate (t)"]
    second = graphopt.fuse(first, rules=own_rules, functions=functions).model
    assert nodes(second) == [f"t = {domain}.TanhGate (x)", f"y = {domain}.Gate (t)"]
    assert graphopt.unfuse(second, rules=own_rules) == source
    if functions:
        assert_same_numbers(source, second)


def test_bare_calls_of_an_engine_are_fused_further():
    bare = model(
        "t = ai.ngine.ConvLeakyRelu <alpha: float = 0.5> (x, w, b)  y = Concat <axis: int = 1> (x, t)",
        imports='"ai.ngine" : 1',
    )
    plain = model("c = Conv (x, w, b)  t = LeakyRelu <alpha: float = 0.5> (c)  y = Concat <axis: int = 1> (x, t)")
    result = graphopt.fuse(bare)
    assert result.report.counts["ConcatFusedTail"] == 1
    assert_same_numbers(plain, result.model)
