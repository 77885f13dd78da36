"""Conv against ONNX's own cases, onnxruntime, and the specification written down in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.convolution_oracle import convolution
from support.convolution_strategies import ConvolutionCase, convolutions
from support.node_cases import NodeCase, assert_same, check_node_case, node_cases
from support.one_node import check_every_use, onnxruntime_outputs, strided

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.blocked_convolution import columns_of
from ngine_ref.numerics.columns import Geometry
from ngine_ref.numerics.packed_weights import packed_weights
from ngine_ref.numerics.row_buffer import suits
from ngine_ref.numerics.sliding_windows import Windows, place_windows
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, aligned_bytes, find, get
from ngine_ref.worker_pool import WorkerPool


@pytest.mark.parametrize("case", node_cases("Conv"), ids=lambda case: case.name)
def test_onnx_case(case: NodeCase):
    check_node_case(case)
    check_every_use("Conv", case.inputs, case.attributes, opset=case.opset)


def check_against_onnxruntime(case: ConvolutionCase) -> None:
    actual = get("Conv")(case.inputs, case.attributes)[0]
    dilated = any(number > 1 for number in case.attributes.get("dilations", []))
    if dilated and case.attributes.get("auto_pad", "NOTSET").startswith("SAME"):
        expected = convolution(*case.inputs, *[None] * (3 - len(case.inputs)), case.attributes).astype(np.float32)
    else:
        (expected,) = onnxruntime_outputs("Conv", case.inputs, case.attributes, 17)
    assert_same(actual, expected, rtol=1e-5, atol=case.rounding)


@given(convolutions())
@settings(max_examples=150, deadline=None)
def test_random_convolution(case: ConvolutionCase):
    """onnxruntime refuses SAME padding with dilations: there the specification is the oracle."""
    check_against_onnxruntime(case)


@pytest.mark.long
@given(convolutions())
@settings(max_examples=2000, deadline=None)
def test_many_random_convolutions(case: ConvolutionCase):
    check_against_onnxruntime(case)


@given(convolutions())
@settings(max_examples=60, deadline=None)
def test_the_bits_do_not_depend_on_where_data_lies(case: ConvolutionCase):
    check_every_use("Conv", case.inputs, case.attributes)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 1.6e-2), (np.float64, 1e-12)]
)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_other_floats(dtype: Any, tolerance: float, data: st.DataObject):
    """Narrow floats are summed up in float32 and rounded once: half a unit in the last place, and a little more."""
    case = data.draw(convolutions(dtype=dtype))
    (actual,) = get("Conv")(case.inputs, case.attributes)
    expected = convolution(*case.inputs, *[None] * (3 - len(case.inputs)), case.attributes)
    assert actual.dtype == dtype
    # What float32 sums lose where terms cancel is small beside the terms, not beside the result.
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance, atol=max(1e-2 * tolerance, 1e-12))


def bind(op_type: str, inputs: list[Array], attributes: dict[str, Any], *, constant_weights: bool = True) -> Kernel:
    operator = find(op_type)
    assert operator is not None
    values = [None, inputs[1] if constant_weights else None, None]
    specs = [TensorSpec(array.shape, array.dtype, value) for array, value in zip(inputs, values, strict=False)]
    return operator.bind(Call(op_type, specs, attributes))


LARGE = {  # shapes that make several blocks, in a row buffer and with all columns in one matrix
    "row buffer": ((2, 40, 70, 90), (48, 40, 3, 3), {"pads": [1, 1, 1, 1]}),
    "row buffer, strided": ((1, 40, 70, 130), (12, 20, 3, 5), {"strides": [2, 3], "pads": [0, 1, 2, 3], "group": 2}),
    "row buffer, dilated": ((1, 24, 50, 90), (16, 24, 2, 3), {"strides": [1, 2], "dilations": [1, 3]}),
    "row buffer, strides beyond the kernel": ((1, 40, 70, 150), (12, 40, 2, 2), {"strides": [3, 4]}),
    "row buffer, wider than a block": ((1, 16, 20, 530), (24, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    "row buffer, products of unequal size": ((1, 300, 20, 45), (89, 300, 3, 3), {"pads": [1, 2, 1, 2]}),
    "row buffer, groups of a prime": ((1, 600, 18, 33), (62, 300, 3, 3), {"pads": [1, 1, 1, 1], "group": 2}),
    "row buffer, one kernel column": ((1, 40, 70, 90), (48, 40, 3, 1), {"pads": [1, 0, 1, 0]}),
    "row buffer, three axes": ((1, 12, 9, 30, 40), (16, 12, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    "all columns": ((1, 3, 70, 90), (20, 3, 5, 3), {"pads": [2, 1, 2, 1]}),
    "all columns, many filters": ((1, 64, 40, 40), (200, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
    "all columns, dilated, strided": (
        (1, 32, 120, 90),
        (12, 16, 3, 3),
        {"strides": [2, 1], "dilations": [2, 3], "group": 2},
    ),
    "pointwise": ((1, 80, 60, 60), (24, 80, 1, 1), {}),
    "depthwise": ((1, 96, 50, 50), (96, 1, 3, 3), {"group": 96, "pads": [1, 1, 1, 1]}),
    "one axis": ((2, 16, 5000), (24, 16, 9), {"pads": [4, 4]}),
    "three axes": ((1, 4, 9, 30, 40), (16, 4, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
}


def test_the_layouts_are_what_the_names_say():
    for name, (x, w, attributes) in LARGE.items():
        call = Call("Conv", [TensorSpec(shape, np.dtype("f4")) for shape in (x, w)], attributes)
        geometry = Geometry(x, w, place_windows(call, x[2:], w[2:]), attributes.get("group", 1), np.dtype("f4"))
        if len(x) > 3:
            assert suits(geometry) == name.startswith("row buffer"), name


def large_inputs(name: str) -> tuple[list[Array], dict[str, Any]]:
    x, w, attributes = LARGE[name]
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (x, w, w[:1])]
    return arrays, attributes


@pytest.mark.parametrize("name", LARGE)
def test_several_blocks(name: str):
    inputs, attributes = large_inputs(name)
    (actual,) = get("Conv")(inputs, attributes)
    expected = convolution(*inputs, attributes)
    assert np.abs(actual - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", LARGE)
def test_helpers_and_run_time_weights_change_no_bit(name: str):
    inputs, attributes = large_inputs(name)
    (expected,) = get("Conv")(inputs, attributes)
    for constant_weights in (True, False):
        kernel = bind("Conv", inputs, attributes, constant_weights=constant_weights)
        scratch = aligned_bytes(kernel.scratch_bytes)
        with WorkerPool(1) as pool:
            for workspace in (Workspace(scratch), Workspace(scratch, pool)):
                output = strided(np.zeros_like(expected))
                scratch[...] = 0xFF  # NaN wherever something is read before it was written
                kernel.compute(inputs, [output], workspace)
                assert_same(output, expected)


def test_kernels_share_the_weights_of_a_model():
    """A session binds the same constant for every combination of input shapes."""
    columns = [
        columns_of(Geometry((1, 40, size, size), (8, 40, 3, 3), windows(size), 1, np.dtype("f4"))) for size in (20, 40)
    ]
    w = np.random.default_rng(0).standard_normal((8, 40, 3, 3)).astype(np.float32)
    assert packed_weights(columns[0], w) is not packed_weights(columns[1], w)
    w.flags.writeable = False
    first, second = (packed_weights(each, w) for each in columns)
    assert first is second
    assert packed_weights(columns[0], w.copy()) is not first
    # Another layout is another matter: a small image has all its columns together.
    small = columns_of(Geometry((1, 40, 8, 8), (8, 40, 3, 3), windows(8), 1, np.dtype("f4")))
    assert packed_weights(small, w).packed.shape != first.packed.shape


def windows(size: int) -> Windows:
    return Windows((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (size, size))


def test_memory_is_that_of_blocks():
    """An image four times as large takes no more scratch memory."""
    sizes = []
    for side in (256, 512):
        image, weights = TensorSpec((1, 64, side, side), np.dtype("f4")), TensorSpec((64, 64, 3, 3), np.dtype("f4"))
        operator = find("Conv")
        assert operator is not None
        sizes.append(operator.bind(Call("Conv", [image, weights], {"pads": [1, 1, 1, 1]})).scratch_bytes)
    assert sizes[0] == sizes[1] < 32 << 20


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [1, 100_000], "pads": [0, 0, 0, 1_600_000]},
        {"dilations": [1, 1_000_000], "pads": [0, 0, 0, 1_000_020]},
    ],
)
def test_far_cells_take_no_memory(attributes: dict[str, Any]):
    image, weights = TensorSpec((1, 16, 4, 4), np.dtype("f4")), TensorSpec((8, 16, 2, 2), np.dtype("f4"))
    operator = find("Conv")
    assert operator is not None
    assert operator.bind(Call("Conv", [image, weights], attributes)).scratch_bytes < 1 << 20


def test_no_filters_give_no_channels():
    (y,) = get("Conv")([np.zeros((1, 32, 20, 20), np.float32), np.zeros((0, 32, 3, 3), np.float32)])
    assert y.shape == (1, 0, 18, 18)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_is_never_negative(auto_pad: str):
    """A stride of 4 over windows of one cell leaves cells out at the end; onnxruntime begins with the second cell."""
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    attributes = {"strides": [4], "auto_pad": auto_pad}
    assert_same(get("Conv")([x, np.ones((1, 1, 1), np.float32)], attributes)[0], x[:, :, ::4])


@pytest.mark.parametrize("shape", [(0, 2, 5, 5), (1, 2, 0, 5), (2, 2, 5, 0)])
def test_nothing_in_gives_nothing_out(shape: tuple[int, ...]):
    w = np.ones((3, 2, 1, 1), np.float32)
    (actual,) = get("Conv")([np.ones(shape, np.float32), w], {})
    assert actual.shape == (shape[0], 3, *shape[2:])


def test_no_channels_give_the_bias():
    bias = np.array([1.0, 2.0], np.float32)
    (actual,) = get("Conv")([np.ones((1, 0, 4, 4), np.float32), np.ones((2, 0, 3, 3), np.float32), bias], {})
    assert_same(actual, np.broadcast_to(bias[:, None, None], (1, 2, 2, 2)))


def test_nan_and_infinity_reach_exactly_the_windows_that_see_them():
    x = np.zeros((1, 24, 20, 20), np.float32)
    x[0, 3, 10, 10], x[0, 5, 0, 0] = np.nan, np.inf
    (actual,) = get("Conv")([x, np.ones((2, 24, 3, 3), np.float32)], {"pads": [1, 1, 1, 1]})
    not_finite = np.argwhere(~np.isfinite(actual[0, 0])).tolist()
    around = [[i, j] for i in (9, 10, 11) for j in (9, 10, 11)]
    assert not_finite == [[0, 0], [0, 1], [1, 0], [1, 1], *around]


@pytest.mark.parametrize(
    ("x", "w", "bias", "attributes", "words"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), None, {}, ["(1, 3, 5, 5)", "(4, 2, 3, 3)"]),
        ((1, 4, 5, 5), (3, 2, 3, 3), None, {"group": 2}, ["(1, 4, 5, 5)", "(3, 2, 3, 3)", "2 groups"]),
        ((1, 3, 5, 5), (4, 3, 3), None, {}, ["(1, 3, 5, 5)", "(4, 3, 3)"]),
        ((1, 3), (4, 3), None, {}, ["(1, 3)"]),
        ((1, 3, 5, 5), (4, 3, 3, 3), (3,), {}, ["(3,)", "(4, 3, 3, 3)"]),
        ((1, 3, 5, 5), (4, 3, 3, 3), None, {"kernel_shape": [3, 2]}, ["[3, 2]", "(4, 3, 3, 3)"]),
        ((1, 3, 5, 5), (4, 3, 3, 3), None, {"pads": [1, 1]}, ["pads", "[1, 1]"]),
        ((1, 3, 5, 5), (4, 3, 3, 3), None, {"strides": [1]}, ["strides", "[1]"]),
        ((1, 3, 2, 5), (4, 3, 3, 3), None, {}, ["[3, 3]", "(1, 3, 2, 5)"]),
    ],
)
def test_shapes_that_do_not_fit(x: Any, w: Any, bias: Any, attributes: dict[str, Any], words: list[str]):
    arrays = [np.ones(shape, np.float32) for shape in (x, w, bias) if shape is not None]
    with pytest.raises(ShapeError) as caught:
        get("Conv")(arrays, attributes)
    assert all(word in str(caught.value) for word in ["Conv", *words])


@pytest.mark.parametrize(
    "attributes",
    [{"strides": [0, 1]}, {"dilations": [1, 0]}, {"pads": [-1, 0, 0, 0]}, {"auto_pad": "SAME"}, {"alpha": 1.0}],
)
def test_attributes_that_onnx_forbids(attributes: dict[str, Any]):
    with pytest.raises(OperatorError):
        get("Conv")([np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 2, 2), np.float32)], attributes)


def test_element_types_must_agree():
    with pytest.raises(OperatorError, match="element type"):
        get("Conv")([np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 2, 2), np.float64)], {})


def test_kernel_can_be_used_again():
    """The second call must not see what the first one left in scratch memory."""
    inputs, attributes = large_inputs("row buffer")
    kernel = bind("Conv", inputs, attributes)
    workspace = Workspace(aligned_bytes(kernel.scratch_bytes))
    results = [np.empty(kernel.outputs[0].shape, np.float32) for _ in range(3)]
    for index, result in enumerate(results):
        kernel.compute([inputs[0] * index, *inputs[1:]], [result], workspace)
    # The output is affine in the input: equal steps.
    steps = [later - earlier for earlier, later in pairwise(results)]
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-4, atol=1e-3)
