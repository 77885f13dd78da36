"""Everything that must hold after fusing any model, checked at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper

import graphopt
import ngine_ref
from graphopt.proof.certificate import certify

Feeds = Mapping[str, Any]


def check_fusing(
    model: ModelProto, *feeds: Feeds, tolerance: float | None = None, **options: Any
) -> graphopt.FusionResult:
    """Fuse a model and check all that must hold of the result.

    Args:
        model: the original.
        feeds: for each, run both in onnxruntime, as they stand, and ask for the same bits.
        tolerance: run the fused model in ngine_ref too, and ask for this closeness to onnxruntime.
        options: of `graphopt.fuse`.
    """
    untouched = model.SerializeToString(deterministic=True)
    valid = is_valid(model)
    result = graphopt.fuse(model, **options)
    assert model.SerializeToString(deterministic=True) == untouched, "fusing changed its argument"
    assert result.report.certificate.ok
    if options.get("functions", True):
        certificate = certify(model, result.model)
        assert certificate.ok, certificate.reason
        if valid:
            onnx.checker.check_model(result.model, full_check=True)
    check_repeated(result.model, options)
    check_unfusing(model, result.model, options)
    if feeds:
        check_running(model, result.model, *feeds, tolerance=tolerance)
    return result


def check_repeated(fused: ModelProto, options: Mapping[str, Any]) -> None:
    """Fusing a fused model changes nothing."""
    again = graphopt.fuse(fused, **options)
    assert not any(again.report.counts.values()), again.report.counts
    assert again.model.SerializeToString(deterministic=True) == fused.SerializeToString(deterministic=True)


def check_unfusing(model: ModelProto, fused: ModelProto, options: Mapping[str, Any]) -> None:
    """Unfusing gives back the same nodes in every graph and function, in any order, and the same model around them."""
    rules = {name: value for name, value in options.items() if name == "rules"}
    restored = graphopt.unfuse(fused, **rules)
    certificate = certify(model, restored)
    assert certificate.ok, certificate.reason
    assert nodes_of(restored.graph) == nodes_of(model.graph)
    assert {key: nodes_of(f) for key, f in functions_of(restored).items()} == {
        key: nodes_of(f) for key, f in functions_of(model).items()
    }
    assert restored.ir_version == model.ir_version
    assert [value.name for value in restored.graph.input] == [value.name for value in model.graph.input]
    assert [value.name for value in restored.graph.output] == [value.name for value in model.graph.output]


def check_running(model: ModelProto, fused: ModelProto, *feeds: Feeds, tolerance: float | None = None) -> None:
    """onnxruntime gives the same bits for both, and ngine_ref what onnxruntime gives."""
    original, rewritten = session(model), session(fused)
    ours = ngine_ref.InferenceSession(fused) if tolerance is not None else None
    names = [value.name for value in fused.graph.output]
    for fed in feeds:
        expected = original.run(None, dict(fed))
        assert_same_bits(rewritten.run(None, dict(fed)), expected)
        if ours is not None:
            for name, got, wanted in zip(names, ours.run(None, dict(fed)), expected, strict=True):
                assert_close(got, wanted, tolerance or 0.0, name)


def assert_close(got: Any, wanted: Any, tolerance: float, name: str) -> None:
    """Same shape and element type, and floats within the tolerance."""
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=name)
    else:
        np.testing.assert_array_equal(got, wanted, name)


def is_valid(model: ModelProto) -> bool:
    """Whether onnx's checker accepts a model."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def session(model: ModelProto) -> onnxruntime.InferenceSession:
    """The model in onnxruntime, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def assert_same_bits(got: list[Any], wanted: list[Any]) -> None:
    """Same shapes, element types and bits; NaNs of any payload are one."""
    assert len(got) == len(wanted)
    for mine, yours in zip(got, wanted, strict=True):
        if isinstance(yours, list):
            assert_same_bits(mine, yours)
        elif yours is None:
            assert mine is None
        else:
            assert (mine.dtype, mine.shape) == (yours.dtype, yours.shape)
            np.testing.assert_array_equal(mine, yours)


def nodes_of(graph: onnx.GraphProto | onnx.FunctionProto) -> list[bytes]:
    """The nodes of a graph as bytes, those of bodies included, without regard to their order."""
    return sorted(_node_bytes(node) for node in graph.node)


def _node_bytes(node: NodeProto) -> bytes:
    copy = NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            inner = [NodeProto.FromString(data) for data in nodes_of(body)]
            del body.node[:]
            body.node.extend(inner)
    return copy.SerializeToString(deterministic=True)


def functions_of(model: ModelProto) -> dict[tuple[str, str, str], onnx.FunctionProto]:
    """The functions of a model by domain, name and overload."""
    return {(f.domain, f.name, f.overload): f for f in model.functions}


def random_feeds(model: ModelProto, seed: int = 0, **sizes: int) -> dict[str, Any]:
    """Random numbers for every input that has no initializer; dimensions with a name take their size from `sizes`."""
    rng = np.random.default_rng(seed)
    given = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name in given or not value.type.HasField("tensor_type"):
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, 2) for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if tensor.elem_type == TensorProto.BOOL:
            feeds[value.name] = np.asarray(rng.integers(0, 2, shape), bool)
        else:
            feeds[value.name] = np.asarray(rng.normal(size=shape) * 3).astype(dtype)
    return feeds
