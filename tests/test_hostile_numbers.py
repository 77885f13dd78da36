"""Constants in every form, every element type, sizes of zero, and quantised models."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from support.image_models import FUSED, LEAKY, TOLERANCE, counts, image
from support.soundness import check_fusing, check_running, random_feeds

# Weights and numbers.

SLOPES = {
    "value_float": (helper.make_node("Constant", [], ["s"], value_float=0.5), True),
    "value_floats of one": (helper.make_node("Constant", [], ["s"], value_floats=[0.5]), True),
    "value_floats along the last axis": (helper.make_node("Constant", [], ["s"], value_floats=[0.5] * 5), False),
    "value": (
        helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.ones((4, 1, 1), np.float32))),
        True,
    ),
    "sparse_value": (
        helper.make_node(
            "Constant",
            [],
            ["s"],
            sparse_value=helper.make_sparse_tensor(
                helper.make_tensor("", TensorProto.FLOAT, [1], [0.5]), helper.make_tensor("", 7, [1], [2]), [4, 1, 1]
            ),
        ),
        None,
    ),
    "the input itself": (helper.make_node("Identity", ["x"], ["s"]), False),
}


@pytest.mark.parametrize(("slope", "fits"), SLOPES.values(), ids=SLOPES)
def test_slopes_from_every_form_of_constant(slope: NodeProto, fits: bool | None) -> None:
    model = image("c = Conv(x,w,b)  s = Identity(k)  y = PRelu(c,s)")
    model.graph.node[1].CopyFrom(slope)
    found = counts(check_fusing(model, random_feeds(model), tolerance=TOLERANCE))
    assert fits is None or found == ({"ConvPRelu": 1} if fits else {})


def test_sparse_weights() -> None:
    model = image("c = Conv(x,v,b)  t = LeakyRelu(c)  y = Concat<axis=1>(x,t)", "float[1,8,5,5] y")
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    places = helper.make_tensor("places", TensorProto.INT64, [2], [0, 5])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 4, 1, 1]))
    wanted = {"ConvLeakyRelu": 1, "ConcatFusedTail": 1}
    assert counts(check_fusing(model, random_feeds(model), tolerance=TOLERANCE)) == wanted


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), ()])
def test_products_and_sums_of_every_type_and_size(dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "y")]
    nodes = [helper.make_node("Mul", ["k", "x"], ["m"]), helper.make_node("Add", ["x", "m"], ["y"])]
    constant = numpy_helper.from_array(
        np.asarray(np.iinfo(dtype).max if dtype in (np.int32, np.int64) else 3, dtype), "k"
    )
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    assert counts(check_fusing(model, random_feeds(model), tolerance=1e-3)) == {"MulAdd": 1}


def test_bfloat16_passes() -> None:
    model = image("m = Mul(h,x)  y = Add(m,x)", "bfloat16[2] y", "bfloat16[2] x")
    model.graph.initializer.append(helper.make_tensor("h", TensorProto.BFLOAT16, [1], [1.5]))
    assert counts(check_fusing(model)) == {"MulAdd": 1}


@pytest.mark.parametrize("shape", [(0, 4, 3, 3), (3, 4, 3, 7), (2, 4, 1, 1)])
def test_sizes_known_by_name_only(shape: tuple[int, ...]) -> None:
    model = image("c = Conv(x,w,b)  t = LeakyRelu(c)  y = Concat<axis=1>(x,t)", "float[N,8,H,W] y", "float[N,4,H,W] x")
    result = check_fusing(model)
    values = np.full(shape, np.nan, np.float32)
    values[..., 0] = -1
    check_running(model, result.model, {"x": values}, tolerance=TOLERANCE)


@pytest.mark.parametrize("dims", ["9223372036854775807,4,9223372036854775807,1", "-1,4,0,0"])
def test_declared_sizes_that_nothing_can_have(dims: str) -> None:
    assert counts(check_fusing(image(FUSED, inputs=f"float[{dims}] x"))) == LEAKY


QUANTISED = {
    "QDQ": """xq = QuantizeLinear(x,s,z)  xd = DequantizeLinear(xq,s,z)  wd = DequantizeLinear(wq,s,z)  c = Conv(xd,wd)
        cq = QuantizeLinear(c,s,z)  cd = DequantizeLinear(cq,s,z)  l = LeakyRelu(cd)  lq = QuantizeLinear(l,s,z)
        ld = DequantizeLinear(lq,s,z)  y = Concat<axis=1>(xd,ld)""",
    "QOperator": """xq = QuantizeLinear(x,s,z)  cq = QLinearConv(xq,s,z,wq,s,z,s,z)  c = DequantizeLinear(cq,s,z)
        y = Concat<axis=1>(x,c)""",
}


@pytest.mark.parametrize("body", QUANTISED.values(), ids=QUANTISED)
def test_quantised_models_stay_as_they_are(body: str) -> None:
    model = image(body, "float[1,8,5,5] y", constants=", float s = {0.125}, uint8 z = {128}")
    model.graph.initializer.append(numpy_helper.from_array(np.full((4, 4, 1, 1), 130, np.uint8), "wq"))
    result = check_fusing(model, random_feeds(model))
    assert counts(result) == {}
    assert result.model == model
