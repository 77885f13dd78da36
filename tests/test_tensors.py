"""Weights in every storage, and files that must not be believed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ngine_ref import InferenceSession, ModelError
from ngine_ref.loading.tensors import to_array
from ngine_ref.registry import Array

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def model_with(tensor: TensorProto) -> onnx.ModelProto:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", info[:1], info[1:], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def external(**entries: object) -> TensorProto:
    tensor = TensorProto(name="w", dims=[2, 3], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def loaded(folder: Path, tensor: TensorProto) -> Array:
    path = folder / "model.onnx"
    path.write_bytes(model_with(tensor).SerializeToString())
    result: Array = InferenceSession(path).run(["w"], {"x": np.zeros((1, 1), np.float32)})[0]
    return result


@pytest.mark.parametrize("element_type", [t for t in TensorProto.DataType.values() if t != TensorProto.UNDEFINED])
@pytest.mark.parametrize("raw", [False, True])
def test_every_element_type(element_type: int, raw: bool):
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    values = np.array([0, 1, 1, 0, 1], dtype=np.int8)
    if element_type == TensorProto.STRING:
        if raw:
            pytest.skip("ONNX stores strings in their own field only")
        array = values.astype("U1").astype(object)
        tensor = helper.make_tensor("w", element_type, [5], [text.encode() for text in array])
    else:
        array = values.astype(np.float32).astype(dtype)
        tensor = numpy_helper.from_array(array, "w")
        if not raw:
            tensor = helper.make_tensor(
                "w", element_type, [5], array if dtype.kind == "c" else array.astype(np.float32)
            )
    got = to_array(tensor, None)
    assert got.dtype == array.dtype
    assert got.tolist() == array.tolist() if dtype.hasobject else got.tobytes() == array.tobytes()
    assert not got.flags.writeable


@pytest.mark.parametrize(
    ("tensor", "sentence"),
    [
        (
            TensorProto(name="w", dims=[2, 3], data_type=1, raw_data=bytes(20)),
            "needs 24 bytes, but the model stores 20",
        ),
        (TensorProto(name="w", dims=[2], data_type=1, raw_data=bytes(12)), "needs 8 bytes, but the model stores 12"),
        (TensorProto(name="w", dims=[2], data_type=1, float_data=[1]), "needs 2 elements, but the model stores 1"),
        (TensorProto(name="w", dims=[2**40], data_type=1), "needs 1099511627776 elements, but the model stores 0"),
        (TensorProto(name="w", dims=[-1], data_type=1), r"declares the negative shape \[-1\]"),
        (TensorProto(name="w", dims=[3], data_type=TensorProto.INT4, raw_data=b"1"), "needs 2 bytes"),
        (TensorProto(name="w", dims=[1], data_type=99, raw_data=b"1"), "no element type 99"),
        (TensorProto(name="w", dims=[0], data_type=1, segment=TensorProto.Segment()), "segments"),
    ],
)
def test_what_does_not_fit_its_dims(tensor: TensorProto, sentence: str):
    with pytest.raises(ModelError, match=sentence):
        InferenceSession(model_with(tensor))


def test_sparse_initializers():
    model = model_with(TensorProto())
    del model.graph.initializer[:]
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    for indices in ([1, 5], [[0, 1], [1, 2]]):
        del model.graph.sparse_initializer[:]
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices)), [2, 3])
        model.graph.sparse_initializer.append(sparse)
        [y] = InferenceSession(model).run(None, {"x": VALUES})
        np.testing.assert_array_equal(y, VALUES + np.array([[0, 5, 0], [0, 0, 7]]))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([1, 6])))
    model.graph.sparse_initializer[0].CopyFrom(sparse)
    with pytest.raises(ModelError, match="index outside its dims"):
        InferenceSession(model)


def test_external_data_with_offset_and_in_a_sub_folder(tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(bytes(8) + VALUES.tobytes() + bytes(5))
    for entries in ({"offset": 8, "length": 24}, {"offset": 8}):
        np.testing.assert_array_equal(loaded(tmp_path, external(location="data/w.bin", **entries)), VALUES)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"location": "../w.bin"}, "outside the model's folder"),
        ({"location": "inside/../../w.bin"}, "outside the model's folder"),
        ({"location": "."}, "outside the model's folder"),
        ({}, "outside the model's folder"),
        ({"location": "missing.bin"}, "no such file"),
        ({"location": "folder"}, "no such file"),
        ({"location": "w.bin", "offset": 4}, "ends at byte 28 of 'w.bin', which has only 24 bytes"),
        ({"location": "w.bin", "offset": 2**63 - 1}, "which has only 24 bytes"),
        ({"location": "w.bin", "offset": -4}, "24 bytes at offset -4"),
        ({"location": "w.bin", "length": 20}, "needs 24 bytes, but its external data are 20 bytes"),
        ({"location": "w.bin", "length": -1}, "needs 24 bytes, but its external data are -1 bytes"),
        ({"location": "w.bin", "offset": "x"}, "no number"),
    ],
)
def test_external_data_that_must_be_refused(tmp_path: Path, entries: dict[str, object], sentence: str):
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    for place in (tmp_path, folder):
        (place / "w.bin").write_bytes(VALUES.tobytes())
    with pytest.raises(ModelError, match=sentence):
        loaded(folder, external(**entries))


def test_external_data_behind_links(tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    os.symlink(tmp_path / "w.bin", folder / "link.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        loaded(folder, external(location="link.bin"))
    with pytest.raises(ModelError, match="outside the model's folder"):
        loaded(folder, external(location=str(tmp_path / "w.bin")))
    os.link(tmp_path / "w.bin", folder / "hard.bin")
    np.testing.assert_array_equal(loaded(folder, external(location="hard.bin")), VALUES)


def test_external_data_of_a_model_in_memory(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    model = model_with(external(location="w.bin"))
    with pytest.raises(ModelError, match="say which folder its data are in"):
        InferenceSession(model)
    for source in (model, model.SerializeToString()):
        [y] = InferenceSession(source, folder=tmp_path).run(None, {"x": VALUES})
        np.testing.assert_array_equal(y, 2 * VALUES)


def test_no_weight_is_written_through_a_result():
    session = InferenceSession(model_with(numpy_helper.from_array(VALUES, "w")))
    feeds = {"x": np.zeros((1, 1), np.float32)}
    [first] = session.run(["w"], feeds)
    first[:] = 0
    np.testing.assert_array_equal(session.run(["w"], feeds)[0], VALUES)


def test_the_same_initializer_twice():
    model = model_with(numpy_helper.from_array(VALUES, "w"))
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(ModelError, match="initializer 'w' is there twice"):
        InferenceSession(model)


def test_domains_that_are_not_imported():
    model = model_with(numpy_helper.from_array(VALUES, "w"))
    model.graph.node[0].domain = "other"
    with pytest.raises(ModelError, match="uses Add of the domain 'other', which the model does not import"):
        InferenceSession(model)
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[0].domain = "ai.onnx"
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"x": VALUES})[0], 2 * VALUES)
