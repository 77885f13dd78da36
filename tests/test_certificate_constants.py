"""The certificate and constants: every bit counts, where and how they are stored does not."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.certificate_models import (
    FUSED,
    MUL_ADD,
    assert_same,
    external,
    parse,
    reason,
    with_weight,
)

from graphopt.proof.certificate import certify


@pytest.mark.parametrize("elements", [4, 40_000])
def test_one_bit_of_a_weight(elements):
    original, rewritten = with_weight(np.ones(elements, np.float32)), with_weight(np.ones(elements, np.float32))
    data = bytearray(rewritten.graph.initializer[0].raw_data)
    data[5] ^= 1
    rewritten.graph.initializer[0].raw_data = bytes(data)
    assert "constant" in reason(original, rewritten)


@pytest.mark.parametrize("size", [2, 2000])
@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (float("nan"), -float("nan")), (1.0, 1.0 + 2**-23)], ids=["zero", "nan", "ulp"]
)
def test_bits_of_typed_fields(one, other, size):
    original, rewritten = with_weight(np.ones(size, np.float32)), with_weight(np.ones(size, np.float32))
    for model, value in ((original, one), (rewritten, other)):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.float_data.extend([value] + [1.0] * (size - 1))
    reason(original, rewritten)
    assert certify(original, onnx.load_from_string(original.SerializeToString())).ok


def test_other_dims_of_the_same_bytes():
    reason(with_weight(np.ones((2, 8), np.float32)), with_weight(np.ones((8, 2), np.float32)))


def test_other_type_of_the_same_bytes():
    reason(with_weight(np.zeros(4, np.float32)), with_weight(np.zeros(4, np.int32)))


@pytest.mark.parametrize(("key", "value"), [("location", "b.bin"), ("offset", "64"), ("length", "12")])
def test_changed_external_place(key, value):
    original, rewritten = external(), external()
    next(entry for entry in rewritten.graph.initializer[0].external_data if entry.key == key).value = value
    reason(original, rewritten)
    assert certify(original, external()).ok


def test_changed_constant():
    text = "g (float[n] a) => (float[n] y) {{ k = Constant <value: tensor = float {{{}}}> ()  y = Mul (a, k) }}"
    assert reason(parse(text.format("0.2")), parse(text.format("0.25"))) == (
        "output 'y': where the original has a constant 0.2 'k', there is a constant 0.25 after fusing"
    )


def test_overridable_initializer_is_not_a_constant():
    text = "g (float[n] a, float k = {0.5}) => (float[n] y) { y = Mul (a, k) }"
    fixed = "g (float[n] a) => (float[n] y) <float k = {0.5}> { y = Mul (a, k) }"
    assert "the inputs were a, k and are a" in reason(parse(text), parse(fixed))
    reason(parse(text), parse(text.replace("0.5", "0.25")))


@pytest.mark.parametrize(
    ("attribute", "dtype", "dims", "values"),
    [
        ("value: tensor = float[2] {1, 2}", TensorProto.FLOAT, [2], [1.0, 2.0]),
        ("value_float: float = 0.2", TensorProto.FLOAT, [], [0.2]),
        ("value_floats: floats = [0.2, 0.3]", TensorProto.FLOAT, [2], [0.2, 0.3]),
        ("value_int: int = -7", TensorProto.INT64, [], [-7]),
        ("value_ints: ints = [1, -2, 3]", TensorProto.INT64, [3], [1, -2, 3]),
        ('value_string: string = "a"', TensorProto.STRING, [], [b"a"]),
        ('value_strings: strings = ["a", "b"]', TensorProto.STRING, [2], [b"a", b"b"]),
    ],
)
def test_constant_node_and_initializer_of_the_same_content(attribute, dtype, dims, values):
    original = parse(f"g (float[n] a) => (float[n] y) {{ k = Constant <{attribute}> ()  y = my.Op (a, k) }}")
    rewritten = parse("g (float[n] a) => (float[n] y) { y = my.Op (a, other) }")
    rewritten.graph.initializer.append(helper.make_tensor("other", dtype, dims, values))
    assert_same(original, rewritten)


def test_large_constants_of_other_names():
    """Names decide quickly; where they do not prove it, contents do."""
    weight = np.arange(5000, dtype=np.float32)
    renamed = with_weight(weight)
    renamed.graph.initializer[0].name = renamed.graph.node[0].input[1] = "renamed"
    assert_same(with_weight(weight), renamed)
    node = parse("g (float[n] a) => (float[n] y) { k = Constant ()  y = my.Op (a, k) }")
    node.graph.node[0].attribute.append(helper.make_attribute("value", numpy_helper.from_array(weight)))
    assert_same(with_weight(weight), node)


OTHER_TYPES = "float32 float64 float16 bfloat16 float8_e4m3fn complex64 complex128 bool"
INTEGER_TYPES = "int4 int8 int32 int64 uint16 uint32 uint64"


@pytest.mark.parametrize("dtype", [*OTHER_TYPES.split(), *INTEGER_TYPES.split()])
def test_raw_bytes_and_typed_fields(dtype):
    """One content, stored either way; negative numbers and NaN among it where the type has them."""
    kind = helper.tensor_dtype_to_np_dtype(_data_type(dtype))
    array = np.array([-1.5, 2.5, 0.0, 3.0] if "float" in dtype or "complex" in dtype else [1, 0, 3, 2]).astype(kind)
    if dtype.startswith("int"):
        array[0] = -array[0]
    raw = numpy_helper.from_array(array)
    typed = helper.make_tensor("k", raw.data_type, array.shape, array.tolist())
    assert raw.HasField("raw_data")
    assert not typed.HasField("raw_data")
    original, rewritten = with_weight(array), with_weight(array)
    rewritten.graph.initializer[0].CopyFrom(typed)
    assert_same(original, rewritten)


def _data_type(name: str) -> int:
    names = {"float32": "FLOAT", "float64": "DOUBLE", "float8_e4m3fn": "FLOAT8E4M3FN"}
    return TensorProto.DataType.Value(names.get(name, name.upper()))


def test_an_external_offset_of_0_is_the_default():
    original, rewritten = external(), external()
    for model in (original, rewritten):
        next(entry for entry in model.graph.initializer[0].external_data if entry.key == "offset").value = "0"
    del rewritten.graph.initializer[0].external_data[1]
    assert_same(original, rewritten)


def test_nan_equals_itself():
    nans = np.array([np.nan, -np.nan, 1], np.float32)
    assert_same(with_weight(nans), with_weight(nans))
    typed = with_weight(nans)
    typed.graph.initializer[0].CopyFrom(helper.make_tensor("k", TensorProto.FLOAT, [3], nans.tolist()))
    assert_same(with_weight(nans), typed)


def test_sparse_initializers():
    text = "g (float[3] a) => (float[3] y) { y = Add (a, s) }"
    models = []
    for value in (1.0, 1.0, 2.0):
        model = parse(text)
        values = helper.make_tensor("s", TensorProto.FLOAT, [1], [value])
        indices = helper.make_tensor("", TensorProto.INT64, [1], [2])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
        models.append(model)
    assert_same(models[0], models[1])
    assert not certify(models[0], models[2]).ok


def test_ir_3_raised_to_8():
    """Below IR 4 an initializer among the inputs is a constant; raised, it is dropped from the inputs."""
    graph = "g (float[n,4,h,w] x{}) => (float[n,4,h,w] y) <float[4,4,1,1] w = {{{}}}> {{ {} }}"
    weights = ",".join(map(str, range(16)))
    original = parse(graph.format("", weights, "c = Conv (x, w)  y = LeakyRelu (c)"), ir=3)
    original.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 4, 1, 1]))
    rewritten = parse(graph.format("", weights, "y = ai.ngine.ConvLeakyRelu (x, w)"), FUSED)
    assert_same(original, rewritten)
    rewritten.graph.input.append(original.graph.input[1])
    assert not certify(original, rewritten).ok


def test_overridable_initializers_stay():
    text = "g (float[n] a, float k = {{0.5}}, float[n] c) => (float[n] y) {{ {} }}"
    original = parse(text.format("m = Mul (a, k)  y = Add (m, c)"))
    assert_same(original, parse(text.format("y = ai.ngine.MulAdd (a, k, c)"), MUL_ADD))
