"""One node on its own: run by ngine_ref on the oracle's values, to part a wrong node from inherited rounding.

In a deep network float32 rounding is amplified: the sigmoid of a sum of large numbers shows their last digits. A value
that is out of tolerance is therefore judged again with exactly the inputs that onnxruntime had. If the node gives
onnxruntime's result then, what differed was its inputs, within their tolerance; if not, the node is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper

import ngine_ref
from graphopt.model_files.model_io import LoadedModel


def variable_inputs(node: NodeProto, model: ModelProto) -> list[str] | None:
    """The values a node reads that are not initializers; None for a node with bodies, which may capture others."""
    if any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute):
        return None
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [name for name in dict.fromkeys(node.input) if name and name not in initializers]


def run_alone(node: NodeProto, loaded: LoadedModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of one node of a model, by name, for these inputs.

    Raises:
        NgineError: the node refuses them.
    """
    model = loaded.model
    alone = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    alone.functions.extend(model.functions)
    graph: GraphProto = alone.graph
    graph.name = "node"
    graph.node.append(node)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in node.input)
    for name, array in inputs.items():
        element_type = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        graph.input.append(helper.make_tensor_value_info(name, element_type, list(np.shape(array))))
    names = [name for name in node.output if name]
    for name in names:
        graph.output.add(name=name)
    folder = loaded.path.resolve().parent if loaded.path is not None else None
    options = ngine_ref.SessionOptions(fast_paths=False)
    results = ngine_ref.InferenceSession(alone, options, folder=folder).run(names, dict(inputs))
    return dict(zip(names, results, strict=True))
