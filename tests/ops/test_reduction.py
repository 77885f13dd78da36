"""ReduceMean and GlobalAveragePool."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from support.node_cases import assert_same
from support.one_node import check_against_onnxruntime
from support.strategies import arrays, filled_shapes
from support.sweeps import sweep

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.registry import Call, TensorSpec, find, get


@sweep(
    st.data(),
    filled_shapes,
    st.sampled_from((np.float32, np.float64, np.int32)),
    st.booleans(),
    st.sampled_from((11, 13, 18, 21)),
    examples=200,
)
def test_reduce_mean_against_onnxruntime(data, shape, dtype, keep, opset):
    rank = len(shape)
    axes = data.draw(st.sets(st.integers(0, rank - 1))) if rank else set()
    listed = [axis - rank if data.draw(st.booleans()) else axis for axis in axes]
    x = data.draw(arrays(shape, dtype, special=False))
    if dtype == np.int32:
        x = np.asarray(x // np.int32(2**10))  # onnxruntime sums in 32 bits
    attributes: dict[str, object] = {"keepdims": int(keep)}
    inputs = [x]
    if opset < 18 and listed:
        attributes["axes"] = listed
    elif opset >= 18:
        attributes["noop_with_empty_axes"] = data.draw(st.integers(0, 1))
        inputs += [np.array(listed, np.int64)] if data.draw(st.booleans()) or listed else []
    check_against_onnxruntime("ReduceMean", inputs, attributes, opset=opset, rtol=1e-5, atol=1e-5)


@sweep(st.data(), filled_shapes.filter(lambda shape: len(shape) > 2), examples=60)
def test_global_average_pool_against_onnxruntime(data: st.DataObject, shape: tuple[int, ...]):
    x = data.draw(arrays(shape, np.float32, special=False))
    check_against_onnxruntime("GlobalAveragePool", [x], rtol=1e-5, atol=1e-5)


def test_absent_and_empty_axes():
    x = np.float32([[1, 2], [3, 5]])
    for axes in ([], [None], [np.array([], np.int64)]):
        assert get("ReduceMean")([x, *axes])[0].tolist() == [[2.75]]
        assert get("ReduceMean")([x, *axes], {"keepdims": 0})[0].tolist() == 2.75
        assert get("ReduceMean")([x, *axes], {"noop_with_empty_axes": 1})[0].tolist() == x.tolist()
    assert get("ReduceMean")([x], {"axes": []}, opset=13)[0].tolist() == [[2.75]]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_summed_in_float32(dtype):
    x = np.full((1, 1, 300, 300), 3.0, dtype)  # the sum is beyond float16
    assert get("GlobalAveragePool")([x])[0].astype(float).item() == 3.0
    assert get("ReduceMean")([x])[0].dtype == dtype


def test_integers_are_rounded_towards_zero_and_do_not_overflow():
    assert get("ReduceMean")([np.int32([-3, -4])], {"keepdims": 0})[0] == -3
    assert get("ReduceMean")([np.int32([2**31 - 1, 2**31 - 1])], {"keepdims": 0})[0] == 2**31 - 1
    assert get("ReduceMean")([np.uint32([2**32 - 1, 2**32 - 3])], {"keepdims": 0})[0] == 2**32 - 2


def test_the_mean_of_nothing_and_of_nan():
    assert_same(
        get("ReduceMean")([np.zeros((2, 0), np.float32), np.array([1])])[0], np.full((2, 1), np.nan, np.float32)
    )
    assert get("ReduceMean")([np.zeros((0,), np.int32)])[0].tolist() == [0]
    assert get("ReduceMean")([np.zeros((0, 2), np.float32), np.array([1])])[0].shape == (0, 1)
    assert np.isnan(get("ReduceMean")([np.float32([1, np.nan])])[0]).all()


def test_a_scalar_has_no_axes():
    assert get("ReduceMean")([np.float32(2).reshape(())])[0].shape == ()


def test_axes_that_cannot_be():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match="axis from -2 to 1 at rank 2, got 2"):
        get("ReduceMean")([x, np.array([2])])
    with pytest.raises(ShapeError, match="distinct axes"):
        get("ReduceMean")([x, np.array([1, -1])])
    with pytest.raises(ShapeError, match=r"GlobalAveragePool needs .* got the shape \(3,\)"):
        get("GlobalAveragePool")([np.zeros(3, np.float32)])
    operator = find("ReduceMean")
    assert operator is not None
    specs = [TensorSpec((2, 3), np.dtype(np.float32)), TensorSpec((1,), np.dtype(np.int64))]
    with pytest.raises(OperatorError, match="content of its input 'axes'"):
        operator.bind(Call("ReduceMean", specs, {}))
