"""One operator, run by onnxruntime, and by our kernel in every way a plan may use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from ngine_ref.numerics.dtypes import element_type_of
from ngine_ref.registry import (
    FUSED_DOMAIN,
    NEWEST_OPSET,
    Array,
    Call,
    Kernel,
    TensorSpec,
    Workspace,
    aligned_bytes,
    find,
    get,
)
from support.node_cases import assert_same

MAIN_OPSET = 21
"""The opset of comparisons that are not about opsets: new enough for every input form, old enough for onnxruntime."""

Inputs = Sequence[Array | None]


def onnxruntime_outputs(
    op_type: str, inputs: Inputs, attributes: dict[str, Any], opset: int = MAIN_OPSET, output_count: int = 1
) -> list[Array]:
    """What onnxruntime computes for one node, with its optimisations off."""
    names = ["" if array is None else f"x{slot}" for slot, array in enumerate(inputs)]
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    outputs = [f"y{slot}" for slot in range(output_count)]
    node = helper.make_node(op_type, names, outputs, **attributes)
    return onnxruntime_runs([node], feeds, opset)


def onnxruntime_runs(nodes: Sequence[onnx.NodeProto], feeds: dict[str, Array], opset: int = MAIN_OPSET) -> list[Array]:
    """What onnxruntime computes for the outputs of the last of these nodes, with its optimisations off."""
    values = [helper.make_tensor_value_info(n, element_type_of(a.dtype), a.shape) for n, a in feeds.items()]
    graph = helper.make_graph(nodes, "g", values, [onnx.ValueInfoProto(name=name) for name in nodes[-1].output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def bind(
    op_type: str, inputs: Inputs, attributes: dict[str, Any], opset: int = NEWEST_OPSET, output_count: int = 1
) -> Kernel:
    """The kernel of an operator for these inputs, whose content it may look at."""
    found = find(op_type) or find(op_type, FUSED_DOMAIN)
    assert found is not None
    specs = [None if array is None else TensorSpec(array.shape, array.dtype, array) for array in inputs]
    return found.bind(Call(op_type, specs, attributes, opset, output_count))


def check_against_onnxruntime(
    op_type: str,
    inputs: Inputs,
    attributes: dict[str, Any] | None = None,
    *,
    opset: int = MAIN_OPSET,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> None:
    """Compare our kernel with onnxruntime, and with itself in every other way of using it."""
    attributes = attributes or {}
    expected = onnxruntime_outputs(op_type, inputs, attributes, opset)
    actual = get(op_type)(inputs, attributes, opset=opset)
    for ours, theirs in zip(actual, expected, strict=True):
        assert_same(ours, theirs, rtol=rtol, atol=atol)
    check_every_use(op_type, inputs, attributes, opset=opset, rtol=rtol, atol=atol)


def check_every_use(
    op_type: str,
    inputs: Inputs,
    attributes: dict[str, Any],
    *,
    opset: int = NEWEST_OPSET,
    output_count: int = 1,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> None:
    """Inputs and outputs that are not contiguous, outputs in the place of inputs, views: all the same values.

    A tolerance is for sums, whose order depends on the layout.
    """
    plain = get(op_type)(inputs, attributes, opset=opset, output_count=output_count)
    for way, outputs in _uses(op_type, inputs, attributes, opset, output_count):
        for actual, expected in zip(outputs, plain, strict=False):
            assert_same(actual, expected, rtol=rtol, atol=atol, what=f"{op_type}, {way}")


def _uses(
    op_type: str, inputs: Inputs, attributes: dict[str, Any], opset: int, output_count: int
) -> Iterator[tuple[str, list[Array]]]:
    kernel = bind(op_type, inputs, attributes, opset, output_count)

    def run(given: Inputs, outputs: list[Array]) -> list[Array]:
        kernel.compute(given, outputs, Workspace(aligned_bytes(kernel.scratch_bytes)))
        return outputs

    fresh = [np.empty(spec.shape, spec.dtype) for spec in kernel.outputs]
    yield "strided inputs", run([None if array is None else strided(array) for array in inputs], fresh)
    if kernel.strided:
        yield "strided outputs", run(inputs, [strided(np.zeros(spec.shape, spec.dtype)) for spec in kernel.outputs])
    for slot in kernel.in_place:
        given = [None if array is None else array.copy() for array in inputs]
        taken = given[slot]
        assert taken is not None
        others = [np.empty(spec.shape, spec.dtype) for spec in kernel.outputs[1:]]
        yield f"in the place of input {slot}", run(given, [taken, *others])
    if kernel.view is not None:
        source = inputs[0]
        assert source is not None
        assert np.shares_memory(kernel.view(source), source) or source.size == 0
        yield "view", [kernel.view(source)]


def strided(array: Array) -> Array:
    """The same content in memory with gaps: every axis of a larger array skips elements."""
    roomy = np.zeros([2 * size + 1 for size in array.shape], array.dtype)
    view = roomy[(*(slice(0, 2 * size, 2) for size in array.shape), ...)]
    view[...] = array
    return view
