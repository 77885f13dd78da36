"""What a call may look like, by ONNX's schemas; and the names of element types."""

import ml_dtypes
import numpy as np
import onnx
import pytest

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.dtypes import dtype_of, element_type_of, is_floating, is_narrow_float, largest, type_name, wide
from ngine_ref.numerics.signature import check_signature, float_attribute, operand, present
from ngine_ref.registry import Array, Call, TensorSpec, get

FLOAT = TensorSpec((2,), np.dtype(np.float32))
DOUBLE = TensorSpec((2,), np.dtype(np.float64))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (Call("Relu", [], {}), "Relu-14 needs its input 'X', which is absent."),
        (Call("Add", [FLOAT, None], {}), "Add-14 needs its input 'B', which is absent."),
        (Call("Relu", [FLOAT, FLOAT], {}), "Relu-14 takes at most 1 inputs, got 2."),
        (Call("Squeeze", [FLOAT, FLOAT], {}, 11), "Squeeze-11 takes at most 1 inputs, got 2."),
        (Call("Squeeze", [FLOAT, FLOAT], {}), "Squeeze takes no float as its input 'axes'; it takes int64."),
        (Call("Add", [FLOAT, DOUBLE], {}), "Add needs inputs of one element type, got float and double."),
        (
            Call("Concat", [FLOAT, FLOAT, DOUBLE], {"axis": 0}),
            "Concat needs inputs of one element type, got float and double.",
        ),
        (Call("Relu", [FLOAT], {"alpha": 1.0}), "Relu-14 has no attribute 'alpha'."),
        (Call("Concat", [FLOAT], {}), "Concat-13 needs its attribute 'axis', which is absent."),
        (Call("Concat", [], {"axis": 0}), "Concat-13 needs its input 'inputs', which is absent."),
    ],
)
def test_complaints_are_one_sentence(call: Call, sentence: str):
    with pytest.raises(OperatorError) as caught:
        check_signature(call)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "call",
    [
        Call("Clip", [FLOAT, None, FLOAT], {}),
        Call("Clip", [FLOAT], {}),
        Call("Clip", [FLOAT], {"min": 0.0}, 6),
        Call("Gemm", [FLOAT, FLOAT, None], {"alpha": 1.0}),
        Call("Concat", [FLOAT] * 40, {"axis": 0}),
        Call("BatchNormalization", [FLOAT, FLOAT, FLOAT, DOUBLE, DOUBLE], {}),
        Call("Relu", [TensorSpec((2,), np.dtype(np.int8))], {}, 7),  # the types of the newest opset hold for all
    ],
)
def test_what_onnx_allows_passes(call: Call):
    check_signature(call)


def test_reading_a_call():
    call = Call("LeakyRelu", [FLOAT], {"alpha": 0.1})
    assert operand(call, 0) is FLOAT
    assert float_attribute(call, "alpha", 0.01) == float(np.float32(0.1))
    with pytest.raises(OperatorError, match="needs its input 1"):
        operand(call, 1)
    with pytest.raises(OperatorError, match="absent now"):
        present([None], 0)


@pytest.mark.parametrize("element_type", [n for n in onnx.TensorProto.DataType.values() if n])
def test_element_types_and_dtypes_are_each_others_inverse(element_type: int):
    assert element_type_of(dtype_of(element_type)) == element_type
    assert type_name(dtype_of(element_type)) == onnx.TensorProto.DataType.Name(element_type).lower()


def test_text_has_one_element_type():
    assert {type_name(np.dtype(kind)) for kind in ("U3", "S2", object)} == {"string"}


def test_what_is_no_element_type():
    for element_type in (0, 99):
        with pytest.raises(OperatorError, match="no element type"):
            dtype_of(element_type)
    with pytest.raises(OperatorError, match="no tensors of dtype"):
        element_type_of(np.dtype("datetime64[s]"))


def test_kinds_of_floats():
    narrow = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn]
    assert all(is_narrow_float(np.dtype(each)) and wide(np.dtype(each)) == np.float32 for each in narrow)
    assert is_floating(np.dtype(np.float64))
    assert not any(is_floating(np.dtype(each)) for each in (np.int8, ml_dtypes.int4, bool, object, np.complex64))
    assert wide(np.dtype(np.float64)) == np.float64
    assert wide(np.dtype(np.int8)) == np.int8
    assert largest(np.dtype(ml_dtypes.float8_e4m3fn)) == 448
    assert largest(np.dtype(np.float32)) == np.finfo(np.float32).max


@pytest.mark.parametrize(
    ("op_type", "attributes", "sentence"),
    [
        ("Flatten", {"axis": "1"}, "Flatten: axis is '1', it must be an integer."),
        ("Flatten", {"axis": None}, "Flatten: axis is None, it must be an integer."),
        ("LeakyRelu", {"alpha": "0.1"}, "LeakyRelu: alpha is '0.1', it must be a number."),
        ("Transpose", {"perm": "10"}, "Transpose: perm is '10', it must be a list of numbers."),
        ("Transpose", {"perm": [0.0, 1.0]}, "Transpose: perm is [0.0, 1.0], it must be a list of numbers."),
        ("Transpose", {"perm": 1}, "Transpose: perm is 1, it must be a list of numbers."),
    ],
)
def test_an_attribute_of_another_kind_is_refused(op_type: str, attributes: dict[str, object], sentence: str):
    with pytest.raises(OperatorError) as caught:
        get(op_type)([np.ones((2, 3), np.float32)], attributes)
    assert str(caught.value) == sentence


def test_cast_1_names_its_element_type():
    x = np.array([1.5], np.float32)
    assert get("Cast")([x], {"to": "INT64"}, opset=5)[0].dtype == np.int64
    with pytest.raises(OperatorError, match="'LONG'"):
        get("Cast")([x], {"to": "LONG"}, opset=5)


@pytest.mark.parametrize(
    ("op_type", "x", "extra"),
    [
        ("Reshape", np.zeros((0, 3), np.float32), np.array([0, 1 << 61])),
        ("Unsqueeze", np.zeros(1, np.float32), np.arange(80)),
    ],
)
def test_shapes_beyond_numpy_are_refused(op_type: str, x: Array, extra: Array):
    with pytest.raises(ShapeError, match="would make a tensor"):
        get(op_type)([x, extra], {"allowzero": 1} if op_type == "Reshape" else {})
