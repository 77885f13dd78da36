"""A new activation is a rule file of ten lines and a kernel of one function, and works everywhere from then on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.text_models import Array, assert_fuses, feeds, model, nodes, run

import graphopt
import ngine_ref
from ngine_ref import registry
from ngine_ref.nodes import fused_meaning
from ngine_ref.numerics.blocked_convolution import Block, Epilogue
from ngine_ref.ops.convolution import PRODUCERS, convolution_epilogue
from ngine_ref.registry import Call, TensorSpec

RULE = """<domain: "ai.ngine", opset_import: ["" : 17, "require" : 1]>
ConvSoftplus <auto_pad, dilations, group, kernel_shape, pads, strides> (x, w, bias) => (y)
{
  = require.is_producer (y)
  c = Conv <auto_pad: string = @auto_pad, dilations: ints = @dilations, group: int = @group,
            kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides> (x, w, bias)
  ["sole reader"] = require.sole_reader (c)
  y = Softplus (c)
}
"""
ALONE = "c = Conv (x, w, b)  y = Softplus (c)"
TAIL = "c = Conv (x, w, b)  t = Softplus (c)  y = Concat <axis: int = 1> (x, t)"


@pytest.fixture
def rules(tmp_path: Path) -> list[str]:
    path = tmp_path / "ConvSoftplus.onnxtxt"
    path.write_text(RULE)
    return ["extended", str(path)]


@pytest.fixture
def blocks() -> Iterator[list[Array]]:
    """Registers the kernel for one test; it notes every block that it computes."""
    seen: list[Array] = []

    @convolution_epilogue("ConvSoftplus", "Softplus")
    def bind_conv_softplus(call: Call, output: TensorSpec) -> Epilogue:
        def epilogue(block: Block) -> None:
            seen.append(block.values)
            np.logaddexp(block.values, 0, out=block.values)

        return epilogue

    yield seen
    del PRODUCERS["ConvSoftplus"], registry._OPERATORS["ai.ngine", "ConvSoftplus"]
    del fused_meaning._MEANINGS["ConvSoftplus"]


def test_the_rule_is_ten_lines() -> None:
    assert len(RULE.splitlines()) <= 10


def test_it_is_fused_and_runs_by_its_kernel(rules: list[str], blocks: list[Array]) -> None:
    source = model(ALONE)
    result = assert_fuses(source, "y = ai.ngine.ConvSoftplus (x, w, b)", rules=rules)
    given = feeds(source)
    (found,) = ngine_ref.InferenceSession(result).run(None, given)
    assert blocks, "the kernel has not run"
    np.testing.assert_allclose(found, run(source, given)["y"], rtol=1e-5, atol=1e-6)
    assert graphopt.verify(source, result).ok


def test_it_is_the_tail_of_a_concat(rules: list[str], blocks: list[Array]) -> None:
    source = model(TAIL)
    expected = "y = ai.ngine.ConcatFusedTail <axis=1, prefix_count=1, producer_op=ConvSoftplus> (x, x, w, b)"
    result = assert_fuses(source, expected, rules=rules)
    given = feeds(source)
    (found,) = ngine_ref.InferenceSession(result).run(None, given)
    assert blocks, "the kernel has not run"
    np.testing.assert_allclose(found, run(source, given)["y"], rtol=1e-5, atol=1e-6)
    assert graphopt.verify(source, result).ok


def test_without_a_kernel_the_function_runs(rules: list[str]) -> None:
    """An engine that does not know the operator has its meaning in the model."""
    source = model(TAIL)
    result = graphopt.fuse(source, rules=rules)
    assert nodes(result.model)[0].startswith("y = ai.ngine.ConcatFusedTail")
    assert graphopt.verify(source, result.model).ok


def test_bare_calls_run_by_the_kernel_too(rules: list[str], blocks: list[Array]) -> None:
    source = model(ALONE)
    bare = graphopt.fuse(source, rules=rules, functions=False).model
    assert not bare.functions
    given = feeds(source)
    (found,) = ngine_ref.InferenceSession(bare).run(None, given)
    assert blocks
    np.testing.assert_allclose(found, run(source, given)["y"], rtol=1e-5, atol=1e-6)
