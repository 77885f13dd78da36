"""The command line when all goes well: what it writes and says."""

import json
import subprocess
import sys
from pathlib import Path

import onnx
from support.command_line import TEXT, Outcome, Run, environment, files, graphopt_command
from support.text_models import assert_same_numbers, model

import graphopt
from graphopt import demo_models


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
