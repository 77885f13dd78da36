"""How cleanups are chosen, and how they are reported."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from support.command_line import graphopt_command
from support.text_models import model, nodes

import graphopt
from graphopt.cleanups.names import CLEANUPS
from graphopt.cleanups.same_value import SAME_VALUE
from graphopt.errors import RuleError, UsageError

BODY = "a = Identity (x)  n = Neg (x)  y = Relu (a)"


def saved(folder: Path) -> Path:
    path = folder / "m.onnx"
    onnx.save(model(BODY), path)
    return path


def test_every_cleanup_has_a_name():
    assert {name for name, _ in SAME_VALUE.values()} | {"constant", "duplicate", "dead", "initializers"} == set(
        CLEANUPS
    )


def test_a_set_chooses():
    assert graphopt.load_rules("ngine").cleanups == ()
    assert graphopt.load_rules("extended").cleanups == tuple(CLEANUPS)
    assert graphopt.load_rules(["ngine", "extended"]).cleanups == tuple(CLEANUPS)


def test_somebody_else_chooses():
    source = model(BODY)
    assert nodes(graphopt.fuse(source, rules="extended").model) == ["y = Relu (x)"]
    assert nodes(graphopt.fuse(source, rules="extended", cleanups=()).model) == nodes(source)
    assert nodes(graphopt.fuse(source, cleanups=["dead"]).model) == ["a = Identity (x)", "y = Relu (a)"]
    assert nodes(graphopt.fuse(source, cleanups="identity").model) == ["n = Neg (x)", "y = Relu (x)"]


def test_a_folder_chooses(tmp_path: Path):
    rule = Path(__file__).parents[2] / "rules" / "ngine" / "MulAdd.onnxtxt"
    (tmp_path / "MulAdd.onnxtxt").write_text(rule.read_text())
    (tmp_path / "set.toml").write_text('cleanups = ["dead", "identity"]\n')
    assert graphopt.load_rules(tmp_path).cleanups == ("identity", "dead")
    (tmp_path / "set.toml").write_text('cleanups = ["identities"]\n')
    with pytest.raises(RuleError, match=r"set\.toml:1: `cleanups` must list cleanups, of identity, dropout"):
        graphopt.load_rules(tmp_path)


def test_an_unknown_cleanup():
    with pytest.raises(UsageError, match=r"There is no cleanup 'idle'; the cleanups are identity, dropout, .*"):
        graphopt.fuse(model(BODY), cleanups=["identity", "idle"])


def test_the_report():
    report = graphopt.fuse(model(BODY), cleanups=["dead", "identity", "cast"]).report
    assert report.cleanups == {"identity": 1, "cast": 0, "dead": 1}
    assert [(item.cleanup, item.node, item.values) for item in report.cleaned] == [
        ("identity", "a", ("a",)),
        ("dead", "n", ("n",)),
    ]
    assert (report.nodes_before, report.nodes_after) == (3, 1)
    assert report.certificate.ok


def test_explain():
    source = model(BODY)
    explanations, _ = graphopt.explain(source, "n", cleanups=["dead"])
    (found,) = explanations
    assert (found.rule, found.anchor, found.outcome) == ("dead", "n", "cleaned up")
    assert found.sentence == CLEANUPS["dead"]


def test_the_command_line(tmp_path: Path):
    path = saved(tmp_path)
    done = graphopt_command(
        "fuse", path, "--cleanup", "identity,dead", "--cleanup", "cast", "--report", tmp_path / "r.json"
    )
    assert done.returncode == 0
    assert b"Cleaned up: 1 identity, 1 dead." in done.stdout
    assert b"Proven: 1 output is the same expression" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text())["cleanups"] == {"identity": 1, "cast": 0, "dead": 1}
    assert nodes(onnx.load(tmp_path / "m.fused.onnx")) == ["y = Relu (x)"]


def test_no_cleanup_on_the_command_line(tmp_path: Path):
    path = saved(tmp_path)
    done = graphopt_command("fuse", path, "--rules", "extended", "--no-cleanup")
    assert b"Nothing was fused; the model is unchanged." in done.stdout
    assert onnx.load(tmp_path / "m.fused.onnx") == onnx.load(path)
    both = graphopt_command("fuse", path, "--no-cleanup", "--cleanup", "dead")
    assert both.returncode == 2
    assert both.stderr == b"Error: --cleanup and --no-cleanup exclude each other.\n"
    unknown = graphopt_command("explain", path, "--cleanup", "idle")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith(b"Error: There is no cleanup 'idle'; the cleanups are identity, ")


def test_explain_on_the_command_line(tmp_path: Path):
    done = graphopt_command("explain", saved(tmp_path), "a", "--cleanup", "identity")
    assert done.returncode == 0
    assert b"cleaned up, An Identity is its input." in done.stdout
