"""Operators for which there is neither a kernel nor a function: onnx's own reference implementation computes them.

onnx's evaluator is given a graph of the one node, with the types its inputs have at that moment, because some
operators are defined by a function that depends on the types. It is imported when the first such node is met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TypeProto, ValueInfoProto, helper, numpy_helper

from ngine_ref.errors import OperatorError, UnknownOperatorError
from ngine_ref.loading.graph import Graph, Node, Value, ValueInfo
from ngine_ref.registry import Array

_REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What onnx's implementations raise when they do not accept their inputs."""


_SUCCESSORS = {"Scatter": ("ScatterElements", 11)}
"""Operators that only live on under another name, with the opset it has there."""
_IMPLEMENTED_FROM = {"DequantizeLinear": 19}
"""Operators that onnx implements from this opset on only; what they took before means the same there."""


_FLATTENING = frozenset({"Hardmax", "LogSoftmax"})
"""Up to opset 12 these took all axes from `axis` (1 by default) on as one; onnx only implements what came after."""


def run_reference(node: Node, inputs: Sequence[Value]) -> list[Value]:
    """What onnx's implementation of an operator gives: one entry an output slot, None where the node names none.

    Raises:
        OperatorError: the implementation refuses the inputs.
        UnknownOperatorError: onnx has no implementation of the operator.
    """
    if node.op_type in _FLATTENING and not node.domain and node.opset < 13 and isinstance(inputs[0], np.ndarray):
        return _run_flattened(node, inputs[0])
    return ReferenceOperator(node, inputs)(inputs)


def _run_flattened(node: Node, x: Array) -> list[Value]:
    axis = node.attributes.get("axis", 1)
    if not -x.ndim <= axis < x.ndim:
        raise OperatorError(f"{node} has axis {axis}, but its input has rank {x.ndim}.")
    axis %= x.ndim
    flat = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    present = replace(node, attributes={"axis": 1}, attribute_types={"axis": AttributeProto.INT}, opset=13)
    (y,) = ReferenceOperator(present, [flat])([flat])
    return [y.reshape(x.shape) if isinstance(y, np.ndarray) else y]


class ReferenceOperator:
    """One node, bound to the types of its inputs.

    Args:
        node: any but those that `control_flow.py` runs.
        inputs: values like those it will be run on.

    Raises:
        UnknownOperatorError: onnx has no implementation of the operator.
    """

    def __init__(self, node: Node, inputs: Sequence[Value]) -> None:
        from onnx.reference import ReferenceEvaluator

        if not node.domain and node.op_type in _SUCCESSORS:
            op_type, opset = _SUCCESSORS[node.op_type]
            node = replace(node, op_type=op_type, opset=opset)
        elif not node.domain:
            node = replace(node, opset=max(node.opset, _IMPLEMENTED_FROM.get(node.op_type, 0)))
        self._node = node
        try:
            self._evaluator = ReferenceEvaluator(_graph_of(node, inputs), opsets=_opsets(node))
        except NotImplementedError as error:
            raise UnknownOperatorError(
                f"{node} (opset {node.opset}) has no kernel, no function body and no reference implementation."
            ) from error
        except _REFUSALS as error:
            raise OperatorError(f"{node}: {error}") from error

    def __call__(self, inputs: Sequence[Value]) -> list[Value]:
        """The outputs, one entry an output slot; None where the node names none.

        Raises:
            OperatorError: the implementation refuses the inputs.
        """
        feeds = {name: value for name, value in zip(self._node.inputs, inputs, strict=True) if name}
        try:
            results = self._evaluator.run(None, feeds)
        except _REFUSALS as error:
            reason = error.__cause__ if isinstance(error, TypeError) and error.__cause__ else error
            raise OperatorError(f"{self._node}: {reason}") from error
        named = iter(results)
        return [_as_value(next(named)) if name else None for name in self._node.outputs]


def _graph_of(node: Node, inputs: Sequence[Value]) -> GraphProto:
    graph = GraphProto(name="one node", node=[node_proto(node)])
    for name, value in zip(node.inputs, inputs, strict=True):
        if name and all(known.name != name for known in graph.input):
            graph.input.append(ValueInfoProto(name=name, type=_type_of(value)))
    graph.output.extend(ValueInfoProto(name=name) for name in node.outputs if name)
    return graph


def node_proto(node: Node) -> NodeProto:
    """The protobuf message of a node."""
    proto = NodeProto(op_type=node.op_type, domain=node.domain, name=node.name)
    proto.input.extend(node.inputs)
    proto.output.extend(node.outputs)
    for name, value in node.attributes.items():
        kind = node.attribute_types[name]
        if kind == AttributeProto.TENSOR:
            value = numpy_helper.from_array(value)
        elif kind == AttributeProto.TENSORS:
            value = [numpy_helper.from_array(item) for item in value]
        elif kind == AttributeProto.GRAPH:
            value = _graph_proto(value)
        elif kind == AttributeProto.GRAPHS:
            value = [_graph_proto(item) for item in value]
        proto.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return proto


def _graph_proto(graph: Graph) -> GraphProto:
    return GraphProto(
        name=graph.name,
        node=map(node_proto, graph.nodes),
        input=map(_value_info, graph.inputs),
        output=map(_value_info, graph.outputs),
        initializer=[numpy_helper.from_array(array, name) for name, array in graph.initializers.items()],
    )


def _value_info(value: ValueInfo) -> ValueInfoProto:
    if not value.type.is_tensor:
        return ValueInfoProto(name=value.name)
    return helper.make_tensor_value_info(value.name, value.type.element_type, value.type.shape)


def _opsets(node: Node) -> dict[str, int]:
    return {**node.origin, node.domain: node.opset}


def _type_of(value: Value) -> TypeProto | None:
    if not isinstance(value, np.ndarray):
        return None
    if value.dtype.kind in "OUS":
        return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(object)), value.shape)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _as_value(result: Any) -> Value:
    if result is None or isinstance(result, list | dict):
        return result
    array = np.asarray(result)
    return array.astype(object) if array.dtype.kind in "US" else array
