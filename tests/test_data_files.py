"""External data is never lost: it stays, comes along or is packed, and nobody else's is overwritten."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.external_models import VALUES, external, with_initializers, write

from graphopt.errors import ModelError, SaveError
from graphopt.model_files.model_io import LoadedModel, load, save


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def weights(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


@pytest.fixture
def source(tmp_path: Path) -> LoadedModel:
    """A model with weights in two files, one of them in a sub-folder and shared by two tensors."""
    folder = tmp_path / "source"
    write(folder, data=VALUES[::-1].tobytes(), location="deep/sub/v.bin")
    return load(
        write(
            folder,
            external("v", [100], location="deep/sub/v.bin", offset=800),
            external("w", [200], location="w.bin", length=800),
            external("again", [200], location="w.bin", length=800),
            numpy_helper.from_array(VALUES, "inline"),
            numpy_helper.from_array(VALUES[:3], "tiny"),
        )
    )


EXPECTED = {"v": VALUES[::-1][200:], "w": VALUES[:200], "again": VALUES[:200], "inline": VALUES, "tiny": VALUES[:3]}


def check_weights(path: Path) -> None:
    found = weights(path)
    assert found.keys() == EXPECTED.keys()
    for name, array in EXPECTED.items():
        np.testing.assert_array_equal(found[name], array)


def test_in_the_same_folder_the_data_is_shared(source: LoadedModel) -> None:
    assert source.path is not None
    before = files(source.path.parent)
    save(source.model, source.path.parent / "out.onnx", source=source)
    assert files(source.path.parent) == sorted([*before, "out.onnx"])
    check_weights(source.path.parent / "out.onnx")
    save(source.model, source.path, source=source)
    check_weights(source.path)


def test_the_output_never_takes_the_place_of_a_data_file(source: LoadedModel, tmp_path: Path) -> None:
    assert source.path is not None
    with pytest.raises(SaveError, match="holds the weights of"):
        save(source.model, source.path.parent / "w.bin", source=source)
    (tmp_path / "other").mkdir()
    with pytest.raises(SaveError, match="the model's own data file"):
        save(source.model, tmp_path / "other" / "w.bin", source=source)
    assert files(tmp_path / "other") == []
    check_weights(source.path)


@pytest.mark.parametrize("link", [False, True])
def test_elsewhere_the_data_comes_along(source: LoadedModel, tmp_path: Path, link: bool) -> None:
    assert source.path is not None
    other = tmp_path / "other"
    other.mkdir()
    steps: list[tuple[int, int]] = []
    for _ in range(2):  # the second time it is there already
        save(
            source.model,
            other / "out.onnx",
            source=source,
            link_weights=link,
            on_progress=lambda done, total: steps.append((done, total)),
        )
        assert files(other) == ["deep/sub/v.bin", "out.onnx", "w.bin"]
        assert (other / "w.bin").read_bytes() == VALUES.tobytes()
        assert (other / "deep/sub/v.bin").read_bytes() == VALUES[::-1].tobytes()
        assert (source.path.parent / "w.bin").samefile(other / "w.bin") == link
    if not link:  # onnx itself refuses to read data with several links
        check_weights(other / "out.onnx")
    assert load(other / "out.onnx").data_files == source.data_files
    assert steps[-1] == (2400, 2400)
    assert steps == sorted(steps)


@pytest.mark.parametrize("reason", ["another file system", "no links"])
def test_links_that_cannot_be_made(
    source: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(18, reason)

    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr("graphopt.model_files.atomic_files.os.link", fail)
    with pytest.raises(SaveError, match=f"cannot be hard-linked to .*{reason}; without linking, the weights are"):
        save(source.model, other / "out.onnx", source=source, link_weights=True)
    assert list(other.iterdir()) == []


def test_other_peoples_data_is_not_overwritten(source: LoadedModel, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "w.bin").write_bytes(b"theirs")
    with pytest.raises(SaveError, match=r"exists and is not the data file 'w\.bin'"):
        save(source.model, other / "out.onnx", source=source)
    assert files(other) == ["w.bin"]
    assert (other / "w.bin").read_bytes() == b"theirs"
    assert [path.name for path in other.iterdir()] == ["w.bin"]


def test_data_is_not_written_through_a_link_out_of_the_folder(source: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other" / "deep").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SaveError, match="a link that leaves the folder"):
        save(source.model, tmp_path / "other" / "out.onnx", source=source)
    assert files(tmp_path / "elsewhere") == []


def test_a_failed_save_takes_its_data_and_folders_away(
    source: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def replace_but_not_the_last(old: Path, new: Path) -> None:
        calls.append(new)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        os.rename(old, new)

    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr("graphopt.model_files.atomic_files.os.replace", replace_but_not_the_last)
    with pytest.raises(SaveError, match="No space left on device"):
        save(source.model, other / "out.onnx", source=source)
    assert len(calls) == 3
    assert list(other.iterdir()) == []


def test_packing_makes_one_data_file_of_everything(source: LoadedModel, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    untouched = source.model.SerializeToString()
    for _ in range(2):  # over its own older output, too
        save(source.model, other / "out.onnx", source=source, save_as_external_data=True, external_data_threshold=100)
        assert files(other) == ["out.onnx", "out.onnx.data"]
        check_weights(other / "out.onnx")
    assert source.model.SerializeToString() == untouched
    graph = onnx.load(other / "out.onnx", load_external_data=False).graph
    stored = {tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in graph.initializer}
    assert stored["w"] == stored["again"]
    assert not stored["tiny"]
    assert {place["location"] for place in stored.values() if place} == {"out.onnx.data"}
    load(other / "out.onnx")


def test_packing_respects_the_threshold_and_typed_fields(tmp_path: Path) -> None:
    half = helper.make_tensor("half", TensorProto.FLOAT16, [4], [1.0, 2.0, -3.0, 0.5])
    model = with_initializers(half, helper.make_tensor("four", TensorProto.INT4, [17], [*range(-8, 8), 0]))
    save(model, tmp_path / "m.onnx", save_as_external_data=True, external_data_threshold=8)
    packed = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert [tensor.data_location for tensor in packed.graph.initializer] == [TensorProto.EXTERNAL] * 2
    for name, array in weights(tmp_path / "m.onnx").items():
        original = next(tensor for tensor in model.graph.initializer if tensor.name == name)
        np.testing.assert_array_equal(array, numpy_helper.to_array(original))
    save(model, tmp_path / "n.onnx", save_as_external_data=True, external_data_threshold=9)
    packed = onnx.load(tmp_path / "n.onnx", load_external_data=False)
    assert [tensor.name for tensor in packed.graph.initializer if tensor.external_data] == ["four"]


def test_packing_leaves_constants_in_attributes_where_they_are(tmp_path: Path) -> None:
    model = with_initializers()
    model.graph.node.append(helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(VALUES)))
    save(model, tmp_path / "m.onnx", save_as_external_data=True)
    assert onnx.load(tmp_path / "m.onnx", load_external_data=False) == model


def test_packing_never_overwrites_another_models_data(source: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "out.onnx.data").write_bytes(b"theirs")
    with pytest.raises(SaveError, match="belongs to another model"):
        save(source.model, tmp_path / "out.onnx", source=source, save_as_external_data=True)
    assert (tmp_path / "out.onnx.data").read_bytes() == b"theirs"


def test_packing_a_packed_model_in_place(source: LoadedModel, tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    save(source.model, path, source=source, save_as_external_data=True)
    again = load(path)
    save(again.model, path, source=again, save_as_external_data=True)
    check_weights(path)


def test_packing_spares_the_data_its_source_needs(source: LoadedModel, tmp_path: Path) -> None:
    save(source.model, tmp_path / "b.onnx", source=source, save_as_external_data=True)
    a = tmp_path / "a.onnx"
    a.write_bytes((tmp_path / "b.onnx").read_bytes())
    loaded = load(a)
    with pytest.raises(SaveError, match="belongs to another model"):
        save(loaded.model, tmp_path / "b.onnx", source=loaded, save_as_external_data=True)
    check_weights(a)


def test_a_model_in_memory_expects_its_data_beside_the_output(tmp_path: Path) -> None:
    model = with_initializers(external("w", [300], location="w.bin"))
    with pytest.raises(ModelError, match=r"'w\.bin' cannot be found"):
        save(model, tmp_path / "m.onnx")
    with pytest.raises(SaveError, match="came from memory"):
        save(model, tmp_path / "m.onnx", save_as_external_data=True)
    assert files(tmp_path) == []
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    save(model, tmp_path / "m.onnx")
    np.testing.assert_array_equal(weights(tmp_path / "m.onnx")["w"], VALUES)


def sparse_model(folder: Path, gibibytes: int) -> Path:
    """A model with one tensor a gibibyte in a file that is one hole, but for four bytes a mebibyte before its end."""
    folder.mkdir()
    with (folder / "w.bin").open("wb") as file:
        file.truncate(gibibytes << 30)
        file.seek(-1 << 20, os.SEEK_END)
        file.write(b"data")
    tensors = [external(f"w{i}", [1 << 28], location="w.bin", offset=i << 30) for i in range(gibibytes)]
    path = folder / "m.onnx"
    path.write_bytes(with_initializers(*tensors).SerializeToString())
    return path


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE"), reason="needs sparse files, or 12 GiB would be written")
@pytest.mark.parametrize("pack", [False, True])
def test_holes_stay_holes(tmp_path: Path, pack: bool) -> None:
    path = sparse_model(tmp_path / "source", 2)
    if path.with_name("w.bin").stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no sparse files")
    (tmp_path / "other").mkdir()
    loaded = load(path)
    steps: list[tuple[int, int]] = []
    save(
        loaded.model,
        tmp_path / "other" / "m.onnx",
        source=loaded,
        save_as_external_data=pack,
        on_progress=lambda done, total: steps.append((done, total)),
    )
    assert steps[-1] == (2 << 30, 2 << 30)
    copied = tmp_path / "other" / ("m.onnx.data" if pack else "w.bin")
    assert copied.stat().st_size == 2 << 30
    assert copied.stat().st_blocks * 512 < 32 << 20
    with copied.open("rb") as file:
        file.seek((-1 << 20) - 4, os.SEEK_END)
        assert file.read(12) == b"\0\0\0\0data\0\0\0\0"


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE"), reason="needs sparse files, or 12 GiB would be written")
def test_twelve_gibibytes_are_not_read(tmp_path: Path) -> None:
    path = sparse_model(tmp_path / "source", 12)
    program = (
        "import sys; from graphopt.model_files.model_io import load, save; loaded = load(sys.argv[1]); "
        "save(loaded.model, sys.argv[2], source=loaded)"
    )
    # A process begins with the peak of the one that started it, so a small one stands between this and the measured.
    measure = (
        "import resource, subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    output = subprocess.run(
        [sys.executable, "-c", measure, program, path, path.with_name("out.onnx")],
        check=True,
        capture_output=True,
        text=True,
    )
    kilobyte = 1 if sys.platform == "darwin" else 1024
    assert int(output.stdout) * kilobyte < 200 << 20
    assert files(path.parent) == ["m.onnx", "out.onnx", "w.bin"]
