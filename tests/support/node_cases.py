"""ONNX's own test cases of one node: what an operator has to give for what it is given."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

from ngine_ref.registry import Array, get


@dataclass(frozen=True)
class NodeCase:
    """One node, its inputs by slot, and the outputs that are right."""

    name: str
    node: onnx.NodeProto
    opset: int
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float

    @property
    def attributes(self) -> dict[str, Any]:
        return {attribute.name: attribute_value(attribute) for attribute in self.node.attribute}


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """The attribute as a binder sees it: text as str, tensors as arrays."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def node_cases(op_type: str) -> list[NodeCase]:
    """Every case of one node of that operator, of ONNX's own domain, whose values are all tensors."""
    return [
        case
        for case in _every_case()
        if case.node.op_type == op_type and all(isinstance(value, np.ndarray) for value in case.outputs)
    ]


@cache
def _every_case() -> list[NodeCase]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases' own arithmetic overflows on purpose
        return [found for case in collect_testcases(None) if (found := _single_node(case)) is not None]


def _single_node(case: Any) -> NodeCase | None:
    graph = case.model.graph if case.model is not None else None
    if graph is None or len(graph.node) != 1 or graph.node[0].domain not in ("", "ai.onnx"):
        return None
    node = graph.node[0]
    (given, expected) = case.data_sets[0]
    by_name = {value.name: _array(array) for value, array in zip(graph.input, given, strict=True)}
    opset = next(item.version for item in case.model.opset_import if item.domain in ("", "ai.onnx"))
    inputs = [by_name.get(name) for name in node.input]
    return NodeCase(case.name, node, opset, inputs, [_array(value) for value in expected], case.rtol, case.atol)


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic | float | int | bool) else value


def check_node_case(case: NodeCase) -> None:
    """Compute the case with our kernel and compare dtype, shape and values."""
    count = len(case.node.output)
    got = get(case.node.op_type)(case.inputs, case.attributes, opset=case.opset, output_count=count)
    assert len(got) == len(case.outputs)
    for actual, expected in zip(got, case.outputs, strict=True):
        assert_same(actual, expected, rtol=case.rtol, atol=case.atol)


def assert_same(actual: Array, expected: Array, *, rtol: float = 0.0, atol: float = 0.0, what: str = "") -> None:
    """Same dtype (strings of any width are one), same shape, and values within the tolerance; NaN equals NaN."""
    assert actual.shape == expected.shape, what
    if expected.dtype.kind in "OUST":
        assert actual.dtype == object, what
        assert actual.tolist() == expected.tolist(), what
        return
    assert actual.dtype == expected.dtype, what
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected, what)
    else:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=rtol, atol=atol, err_msg=what)
