"""Files that are no models end in one sentence, and a save leaves a complete file or everything as it was."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from random import Random

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, parser

from graphopt import demo_models
from graphopt.errors import ModelError, SaveError, UsageError
from graphopt.model_files import atomic_files, model_io
from graphopt.model_files.atomic_files import check_destination
from graphopt.model_files.model_io import load, save

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Relu(x) }'


@pytest.fixture
def model() -> ModelProto:
    return parser.parse_model(TEXT)


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith(".")
    assert "\n" not in message
    return message.removeprefix(str(path))


def test_a_file_a_demo_and_a_model_in_memory(tmp_path: Path, model: ModelProto) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    loaded = load(path)
    assert (loaded.model, loaded.path, loaded.name) == (model, path, str(path))
    in_memory = load(model)
    assert in_memory.model is model
    assert in_memory.path is None
    demo = load("demo:span-x4")
    assert (len(demo.model.graph.node), demo.path, demo.name) == (74, None, "demo:span-x4")
    with pytest.raises(UsageError, match="no demo model named 'span'"):
        load("demo:span")


POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2\n"
)
WRONG_FILES = {
    "empty": (b"", " is empty"),
    "text": ("Grüße, this is not a model.\n".encode(), " is a text file"),
    "text, cut inside a letter": ("é".encode() * 1000, " is a text file"),
    "ONNX text": (TEXT.encode(), "text"),
    "JSON": (json.dumps({"irVersion": "8"}).encode(), " is a JSON file"),
    "a web page": (b"<!DOCTYPE html><title>404</title>", "HTML"),
    "a large-file pointer": (POINTER, "git lfs pull"),
    "a PyTorch file": (b"PK\x03\x04" + bytes(40), "zip archive"),
    "an ORT file": (b"\x18\0\0\0ORTM" + bytes(40), "ORT format"),
    "noise": (b"\xff" * 50, "cut short, damaged"),
    "another protobuf message": (helper.make_opsetid("my", 1).SerializeToString(), "has no graph"),
    "a model without a graph": (ModelProto(ir_version=8).SerializeToString(), "has no graph"),
}


@pytest.mark.parametrize(("content", "sentence"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_other_files_are_told_for_what_they_are(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert sentence in refusal(path)


def test_every_cut_of_a_file_is_refused(tmp_path: Path, model: ModelProto) -> None:
    data = model.SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        refusal(path)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "missing.onnx")
    assert "is a folder" in refusal(tmp_path)
    for name in ("", "a\0b"):
        with pytest.raises(ModelError, match="is no file name"):
            load(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX only")
def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a plain file" in refusal(tmp_path / "pipe")


def test_a_file_over_two_gibibytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    assert "has 3.0 GiB" in refusal(path)


def test_bodies_deeper_than_protobuf_reads(tmp_path: Path) -> None:
    def tagged(field: int, content: bytes) -> bytes:
        return bytes([field << 3 | 2]) + varint(len(content)) + content

    def varint(number: int) -> bytes:
        return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)

    graph = b""
    for _ in range(100):  # a graph in an attribute (field 6) of a node (5) of a graph (1)
        graph = tagged(1, tagged(5, tagged(6, graph)))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08" + tagged(7, graph))
    assert "nested more deeply" in refusal(path)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_saving_replaces_the_file_and_keeps_its_mode(tmp_path: Path, model: ModelProto) -> None:
    path = tmp_path / "out.onnx"
    path.write_bytes(b"old")
    path.chmod(0o640)
    save(model, path)
    assert onnx.load(path) == model
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert leftovers(tmp_path) == ["out.onnx"]
    save(model, tmp_path / "new.onnx")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "new.onnx").stat().st_mode) == 0o666 & ~umask


def test_saving_through_a_link_replaces_what_it_points_to(tmp_path: Path, model: ModelProto) -> None:
    (tmp_path / "real.onnx").write_bytes(b"old")
    (tmp_path / "link.onnx").symlink_to("real.onnx")
    save(model, tmp_path / "link.onnx")
    assert (tmp_path / "link.onnx").is_symlink()
    assert onnx.load(tmp_path / "real.onnx") == model


def test_standard_output(model: ModelProto, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    save(model, "-")
    assert ModelProto.FromString(capfdbinary.readouterr().out) == model
    with pytest.raises(SaveError, match="no room for a data file"):
        save(model, "-", save_as_external_data=True)


def test_destinations_are_judged_before_the_work(tmp_path: Path, model: ModelProto) -> None:
    (tmp_path / "file").touch()
    for output, sentence in {
        tmp_path: "is a folder",
        tmp_path / "missing" / "m.onnx": "no folder",
        tmp_path / "file" / "m.onnx": "no folder",
        "": "is no file name",
        "a\0b": "is no file name",
        tmp_path / ("long" * 100): "cannot be written",
        "/dev/null": "not a plain file",
    }.items():
        for attempt in (lambda out=output: check_destination(out), lambda out=output: save(model, out)):
            with pytest.raises(SaveError, match=sentence):
                attempt()
    assert leftovers(tmp_path) == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SaveError, match="is not writable"):
        check_destination(tmp_path / "m.onnx")


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_save_that_is_stopped_leaves_everything_as_it_was(
    tmp_path: Path, model: ModelProto, monkeypatch: pytest.MonkeyPatch, failure: BaseException, call: str
) -> None:
    def fail(*_: object) -> None:
        raise failure

    path = tmp_path / "out.onnx"
    path.write_bytes(b"old")
    monkeypatch.setattr(atomic_files.os, call, fail)
    sentence = "cannot be written: No space left on device." if isinstance(failure, OSError) else None
    with pytest.raises((SaveError, KeyboardInterrupt), match=sentence):
        save(model, path)
    assert path.read_bytes() == b"old"
    assert leftovers(tmp_path) == ["out.onnx"]


def test_a_killed_save_leaves_the_old_file_intact(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    path.write_bytes(b"old")
    program = f"""
import os, sys, time
from onnx import parser
from graphopt import demo_models
from graphopt.model_files import atomic_files
from graphopt.model_files import model_io
def stuck(descriptor):
    print("writing", flush=True)
    time.sleep(60)
atomic_files.os.fsync = stuck
model_io.save(parser.parse_model({TEXT!r}), {str(path)!r})
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.read_bytes() == b"old"
    # Killed, it cannot tidy up; what is left has a name of its own, and the next save is not disturbed by it.
    assert len(leftovers(tmp_path)) == 2
    save(parser.parse_model(TEXT), path)
    assert onnx.load(path).graph.node[0].op_type == "Relu"


def test_more_than_two_gibibytes_need_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_io, "_LIMIT", 1000)
    model = parser.parse_model(TEXT)
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [300], bytes(1200), raw=True))
    with pytest.raises(SaveError, match="ends at 2 GiB; save its weights as external data"):
        model_io.check_save(model, tmp_path / "m.onnx")
    model_io.check_save(model, tmp_path / "m.onnx", save_as_external_data=True)


def test_a_check_before_the_work_writes_nothing(tmp_path: Path, model: ModelProto) -> None:
    path = tmp_path / "m.onnx"
    model_io.check_save(model, path)
    assert leftovers(tmp_path) == []
    path.write_bytes(b"old")
    model_io.check_save(model, path)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_end_in_a_sentence_or_pass(tmp_path: Path, seed: int) -> None:
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["o"])], "b", [], [onnx.ValueInfoProto(name="o")])
    model = demo_models.srvgg(features=2, convolutions=1)
    model.graph.node.append(helper.make_node("If", ["input"], ["y"], then_branch=body, else_branch=body))
    data = model.SerializeToString()
    random = Random(seed)
    path = tmp_path / "m.onnx"
    sentences = []
    for _ in range(250):
        damaged = bytearray(data)
        for _ in range(random.randint(1, 4)):
            damaged[random.randrange(len(data))] = random.randrange(256)
        path.write_bytes(damaged)
        try:
            load(path)
        except ModelError as error:
            sentences.append(str(error))
    assert len(sentences) > 50
    assert not any("\n" in sentence for sentence in sentences)
