"""Concat, DepthToSpace, Flatten, Identity, Reshape, Squeeze, Transpose and Unsqueeze."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.one_node import check_against_onnxruntime, check_every_use, strided
from support.strategies import arrays, shapes
from support.sweeps import sweep

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.registry import Call, TensorSpec, find, get

DTYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_)


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, np.dtype(np.float32))


@sweep(st.data(), shapes, st.sampled_from(DTYPES), examples=150)
def test_concat_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], dtype: type[np.generic]):
    assume(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for size in data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)):
        own = list(shape)
        own[axis] = size
        parts.append(data.draw(arrays(tuple(own), dtype)))
    check_against_onnxruntime("Concat", parts, {"axis": axis})


@sweep(st.data(), shapes, st.sampled_from(DTYPES), examples=80)
def test_transpose_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], dtype: type[np.generic]):
    perm = data.draw(st.one_of(st.none(), st.permutations(range(len(shape)))))
    attributes = {"perm": perm} if perm else {}
    check_against_onnxruntime("Transpose", [data.draw(arrays(shape, dtype))], attributes)


@sweep(st.data(), shapes, examples=60)
def test_flatten_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...]):
    axis = data.draw(st.integers(-len(shape), len(shape)))
    check_against_onnxruntime("Flatten", [data.draw(arrays(shape, np.float32))], {"axis": axis})


@sweep(st.data(), shapes, st.booleans(), examples=100)
def test_reshape_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], allow_zero: bool):
    wanted = list(data.draw(st.permutations(shape)))
    if wanted and 0 not in shape and data.draw(st.booleans()):
        wanted[data.draw(st.integers(0, len(wanted) - 1))] = -1
    if not allow_zero:
        wanted = [0 if axis < len(shape) and size == shape[axis] else size for axis, size in enumerate(wanted)]
        assume(all(size or shape[axis] == 0 or wanted[axis] == 0 for axis, size in enumerate(wanted)))
        assume(not (0 in shape and wanted != [0] * len(shape)))
    x = data.draw(arrays(shape, np.float32))
    check_against_onnxruntime("Reshape", [x, np.array(wanted, np.int64)], {"allowzero": int(allow_zero)})


@sweep(st.data(), shapes, st.sampled_from((11, 13, 21)), examples=100)
def test_squeeze_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], opset: int):
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    axes = data.draw(st.one_of(st.none(), st.sets(st.sampled_from(ones), min_size=1))) if ones else None
    listed = axes and [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    x = data.draw(arrays(shape, np.float32))
    if opset == 11:
        check_against_onnxruntime("Squeeze", [x], {"axes": listed} if listed else {}, opset=opset)
    else:
        check_against_onnxruntime("Squeeze", [x, np.array(listed)] if listed else [x], opset=opset)


@sweep(st.data(), shapes, st.sampled_from((11, 13, 21)), examples=80)
def test_unsqueeze_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...], opset: int):
    count = data.draw(st.integers(1, 3))
    rank = len(shape) + count
    axes = data.draw(st.lists(st.integers(0, rank - 1), min_size=count, max_size=count, unique=True))
    listed = [axis - rank if data.draw(st.booleans()) else axis for axis in axes]
    x = data.draw(arrays(shape, np.float32))
    if opset == 11:
        check_against_onnxruntime("Unsqueeze", [x], {"axes": listed}, opset=opset)
    else:
        check_against_onnxruntime("Unsqueeze", [x, np.array(listed, np.int64)], opset=opset)


@sweep(st.data(), st.integers(0, 2), st.integers(1, 3), st.integers(1, 3), st.sampled_from(("DCR", "CRD")), examples=60)
def test_depth_to_space_against_onnxruntime(data: st.DataObject, batch: int, depth: int, block: int, mode: str):
    height, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    x = data.draw(arrays((batch, depth * block**2, height, width), np.float32))
    check_against_onnxruntime("DepthToSpace", [x], {"blocksize": block, "mode": mode})


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e5m2, np.complex64, object])
def test_rare_element_types_are_moved_like_any_other(dtype):
    x = np.array([[1, 0], [1, 1]]).astype(dtype)
    check_every_use("Reshape", [x, np.array([4])], {})
    check_every_use("Transpose", [x], {})
    assert get("Transpose")([x])[0].tolist() == x.T.tolist()
    if np.dtype(dtype) not in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.float8_e5m2)):
        assert get("Concat")([x, x], {"axis": -1})[0].tolist() == np.concatenate([x, x], -1).tolist()
        check_every_use("DepthToSpace", [x.reshape(1, 4, 1, 1)], {"blocksize": 2})


def test_text_of_any_width_is_joined():
    joined = get("Concat")([np.array(["a", "bcd"]), np.array(["éé"], object)], {"axis": 0})[0]
    assert joined.dtype == object
    assert joined.tolist() == ["a", "bcd", "éé"]


def test_depth_to_space_fills_a_slice_of_a_larger_buffer():
    x = np.arange(2 * 12 * 3 * 2, dtype=np.float32).reshape(2, 12, 3, 2)
    joint = np.zeros((2, 5, 6, 4), np.float32)
    get("DepthToSpace")([x], {"blocksize": 2}, lambda shape, dtype: joint[:, 2:])
    assert_same(np.ascontiguousarray(joint[:, 2:]), get("DepthToSpace")([x], {"blocksize": 2})[0])
    assert not joint[:, :2].any()


def test_a_transpose_that_moves_no_element_is_a_view():
    operator = find("Transpose")
    assert operator is not None
    assert operator.bind(Call("Transpose", [spec(1, 3, 1, 4)], {"perm": [1, 2, 0, 3]})).view is not None
    assert operator.bind(Call("Transpose", [spec(1, 3, 1, 4)], {"perm": [0, 3, 2, 1]})).view is None


def test_shape_of_a_reshape():
    x = np.zeros((2, 3, 4), np.float32)
    for wanted, shape in (([0, -1], (2, 12)), ([-1], (24,)), ([0, 0, 2, 2], (2, 3, 2, 2)), ([24, 1, 1], (24, 1, 1))):
        assert get("Reshape")([x, np.array(wanted)])[0].shape == shape
    empty = np.zeros((0, 3), np.float32)
    assert get("Reshape")([empty, np.array([5, 0])], {"allowzero": 1})[0].shape == (5, 0)
    assert get("Reshape")([np.zeros(1, np.float32), np.zeros(0, np.int64)])[0].shape == ()
    assert get("Reshape")([x], {"shape": [4, 6]}, opset=4)[0].shape == (4, 6)


@pytest.mark.parametrize(
    ("wanted", "attributes", "reason"),
    [
        ([5, 5], {}, r"\(2, 3, 4\) into the shape \(5, 5\): that is 25 elements instead of 24"),
        ([-1, -1], {}, "at most one"),
        ([-2], {}, "sizes are counts"),
        ([5, -1], {}, "no whole number"),
        ([1, 1, 1, 0], {}, "no axis to copy"),
        ([0, -1], {"allowzero": 1}, "exclude each other"),
    ],
)
def test_reshapes_that_cannot_be(wanted: list[int], attributes: dict[str, int], reason: str):
    with pytest.raises(ShapeError, match=reason):
        get("Reshape")([np.zeros((2, 3, 4), np.float32), np.array(wanted)], attributes)


def test_axes_that_cannot_be():
    x = np.zeros((1, 2), np.float32)
    with pytest.raises(ShapeError, match=r"not the axes \(1,\) of \(1, 2\)"):
        get("Squeeze")([x, np.array([1])])
    with pytest.raises(ShapeError, match="from -2 to 1"):
        get("Squeeze")([x, np.array([2])])
    with pytest.raises(ShapeError, match="distinct axes"):
        get("Unsqueeze")([x, np.array([0, -4])])
    with pytest.raises(ShapeError, match="permutation of the 2 axes"):
        get("Transpose")([x], {"perm": [0, 0]})
    with pytest.raises(ShapeError, match="axis from -2 to 2"):
        get("Flatten")([x], {"axis": 3})


def test_scalar_axes_and_no_axes():
    x = np.zeros((3, 1), np.float32)
    assert get("Unsqueeze")([x, np.array(0)])[0].shape == (1, 3, 1)
    assert get("Squeeze")([x, np.array([], np.int64)])[0].shape == (3, 1)
    assert get("Flatten")([np.float32(1).reshape(())], {"axis": 0})[0].shape == (1, 1)


def test_the_content_of_axes_must_be_known_when_binding():
    operator = find("Unsqueeze")
    assert operator is not None
    with pytest.raises(OperatorError, match="content of its input 'axes'"):
        operator.bind(Call("Unsqueeze", [spec(2), TensorSpec((1,), np.dtype(np.int64))], {}))
    assert operator.shape_inputs == (1,)


def test_parts_that_do_not_fit_are_listed():
    with pytest.raises(ShapeError, match=r"\(2, 3\), \(3, 3\)"):
        get("Concat")([np.zeros((2, 3), np.float32), np.zeros((3, 3), np.float32)], {"axis": 1})
    with pytest.raises(ShapeError, match="rank 1, got 1"):
        get("Concat")([np.zeros(2, np.float32)], {"axis": 1})
    with pytest.raises(OperatorError, match="needs its attribute 'axis'"):
        get("Concat")([np.zeros((2, 3), np.float32)])
    assert get("Concat")([np.zeros((2, 3), np.float32)] * 2, opset=1)[0].shape == (2, 6)


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"multiple of 4, got \(1, 6, 1, 1\)"):
        get("DepthToSpace")([np.zeros((1, 6, 1, 1), np.float32)], {"blocksize": 2})
    with pytest.raises(OperatorError, match="mode DCR or CRD"):
        get("DepthToSpace")([np.zeros((1, 4, 1, 1), np.float32)], {"blocksize": 2, "mode": "RCD"})


def test_strided_makes_gaps():
    assert not strided(np.zeros((2, 2))).flags.c_contiguous
