"""How many bytes each value of a graph takes, for inputs of known shapes.

Shapes are inferred on a skeleton: large weights are replaced by their type and shape, so that none is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, shape_inference

from graphopt.graph.conventions import DEFAULTS_SINCE_IR
from graphopt.graph.declared_shapes import dim_size
from graphopt.graph.model_walk import graphs_in

SMALL = 256
"""Elements up to which an initializer is kept: it may decide a shape."""


def value_sizes(model: ModelProto, input_shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Bytes by value, for the values whose shape follows from those of the inputs."""
    skeleton = shape_skeleton(model)
    for value in skeleton.graph.input:
        if value.name in input_shapes:
            shape = value.type.tensor_type.shape
            shape.Clear()
            for size in input_shapes[value.name]:
                shape.dim.add(dim_value=size)
    inferred = inferred_shapes(skeleton)
    sizes: dict[str, int] = {}
    for value in (*inferred.value_info, *inferred.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim_size(dim) is not None for dim in tensor.shape.dim):
            count = math.prod(dim.dim_value for dim in tensor.shape.dim)
            sizes[value.name] = count * _item_size(tensor.elem_type)
    return sizes


def shape_skeleton(model: ModelProto, *, trusting: bool = True) -> ModelProto:
    """A model without what is declared of inner values, and with every large initializer as an input of its type.

    Args:
        model: the model; it is not changed.
        trusting: whether an input with a default has that value, and bodies make what they declare; otherwise only
            what must hold is left, so that what follows from it holds too.
    """
    skeleton = ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    skeleton.functions.extend(model.functions)
    graph = skeleton.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(model.graph.node)
    graph.output.extend(_without_shape(value) for value in model.graph.output)
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    if not trusting and model.ir_version >= DEFAULTS_SINCE_IR:
        for value in model.graph.input:
            initializers.pop(value.name, None)
    graph.input.extend(value for value in model.graph.input if value.name not in initializers)
    for tensor in initializers.values():
        if math.prod(tensor.dims) <= SMALL and tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        else:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for value in graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim_size(dim) is None:
                dim.ClearField("dim_value")  # inference would reckon with a -1
    if not trusting:
        _strip_bodies(graph)
    return skeleton


def _strip_bodies(graph: GraphProto) -> None:
    """Take away what bodies declare of shapes: it need not hold in every round of a loop."""
    bodies = list(bodies_in(graph))
    while bodies:
        body = bodies.pop()
        del body.value_info[:]
        for value in (*body.input, *body.output):
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
        bodies += bodies_in(body)


def bodies_in(graph: GraphProto) -> Iterator[GraphProto]:
    """The bodies of a graph's own nodes."""
    for node in graph.node:
        for attribute in node.attribute:
            yield from graphs_in(attribute)


def inferred_shapes(skeleton: ModelProto) -> GraphProto:
    """The graph with the types and shapes that onnx infers; what it cannot infer stays unknown."""
    try:
        return shape_inference.infer_shapes(skeleton, data_prop=True).graph
    except shape_inference.InferenceError:
        return skeleton.graph  # a graph onnx's inference objects to still runs; its shapes are then unknown


def _without_shape(value: ValueInfoProto) -> ValueInfoProto:
    bare = deepcopy(value)
    if value.type.HasField("tensor_type"):
        bare.type.tensor_type.ClearField("shape")
    return bare


def _item_size(element_type: int) -> int:
    return np.dtype(helper.tensor_dtype_to_np_dtype(element_type)).itemsize if element_type else 4
