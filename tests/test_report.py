"""Reports: the keys of the JSON are a contract, the tables fit their width, and pipes get no colour."""

import io
import json
import sys
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto
from rich.console import Console
from support.text_models import model

import graphopt
from graphopt import demo_models
from graphopt.cli import main
from graphopt.report import demo_table, explanation_tables, fusion_tables, rules_table, to_json

SOURCE = """
    c = Conv (x, w, b)
    t = LeakyRelu (c)
    a = Concat <axis: int = 1> (x, t)
    d = Concat <axis: int = 2> (x, x)
    v = Concat <axis: int = 2> (x, x)
    y = Concat <axis: int = 1> (t2, t2)
    t2 = Conv (x, w, b)
"""
OUTPUTS = "float[n,8,h,w] a, float[n,4,k,w] d, float[n,4,k,w] v, float[n,8,h,w] y"


def example() -> ModelProto:
    return model(SOURCE, outputs=OUTPUTS)


def rendered(renderable: object, width: int) -> list[str]:
    """The lines of a table as a terminal of that width without colour shows them."""
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(renderable)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_json_keys():
    content = json.loads(to_json(graphopt.fuse(example()).report, output="out.onnx"))
    assert content["schema"] == 1
    assert set(content) >= {
        "schema", "model", "output", "nodes", "ops", "counts", "shared_prefixes", "fusions", "refusals",
        "certificate", "verification",
    }  # fmt: skip
    assert (content["model"], content["output"], content["verification"]) == ("g", "out.onnx", None)
    assert content["nodes"] == {"before": 7, "after": 5}
    assert content["ops"]["before"] == {"Concat": 4, "Conv": 2, "LeakyRelu": 1}
    assert content["ops"]["after"] == {"Concat": 3, "ConcatFusedTail": 1, "Conv": 1}
    assert content["counts"] == {"ConvLeakyRelu": 1, "ConvPRelu": 0, "ConcatFusedTail": 1, "MulAdd": 0}
    assert content["shared_prefixes"] == 0
    assert content["certificate"] == {"ok": True, "outputs": 4}
    for fusion in content["fusions"]:
        assert set(fusion) >= {"rule", "node", "replaces", "inputs", "outputs"}
    assert content["fusions"][1] == {
        "rule": "ConcatFusedTail",
        "node": "a",
        "replaces": ["t", "a"],
        "inputs": ["x", "x", "w", "b"],
        "outputs": ["a"],
        "scope": "",
    }
    for refusal in content["refusals"]:
        assert set(refusal) >= {"rule", "anchor", "condition", "name", "reason", "at"}
    assert content["refusals"][0] == {
        "rule": "ConcatFusedTail",
        "anchor": "d",
        "condition": 1,
        "name": "channel axis",
        "reason": "Concat 'd' joins along axis 2, not along axis 1",
        "at": "d",
        "scope": "",
    }


def test_counts_add_up():
    source = demo_models.rrdbnet(features=4, growth=2, blocks=1)
    report = graphopt.fuse(source).report
    assert sum(report.ops_before.values()) == report.nodes_before == len(source.graph.node)
    assert sum(report.ops_after.values()) == report.nodes_after
    assert len(report.fusions) == sum(report.counts.values())


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits(width: int):
    lines = rendered(fusion_tables(graphopt.fuse(demo_models.rrdbnet(features=4, growth=2)).report, width), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "1,093 nodes became 446, 59 % fewer." in text
    assert "207 Concats start from a shorter one that was already there." in text
    assert "Proven: 1 output is the same expression of the inputs as before." in text
    assert [word for word in lines[0].split() if word == "Fused"] == ["Fused"]


def test_the_table_says_why_not():
    lines = rendered(fusion_tables(graphopt.fuse(example()).report, 80), 80)
    start = next(index for index, line in enumerate(lines) if line.startswith("ConcatFusedTail"))
    assert lines[start].split() == ["ConcatFusedTail", "1", "3", "2", "×", "channel", "axis", "(1)"]
    assert lines[start + 1].split() == ["1", "×", "sole", "reader", "(4)"]
    assert "3 candidates were refused; `graphopt explain` with these options says why." in lines


def test_numbers_stand_right_and_all_nodes_last():
    report = graphopt.fuse(demo_models.rrdbnet(features=4, growth=2)).report
    lines = rendered(fusion_tables(report, 80), 80)
    start = next(index for index, line in enumerate(lines) if line.startswith("Operator"))
    rows = [line for line in lines[start:] if line and not line.startswith(" ")]
    table = rows[: next(i for i, line in enumerate(rows) if line.startswith("all nodes")) + 1]
    assert table[-1].split() == ["all", "nodes", "1,093", "446"]
    assert len({len(line) for line in table}) == 1  # right-aligned, so every row ends in the same column
    before = [int(line.split()[-2].replace(",", "")) for line in table[1:-1]]
    assert sum(before) == 1093
    assert before == sorted(before, reverse=True)


def test_nothing_fused():
    lines = rendered(fusion_tables(graphopt.fuse(model("y = Relu (x)")).report, 80), 80)
    assert "Nothing was fused; the model is unchanged." in lines


def test_bare_calls_are_said():
    report = graphopt.fuse(example(), functions=False).report
    lines = rendered(fusion_tables(report, 120), 120)
    assert "The fused operators have no bodies in the model: it runs only where kernels exist for them." in lines
    assert json.loads(to_json(report))["functions"] is False


@pytest.mark.parametrize("width", [80, 120])
def test_other_tables_fit(width: int):
    explanations, result = graphopt.explain(example())
    for table in (
        explanation_tables(explanations, detailed=True),
        explanation_tables(explanations, detailed=False),
        rules_table(graphopt.load_rules().rules),
        demo_table(dict.fromkeys(demo_models.DEMO_MODELS, result.report)),
    ):
        assert max(map(len, rendered(table, width))) <= width


def test_the_rules_with_their_conditions():
    lines = rendered(rules_table(graphopt.load_rules().rules), 200)
    text = "\n".join(lines)
    assert "c is read exactly once in the entire graph" in text
    assert "5 adjacent: tail is made immediately before y" in text
    assert "Conv → LeakyRelu" in text
    assert "3 convolution tail: tail is made by ConvLeakyRelu or ConvPRelu" in text
    assert sum(line.startswith("ConcatFusedTail") for line in lines) == 2, "of Conv, and of any producer"


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("arguments", [("fuse", "m.onnx", "--dry-run"), ("explain", "m.onnx"), ("rules",)])
def test_no_colour_where_nobody_looks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    columns: str,
):
    onnx.save(example(), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "argv", ["graphopt", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = "".join(capfd.readouterr())
    assert ended.value.code == 0
    assert printed
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= int(columns)
