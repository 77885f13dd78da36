"""Fixtures of several files."""

import sys
from pathlib import Path

import onnx
import pytest
from support.command_line import TEXT, Outcome, Run
from support.text_models import model

from graphopt.cli import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs `graphopt ARGUMENTS` in this process, in a folder that holds a model `m.onnx`."""
    onnx.save(model(TEXT), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["graphopt", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfdbinary.readouterr()
        return Outcome(ended.value.code, captured.out, captured.err)

    return call
