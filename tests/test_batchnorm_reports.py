"""What is told of folded BatchNormalizations: by the report, by the verification and on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.batchnorm_models import CONV, NORM, normed
from support.text_models import Array, nodes

import graphopt
from graphopt.cli import main
from graphopt.errors import VerificationError
from graphopt.folding import batchnorm_folding, folded_weights


def test_values_that_mean_something_else_are_not_compared() -> None:
    source = normed(f"c = Conv (x, w, b) n = {NORM} y = Neg (n)")
    result = graphopt.fuse(source, fold_batchnorm=True)
    assert result.verification is not None
    assert [value.name for value in result.verification.values] == ["n", "y"]
    assert result.verification.onnxruntime_runs_fused


def test_nothing_to_fold_is_a_certified_fusion() -> None:
    result = graphopt.fuse(normed("c = Conv (x, w, b) y = LeakyRelu (c)"), fold_batchnorm=True)
    assert result.report.counts["ConvLeakyRelu"] == 1
    assert result.report.counts[batchnorm_folding.RULE] == 0
    assert not result.report.changes_values
    assert result.verification is None


def test_without_the_option_nothing_is_folded() -> None:
    report = graphopt.fuse(normed(CONV)).report
    assert batchnorm_folding.RULE not in report.counts
    assert not report.changes_values


def test_the_report_tells_what_was_folded() -> None:
    report = graphopt.fuse(normed(f"c = Conv (x, w, b) n = {NORM} y = Relu (n)"), fold_batchnorm=True).report
    assert report.counts[batchnorm_folding.RULE] == 1
    assert report.fusions[0].replaces == ("c", "n")
    assert (report.nodes_before, report.nodes_after) == (3, 2)
    assert report.ops_before == {"BatchNormalization": 1, "Conv": 1, "Relu": 1}


def break_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets that the mean must be scaled."""

    def wrong(scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float) -> tuple[Array, Array]:
        factor, _ = folded_weights.factor_and_shift(scale, bias, mean, variance, epsilon)
        return factor, bias - mean.astype(np.float64)

    monkeypatch.setattr(batchnorm_folding, "factor_and_shift", wrong)


def test_a_wrong_fold_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    break_the_fold(monkeypatch)
    with pytest.raises(VerificationError, match=r"the first that differs is 'n', made by Conv") as caught:
        graphopt.fuse(normed(f"c = Conv (x, w, b) n = {NORM} y = Neg (n)"), fold_batchnorm=True)
    assert caught.value.result is not None
    assert caught.value.result.verification is not None
    assert not caught.value.result.verification.ok


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(normed(f"c = Conv (x, w, b) n = {NORM} y = Relu (n)"), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["graphopt", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


ARGUMENTS = ("fuse", "m.onnx", "--rules", "extended", "--fold-batchnorm", "--report", "r.json", "--shape", "x:1,4,8,8")


def test_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, *ARGUMENTS) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 BatchNormalization was folded into weights, which changes how numbers are rounded" in shown
    assert "Proven: 1 output is the same expression of the inputs as in the folded model." in shown
    assert "Fed x of shape 1x4x8x8" in shown
    assert "values agree with onnxruntime on the original" in shown
    report = json.loads((folder / "r.json").read_text())
    assert report["changes_values"] is True
    assert report["verification"]["ok"] is True
    assert nodes(onnx.load(folder / "m.fused.onnx")) == ["y = ai.ngine.ConvRelu (x, n.weight, n.bias)"]


def test_the_command_line_shows_what_failed_and_writes_no_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_the_fold(monkeypatch)
    assert command(monkeypatch, *ARGUMENTS) == 1
    captured = capsys.readouterr()
    assert "values differ" in captured.out
    assert "gives other numbers than the original; nothing was written" in captured.err
    assert json.loads((folder / "r.json").read_text())["verification"]["ok"] is False
    assert not (folder / "m.fused.onnx").exists()


def test_explain_tells_of_each_what_became_of_it() -> None:
    source = normed(f"c = Conv (x, w, b) n = {NORM} d = Relu (n) y = BatchNormalization (d, s, o, m, v)")
    explanations, _ = graphopt.explain(source, fold_batchnorm=True)
    assert [(one.anchor, one.outcome, one.sentence) for one in explanations] == [
        ("n", "fused", "it is folded into 'c'"),
        ("y", "refused", "'d' is made by Relu 'd', not by a Conv, ConvTranspose or Gemm"),
    ]
    assert [verdict.holds for verdict in explanations[1].verdicts] == [False, None, None, None, None, None]
    ((one,), _) = graphopt.explain(source, "y", fold_batchnorm=True)
    assert one == explanations[1]


def test_explain_on_the_command_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "explain", "m.onnx", "n", "--rules", "extended", "--fold-batchnorm") == 0
    assert "n as FoldBatchNormalization: fused, it is folded into 'c'" in capsys.readouterr().out
