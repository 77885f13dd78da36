"""Whatever is wrong with a model or a call ends in one sentence, with nothing written."""

import os
from pathlib import Path

import onnx
import pytest
from support.command_line import TEXT, Run, assert_refused, files
from support.text_models import model

# What is wrong with the model.


def write_wrong(folder: Path, kind: str) -> None:
    path = folder / "bad.onnx"
    whole = model(TEXT).SerializeToString()
    if kind == "directory":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "text":
        path.write_text("not a model\n")
    elif kind == "not ONNX":
        path.write_bytes(b"PK\x03\x04" + bytes(100))
    elif kind == "noise":
        path.write_bytes(bytes(range(256)) * 8)
    elif kind == "no opset import":
        broken = model(TEXT)
        del broken.opset_import[:]
        onnx.save(broken, path)
    elif kind == "cycle":
        onnx.save(model("p = Add (x, q)  q = Relu (p)  y = Relu (q)"), path)


@pytest.mark.parametrize("subcommand", ["fuse", "explain", "unfuse"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no such file", "bad.onnx: there is no such file"),
        ("directory", "bad.onnx is a folder"),
        ("empty", "bad.onnx is empty"),
        ("truncated", "bad.onnx"),
        ("text", "bad.onnx is a text file, not an ONNX model"),
        ("not ONNX", "bad.onnx is a zip archive"),
        ("noise", "bad.onnx cannot be read as ONNX"),
        ("no opset import", "bad.onnx: the model has no opset import"),
        ("cycle", "cycle"),
    ],
)
def test_a_wrong_model(run: Run, tmp_path: Path, kind: str, words: str, subcommand: str):
    write_wrong(tmp_path, kind)
    assert words in assert_refused(run, tmp_path, subcommand, "bad.onnx")


# What is wrong with the call.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fuse", "demo:nothing"], "There is no demo model named 'nothing'; there are realesrgan-x4plus"),
        (["fuse", "m.onnx", "--rules", "nothing"], "There is no rule set, file or folder 'nothing'"),
        (["fuse", "m.onnx", "--skip-rules", "Nothing"], "There is no rule 'Nothing' to skip; the rules are"),
        (["rules", "--rules", "nothing"], "There is no rule set, file or folder 'nothing'"),
        (["fuse", "m.onnx", "--wrong"], "No such option: --wrong"),
        (["fuse", "m.onnx", "--order", "random"], "Invalid value for '--order': 'random' is not one of"),
        (["fuse"], "Missing argument 'MODEL'"),
        (["fuse", "m.onnx", "o.onnx", "more"], "unexpected extra argument"),
        (["nothing"], "No such command 'nothing'"),
        (["explain", "m.onnx", "nonsense"], "m.onnx has no node or value 'nonsense'"),
        (["fuse", "m.onnx", "gone/o.onnx"], "gone"),
        (["fuse", "m.onnx", "m.onnx/o.onnx"], "m.onnx"),
        (["fuse", "m.onnx", "o.onnx", "--report", "gone/r.json"], "gone"),
        (["fuse", "m.onnx", "o.onnx", "--report", "m.onnx"], "m.onnx is the model's own file"),
        (["fuse", "m.onnx", "o.onnx", "--report", "./o.onnx"], "o.onnx is the model's own file"),
        (["fuse", "m.onnx", "o.onnx", "--report", "o.onnx.data"], "o.onnx.data is the model's own file"),
        (["verify", "m.onnx", "m.onnx", "--report", "m.onnx"], "m.onnx is the model's own file"),
        (["fuse", "m.onnx", "--shape", "x:1,4,4,4"], "--shape says how to verify, and nothing is"),
        (["fuse", "m.onnx", "--seed", "3"], "--seed says how to verify"),
        (["fuse", "m.onnx", "--rtol", "0"], "--rtol says how to verify"),
        (["fuse", "m.onnx", "--fast"], "--fast says how to verify"),
        (["fuse", "m.onnx", "--verify", "--shape", "x:a"], "--shape 'x:a' is not of the form NAME:1,3,64,64"),
        (["unfuse", "m.onnx", "gone/o.onnx"], "gone"),
    ],
)
def test_a_wrong_call(run: Run, tmp_path: Path, arguments: list[str], words: str):
    assert words in assert_refused(run, tmp_path, *arguments)


def test_a_broken_rule_file(run: Run, tmp_path: Path):
    rule = '<domain: "my", opset_import: ["" : 17]>\nOp (x) => (y) {\n y = Reelu (x)\n}\n'
    (tmp_path / "broken.onnxtxt").write_text(rule)
    sentence = assert_refused(run, tmp_path, "fuse", "m.onnx", "--rules", "broken.onnxtxt")
    assert sentence == "broken.onnxtxt:3: ONNX has no operator 'Reelu' in opset 17; check its spelling."


def test_an_output_that_is_a_folder(run: Run, tmp_path: Path):
    (tmp_path / "o.onnx").mkdir()
    assert "o.onnx" in assert_refused(run, tmp_path, "fuse", "m.onnx", "o.onnx")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(run: Run, tmp_path: Path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert "locked" in assert_refused(run, tmp_path, "fuse", "m.onnx", "locked/o.onnx")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that not even root may write")
def test_a_folder_that_nobody_may_write(run: Run, tmp_path: Path):
    """Found out only by writing: root may write everywhere, says the system."""
    before = files(tmp_path)
    outcome = run("fuse", "m.onnx", "/proc/o.onnx", "--quiet")
    assert (outcome.status, outcome.out) == (2, b"")
    assert outcome.words.startswith("Error: /proc/o.onnx")
    assert outcome.words.count("\n") == 1
    assert files(tmp_path) == before
