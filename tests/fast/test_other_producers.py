"""A tail whose producer a region cannot carry is left to its kernel, whatever its further inputs look like."""

from __future__ import annotations

import numpy as np
import pytest
from support.text_models import Array, feeds, model, run

import graphopt
from ngine_ref import InferenceSession, SessionOptions

TAIL = "c = Conv <pads: ints = [1,1,1,1]> (x, k3)  t = {} y = Concat <axis: int = 1> (x, t)"


@pytest.mark.parametrize(
    ("activation", "producer", "constants"),
    [
        ("Relu (c)", "ConvRelu", {}),
        ("Tanh (c)", "ConvTanh", {}),
        # A scalar where a ConvPRelu has its slope.
        ("Clip (c, low)", "ConvClip", {"low": np.float32(0.25)}),
    ],
)
def test_tails_of_other_producers(activation: str, producer: str, constants: dict[str, Array]) -> None:
    source = model(TAIL.format(activation), constants={name: np.asarray(value) for name, value in constants.items()})
    fused = graphopt.fuse(source, rules="extended").model
    (node,) = fused.graph.node
    assert {a.s for a in node.attribute if a.name == "producer_op"} == {producer.encode()}
    given = feeds(source)
    (found,) = InferenceSession(fused, SessionOptions(fast_paths=True)).run(None, given)
    np.testing.assert_allclose(found, run(source, given)["y"], rtol=1e-5, atol=1e-6)
