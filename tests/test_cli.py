"""The command line: what it writes and says, and that whatever is wrong ends in one sentence with nothing written."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from support.command_line import command, environment, graphopt_command
from support.text_models import assert_same_numbers, model

import graphopt
from graphopt import demo_models, fusion
from graphopt.cli import main
from graphopt.proof.certificate import Certificate

TEXT = "c = Conv (x, w, b)  t = LeakyRelu (c)  y = Concat <axis: int = 1> (x, t)"


@dataclass(frozen=True)
class Outcome:
    """What a call of the command line came to."""

    status: object
    out: bytes
    err: bytes

    @property
    def words(self) -> str:
        return self.err.decode()


Run = Callable[..., Outcome]


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


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def assert_refused(run: Run, folder: Path, *arguments: str, status: int = 2) -> str:
    """The call ends with one sentence on stderr and nothing else, and every file is as it was; the sentence."""
    before = files(folder)
    outcome = run(*arguments)
    assert outcome.status == status
    assert outcome.out == b""
    assert outcome.words.startswith("Error: ")
    assert outcome.words.endswith(".\n")
    assert outcome.words.count("\n") == 1
    assert "Traceback" not in outcome.words
    assert files(folder) == before
    return outcome.words.removeprefix("Error: ").rstrip("\n")


# What goes well.


def test_fuse_writes_beside_the_model(run: Run, tmp_path: Path):
    outcome = run("fuse", "m.onnx")
    assert (outcome.status, outcome.err) == (0, b"")
    written = onnx.load(tmp_path / "m.fused.onnx")
    assert [node.op_type for node in written.graph.node] == ["ConcatFusedTail"]
    size = (tmp_path / "m.fused.onnx").stat().st_size
    said = outcome.out.decode()
    assert "3 nodes became 1, 67 % fewer." in said
    assert said.endswith(f"Written to m.fused.onnx ({size:,} bytes).\n")
    assert_same_numbers(model(TEXT), written)


def test_fuse_writes_where_it_is_told(run: Run, tmp_path: Path):
    (tmp_path / "o.onnx").write_bytes(b"old")
    assert run("fuse", "m.onnx", "o.onnx").status == 0
    assert len(onnx.load(tmp_path / "o.onnx").graph.node) == 1
    assert set(files(tmp_path)) == {"m.onnx", "o.onnx"}


def test_fuse_to_standard_output(run: Run, tmp_path: Path):
    outcome = run("fuse", "m.onnx", "-")
    assert outcome.status == 0
    assert len(onnx.load_from_string(outcome.out).graph.node) == 1
    assert "3 nodes became 1" in outcome.words
    assert set(files(tmp_path)) == {"m.onnx"}


def test_a_dry_run_writes_nothing(run: Run, tmp_path: Path):
    outcome = run("fuse", "m.onnx", "--dry-run")
    assert outcome.status == 0
    assert b"3 nodes became 1" in outcome.out
    assert b"Written" not in outcome.out
    assert set(files(tmp_path)) == {"m.onnx"}


def test_a_report_as_json(run: Run, tmp_path: Path):
    assert run("fuse", "m.onnx", "o.onnx", "--report", "r.json").status == 0
    content = json.loads((tmp_path / "r.json").read_text())
    assert (content["schema"], content["model"], content["output"]) == (1, "m.onnx", "o.onnx")
    assert content["counts"]["ConcatFusedTail"] == 1
    assert run("fuse", "m.onnx", "--dry-run", "--report", "r.json").status == 0
    assert json.loads((tmp_path / "r.json").read_text())["output"] is None


def test_quiet(run: Run, tmp_path: Path):
    assert run("fuse", "m.onnx", "--quiet") == Outcome(0, b"", b"")
    assert (tmp_path / "m.fused.onnx").exists()


def test_options_reach_the_fusion(run: Run, tmp_path: Path):
    def operators(*options: str) -> list[str]:
        assert run("fuse", "m.onnx", "o.onnx", *options).status == 0
        return [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node]

    assert operators("--skip-rules", "ConcatFusedTail") == ["ConvLeakyRelu", "Concat"]
    assert operators("--skip-rules", "ConcatFusedTail", "--skip-rules", "ConvLeakyRelu") == [
        "Conv",
        "LeakyRelu",
        "Concat",
    ]
    assert operators("--no-functions") == ["ConcatFusedTail"]
    assert not onnx.load(tmp_path / "o.onnx").functions
    shared = model(
        """t = Conv (x, w, b)  s = Sigmoid (x)  a = Concat <axis: int = 1> (s, t)
           y = Concat <axis: int = 1> (s, t, x)""",
        outputs="float[n,8,h,w] a, float[n,12,h,w] y",
    )
    onnx.save(shared, tmp_path / "m.onnx")
    assert operators() == ["Sigmoid", "ConcatFusedTail", "Concat"]
    assert operators("--order", "file") == ["Conv", "Sigmoid", "Concat", "Concat"]
    assert operators("--no-share-prefix") == ["Conv", "Sigmoid", "Concat", "Concat"]


def test_unfuse(run: Run, tmp_path: Path):
    assert run("fuse", "m.onnx", "--quiet").status == 0
    outcome = run("unfuse", "m.fused.onnx")
    assert outcome.status == 0
    assert b"1 nodes became 3" in outcome.out or b"1 node became 3" in outcome.out
    assert onnx.load(tmp_path / "m.unfused.onnx") == model(TEXT)
    outcome = run("unfuse", "m.fused.onnx", "-")
    assert onnx.load_from_string(outcome.out) == model(TEXT)


def test_explain_rules_version_and_help(run: Run):
    assert b"Concat 'y'" in run("explain", "m.onnx").out
    assert b"sole reader" in run("explain", "m.onnx", "y").out
    assert b"ConvPRelu" in run("rules").out
    assert run("--version").out.decode() == f"graphopt {graphopt.__version__}\n"
    for arguments in (["--help"], ["fuse", "-h"], ["explain", "--help"]):
        outcome = run(*arguments)
        assert (outcome.status, outcome.err) == (0, b"")
        assert b"Usage" in outcome.out


def test_alone_it_says_what_there_is(run: Run):
    """`graphopt` by itself lists the commands, in the order in which people come to need them."""
    outcome = run()
    assert (outcome.status, outcome.err) == (0, b"")
    places = [outcome.out.index(f" {name} ".encode()) for name in ("fuse", "explain", "unfuse", "verify", "check")]
    assert places == sorted(places)


def test_explain_for_a_target(run: Run):
    arguments = ("explain", "demo:span-x4", "--rules", "extended", "--skip-rules", "ConvSigmoid")
    assert b"has no kernel" not in run(*arguments).out
    assert b"the target ngine has no kernel for ConvSiLU" in run(*arguments, "--target", "ngine").out


def test_a_demo_model_goes_into_the_current_folder(run: Run, tmp_path: Path):
    assert run("fuse", "demo:span-x4", "--quiet").status == 0
    assert len(onnx.load(tmp_path / "span-x4.fused.onnx").graph.node) == 74


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


# What fails on the way.


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


def test_help_imports_nothing_heavy():
    """`--help` is instant because onnx and its friends are imported by the commands that use them."""
    script = (
        "import sys\nfrom graphopt.cli import main\nsys.argv = ['graphopt', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('heavy:', {'onnx', 'onnxruntime', 'numpy', 'networkx'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, check=False)
    assert done.stderr == b""
    assert done.stdout.splitlines()[-1] == b"heavy: set()"


class TestWeights:
    def external(self, folder: Path) -> Path:
        source = demo_models.srvgg(features=8, convolutions=2)
        folder.mkdir()
        onnx.save(source, folder / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=64)
        return folder / "net.onnx"

    def test_they_come_along_into_another_folder(self, tmp_path: Path) -> None:
        path = self.external(tmp_path / "a")
        (tmp_path / "b").mkdir()
        done = graphopt_command("fuse", path, tmp_path / "b" / "out.onnx")
        assert (done.returncode, done.stderr) == (0, b"")
        assert (tmp_path / "b" / "net.bin").read_bytes() == (tmp_path / "a" / "net.bin").read_bytes()
        onnx.load(tmp_path / "b" / "out.onnx")

    def test_a_report_is_not_written_over_them(self, tmp_path: Path) -> None:
        path = self.external(tmp_path / "a")
        before = files(path.parent)
        done = graphopt_command("fuse", path.name, "--report", "net.bin", folder=path.parent)
        assert (done.returncode, done.stderr.decode()) == (
            2,
            "Error: net.bin is the model's own file; choose another name for the report.\n",
        )
        assert files(path.parent) == before

    def test_as_links(self, tmp_path: Path) -> None:
        path = self.external(tmp_path / "a")
        (tmp_path / "b").mkdir()
        assert graphopt_command("fuse", path, tmp_path / "b" / "out.onnx", "--link-weights").returncode == 0
        assert (tmp_path / "b" / "net.bin").samefile(tmp_path / "a" / "net.bin")

    def test_into_one_file_from_a_size_on(self, tmp_path: Path) -> None:
        options = ("--save-as-external-data", "--external-data-threshold", "1000")
        done = graphopt_command("fuse", "demo:realesr-general-x4v3", tmp_path / "out.onnx", *options)
        assert done.returncode == 0
        tensors = onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer
        sizes = {tensor.data_location == onnx.TensorProto.EXTERNAL: tensor for tensor in tensors}
        assert set(sizes) == {True, False}
        assert {entry.value for entry in sizes[True].external_data if entry.key == "location"} == {"out.onnx.data"}
