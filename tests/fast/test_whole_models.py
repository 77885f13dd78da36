"""Whole networks with and without fast paths."""

from __future__ import annotations

import numpy as np
import pytest
from fast.reference import assert_close
from onnx import ModelProto

import graphopt
from graphopt.demo_models import rrdbnet, srvgg
from ngine_ref import InferenceSession, SessionOptions


@pytest.mark.parametrize("source", [rrdbnet(32, 32, 1), srvgg(32, 3)], ids=["rrdbnet", "srvgg"])
def test_without_fast_paths_a_fused_model_gives_the_bits_of_the_unfused_one(source: ModelProto):
    images = np.random.default_rng(2).random((1, 3, 24, 20), np.float32)
    fused, readable = graphopt.fuse(source).model, SessionOptions(fast_paths=False)
    (expected,), (plain,) = (
        InferenceSession(model, readable).run(None, {"input": images}) for model in (source, fused)
    )
    np.testing.assert_array_equal(plain, expected)
    (fast,) = InferenceSession(fused).run(None, {"input": images})
    assert (fast != expected).any()
    assert_close(fast, expected)
