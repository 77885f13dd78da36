"""External data is never read, and never taken from outside the model's folder."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from support.external_models import VALUES, external, with_initializers, write

from graphopt.errors import ModelError
from graphopt.model_files.model_io import load

PLACES = {
    "whole file": {"location": "w.bin"},
    "offset and length": {"location": "w.bin", "offset": 400, "length": 800},
    "to the end": {"location": "w.bin", "offset": 400},
    "with a checksum": {"location": "w.bin", "length": 800, "checksum": "no-one-checks"},
    "with a dot": {"location": "./w.bin"},
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_right_places_pass(tmp_path: Path, place: dict[str, object]) -> None:
    loaded = load(write(tmp_path, external("w", [200], **place)))
    assert loaded.data_files == (place["location"],)
    assert loaded.model.graph.initializer[0].data_location == TensorProto.EXTERNAL
    assert not loaded.model.graph.initializer[0].raw_data


WRONG = {
    "parent": ({"location": "../w.bin"}, "outside the model's folder"),
    "parent, deep": ({"location": "a/../../w.bin"}, "outside the model's folder"),
    "parent, Windows": ({"location": "a\\..\\..\\w.bin"}, "outside the model's folder"),
    "absolute": ({"location": "/etc/passwd"}, "outside the model's folder"),
    "drive": ({"location": "C:\\w.bin"}, "outside the model's folder"),
    "drive, relative": ({"location": "C:w.bin"}, "outside the model's folder"),
    "share": ({"location": "\\\\host\\share\\w.bin"}, "outside the model's folder"),
    "Windows separators": ({"location": "sub\\w.bin"}, "separates folders by '/'"),
    "missing": ({"location": "v.bin"}, "'v.bin' cannot be found"),
    "a folder": ({"location": "sub"}, "'sub' is not a plain file"),
    "a file as a folder": ({"location": "w.bin/v"}, "cannot be found"),
    "no location": ({"offset": 0}, "without a usable file name"),
    "NUL": ({"location": "w\0.bin"}, "without a usable file name"),
    "a long name": ({"location": "w" * 5000}, "cannot be found"),
    "negative offset": ({"location": "w.bin", "offset": -4}, "the offset '-4'"),
    "negative length": ({"location": "w.bin", "length": -800}, "the length '-800'"),
    "no number": ({"location": "w.bin", "offset": "1_0"}, "the offset '1_0'"),
    "huge number": ({"location": "w.bin", "offset": "9" * 5000}, "must be a number of bytes"),
    "past the end": (
        {"location": "w.bin", "offset": 404},
        "bytes 404 to 1204 of the data file 'w.bin', which has 1200",
    ),
    "far past the end": ({"location": "w.bin", "offset": 2**63 - 8}, "which has 1200"),
    "short length": (
        {"location": "w.bin", "length": 796},
        "796 bytes of external data, and its type and dims need 800",
    ),
    "long length": ({"location": "w.bin", "length": 804}, "need 800"),
}


@pytest.mark.parametrize(("place", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_places_are_refused(tmp_path: Path, place: dict[str, object], sentence: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "w.bin").write_bytes(VALUES.tobytes())
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    path = write(folder, external("w", [200], **place))
    with pytest.raises(ModelError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert sentence in message
    assert "\n" not in message


def test_a_place_stated_twice_is_refused(tmp_path: Path) -> None:
    tensor = external("w", [200], location="w.bin")
    tensor.external_data.add(key="location", value="other.bin")
    with pytest.raises(ModelError, match="twice over"):
        load(write(tmp_path, tensor))


def test_strings_cannot_be_external(tmp_path: Path) -> None:
    tensor = external("w", [200], location="w.bin")
    tensor.data_type = TensorProto.STRING
    with pytest.raises(ModelError, match="strings"):
        load(write(tmp_path, tensor))


@pytest.mark.parametrize("where", ["attribute", "sparse", "body", "function"])
def test_no_tensor_hides(tmp_path: Path, where: str) -> None:
    tensor = external("w", [200], location="../w.bin")
    model = with_initializers()
    constant = helper.make_node("Constant", [], ["k"], value=tensor)
    if where == "attribute":
        model.graph.node.append(constant)
    elif where == "sparse":
        sparse = model.graph.sparse_initializer.add(dims=[400], values=tensor)
        sparse.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, [200], range(200)))
    elif where == "body":
        body = helper.make_graph([constant], "body", [], [onnx.ValueInfoProto(name="k")])
        model.graph.node.append(helper.make_node("If", ["x"], ["o"], then_branch=body, else_branch=body))
    else:
        function = model.functions.add(name="F", domain="my", opset_import=[helper.make_opsetid("", 17)])
        function.node.append(constant)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="outside the model's folder"):
        load(path)


def test_links_may_not_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "w.bin").write_bytes(VALUES.tobytes())
    path = write(tmp_path / "model", external("w", [300], location="link.bin"))
    (path.parent / "link.bin").symlink_to(tmp_path / "outside" / "w.bin")
    with pytest.raises(ModelError, match="a link that leaves the model's folder"):
        load(path)
    (path.parent / "link.bin").unlink()
    (path.parent / "link.bin").symlink_to("w.bin")
    assert load(path).data_files == ("link.bin",)


def test_a_linked_model_may_have_its_data_beside_the_real_file(tmp_path: Path) -> None:
    real = write(tmp_path / "blobs", external("w", [300], location="w.bin"))
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in ("m.onnx", "w.bin"):
        (cache / name).symlink_to(real.parent / name)
    assert load(cache / "m.onnx").data_files == ("w.bin",)
