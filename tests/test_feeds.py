"""What models are fed with: arrays of every element type, scalars among them, in shapes that a model leaves open."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import graphopt
from graphopt.errors import UsageError
from graphopt.verifying.feeds import make_feeds


def takes(element_type: int, shape: list[int | str]) -> ModelProto:
    """A model that passes its input on."""
    values = [helper.make_tensor_value_info(name, element_type, shape) for name in ("x", "y")]
    return helper.make_model(
        helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
    )


@pytest.mark.parametrize(
    "element_type", [TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64, TensorProto.COMPLEX64]
)
def test_a_scalar_is_an_array(element_type: int) -> None:
    fed = make_feeds(takes(element_type, [])).arrays["x"]
    assert isinstance(fed, np.ndarray)
    assert fed.dtype == helper.tensor_dtype_to_np_dtype(element_type)


def test_scalars_are_verified() -> None:
    """NumPy makes numbers, not arrays, of arithmetic on scalars."""
    report = graphopt.verify(*[takes(TensorProto.FLOAT, [])] * 2)
    assert report.ok
    assert report.max_abs_error == 0


def test_a_dimension_of_minus_one_is_left_open() -> None:
    """So Paddle's exporter writes it, and onnxruntime reads it."""
    source = takes(TensorProto.FLOAT, [-1, 3, "h", 5])
    feeds = make_feeds(source, shapes={"x": (2, 3, 4, 5)})
    assert feeds.arrays["x"].shape == (2, 3, 4, 5)
    assert make_feeds(source).assumed == {"x": (1, 3, 32, 5)}
    assert graphopt.verify(source, source, shapes={"x": (2, 3, 4, 5)}).ok


@pytest.mark.parametrize("size", [2**26, 2**40])
def test_a_shape_that_does_not_fit_into_memory(size: int) -> None:
    with pytest.raises(UsageError, match=rf"The input 'x' of shape \[{size}, {size}\] does not fit into memory"):
        make_feeds(takes(TensorProto.FLOAT, ["n", "m"]), shapes={"x": (size, size)})


def test_an_input_is_given_once() -> None:
    with pytest.raises(UsageError, match="The input 'x' is given a shape and a content"):
        make_feeds(takes(TensorProto.FLOAT, ["n"]), shapes={"x": (2,)}, arrays={"x": np.zeros(3, np.float32)})
