"""Random models made of nodes that may be cleaned away: each stays equal in onnxruntime, proven, and clean at once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.random_models import RandomModel, random_models
from support.text_models import LEVELS, assert_same_numbers, feeds

import graphopt
from graphopt.cleanups.names import CLEANUPS

SHAPE = (2, 3, 4)
SHAPES = (SHAPE, (2, 4, 3), (3, 2, 4), (4, 3, 2))
ORDERS = ([0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0], [1, 2, 0])


@st.composite
def redundant_models(draw: st.DrawFn) -> ModelProto:
    """A model of up to twenty nodes, most of which change nothing, some of which look alike and do."""
    shapes: dict[str, tuple[int, ...]] = {"x": SHAPE, "k": SHAPE}
    nodes, initializers = [], [numpy_helper.from_array(np.ones(SHAPE, np.float32), "k")]
    for place in range(draw(st.integers(1, 20))):
        value, name = draw(st.sampled_from(sorted(shapes))), f"v{place}"
        shape = shapes[value]
        inputs, attributes = [value], {}
        kind = draw(
            st.sampled_from(["Identity", "Dropout", "Concat", "Cast", "Reshape", "Transpose", "Pad", "Relu", "Add"])
        )
        if kind == "Concat":
            attributes["axis"] = draw(st.integers(-3, 2))
        elif kind == "Cast":
            attributes["to"] = TensorProto.FLOAT
        elif kind == "Transpose":
            order = draw(st.sampled_from([*ORDERS, None]))
            shape = tuple(shape[axis] for axis in order or [2, 1, 0])
            attributes = {} if order is None else {"perm": order}
        elif kind in ("Reshape", "Pad"):
            wanted = draw(st.sampled_from(SHAPES))
            array = np.array(wanted if kind == "Reshape" else draw(st.sampled_from([[0] * 6, [0, -1, 0, 0, 1, 0]])))
            shape = wanted if kind == "Reshape" else shape
            inputs.append(f"c{place}")
            if draw(st.booleans()):
                nodes.append(helper.make_node("Constant", [], [f"c{place}"], value=numpy_helper.from_array(array)))
            else:
                initializers.append(numpy_helper.from_array(array, f"c{place}"))
        elif kind == "Add":
            inputs.append(draw(st.sampled_from([other for other in sorted(shapes) if shapes[other] == shape])))
        nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        shapes[name] = shape
    made = [name for name in shapes if name.startswith("v")]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    kept = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs]
    given_inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)]
    graph = helper.make_graph(nodes, "random", given_inputs, kept, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def assert_cleans(source: ModelProto, rules: str) -> None:
    result = graphopt.fuse(source, rules=rules, cleanups=CLEANUPS)
    try:
        onnx.checker.check_model(source, full_check=True)
    except onnx.checker.ValidationError:
        pass  # what onnxruntime takes and the checker does not
    else:
        onnx.checker.check_model(result.model, full_check=True)
    inputs = {name: np.array(True) if array.dtype == bool else array for name, array in feeds(source).items()}
    assert_same_numbers(source, result.model, inputs, levels=LEVELS[:1])
    assert not graphopt.fuse(result.model, rules=rules, cleanups=CLEANUPS).report.cleaned
    graphopt.unfuse(result.model, rules=rules)


SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=60, **SETTINGS)
@given(redundant_models())
def test_redundant_models(source: ModelProto):
    assert_cleans(source, "ngine")


@settings(max_examples=20, **SETTINGS)
@given(random_models())
def test_models_with_everything_else(drawn: RandomModel):
    assert_cleans(drawn.model, "extended")


@pytest.mark.long
@settings(max_examples=3000, **SETTINGS)
@given(redundant_models())
def test_many_redundant_models(source: ModelProto):
    assert_cleans(source, "ngine")
