"""What fails on the way: certificates, Ctrl-C and closed pipes leave nothing half-written."""

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from support.command_line import TEXT, Run, assert_refused, command, environment, files
from support.text_models import model

from graphopt import fusion
from graphopt.proof.certificate import Certificate


@pytest.mark.parametrize("subcommand", ["fuse", "explain"])
def test_a_failed_certificate(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subcommand: str):
    (tmp_path / "m.fused.onnx").write_bytes(b"an older result")
    failed = Certificate(False, 1, "y", "output 'y': a planted difference")
    monkeypatch.setattr(fusion, "certify", lambda *_, **__: failed)
    sentence = assert_refused(run, tmp_path, subcommand, "m.onnx", status=1)
    assert "the fused model does not compute the same" in sentence
    assert "a planted difference" in sentence


def test_an_interruption(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fusion, "certify", interrupted)
    sentence = assert_refused(run, tmp_path, "fuse", "m.onnx", status=130)
    assert sentence == "Interrupted; nothing was written."


def test_control_c_in_a_process_of_its_own(tmp_path: Path):
    """A real signal, sent at the moment the result is being proven."""
    onnx.save(model(TEXT), tmp_path / "m.onnx")
    script = (
        "import os, signal, graphopt.fusion as f; f.certify = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # jobs in the background are started without it
    )
    script += "import sys; sys.argv = ['graphopt', 'fuse', 'm.onnx']\nfrom graphopt.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr == b"Error: Interrupted; nothing was written.\n"
    assert set(files(tmp_path)) == {"m.onnx"}


def test_control_c_while_a_module_is_imported(tmp_path: Path):
    """NumPy, interrupted while it is imported, prints a traceback and raises another error."""
    onnx.save(model(TEXT), tmp_path / "m.onnx")
    (tmp_path / "rude.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt:\n    raise ImportError('rude failed to import') from None\n"
    )
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import graphopt.fusion as f; f.certify = lambda *_, **__: __import__('rude')\n"
        "import sys; sys.argv = ['graphopt', 'fuse', 'm.onnx']; sys.path.insert(0, '.')\n"
        "from graphopt.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"Error: Interrupted; nothing was written.\n")


def test_a_terminated_process_leaves_nothing_half_written(tmp_path: Path):
    """`kill` and `timeout`, at the moment the new file is open."""
    onnx.save(model(TEXT), tmp_path / "m.onnx")
    (tmp_path / "m.fused.onnx").write_bytes(b"an older result")
    script = (
        "import os, signal, sys, graphopt.model_files.model_io as m\n"
        "m._serialized = lambda *_: os.kill(os.getpid(), signal.SIGTERM) or b''\n"
        "sys.argv = ['graphopt', 'fuse', 'm.onnx']\nfrom graphopt.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + 15, b"", b"")
    assert set(files(tmp_path)) == {"m.onnx", "m.fused.onnx"}
    assert (tmp_path / "m.fused.onnx").read_bytes() == b"an older result"


def test_a_pipe_that_is_closed(tmp_path: Path):
    """`graphopt rules | head -1`: whoever reads has gone, which is no error."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command("rules"), env=environment(), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_pipe_that_is_closed_costs_no_model(tmp_path: Path):
    """`graphopt fuse m.onnx | head -1`: the model and the report are written before the table is."""
    onnx.save(model(TEXT), tmp_path / "m.onnx")
    reader, writer = os.pipe()
    os.close(reader)
    call = command("fuse", "m.onnx", "--report", "r.json")
    done = subprocess.run(call, cwd=tmp_path, env=environment(), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert set(files(tmp_path)) == {"m.onnx", "m.fused.onnx", "r.json"}


def test_a_model_through_a_pipe_that_is_closed(tmp_path: Path):
    onnx.save(model(TEXT), tmp_path / "m.onnx")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command("fuse", "m.onnx", "-", "--quiet"),
        cwd=tmp_path,
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
