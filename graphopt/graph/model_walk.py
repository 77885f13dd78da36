"""Every graph and every tensor of a model, wherever they hide.

Graphs nest: in the attributes of If, Loop and Scan, in the model's own functions and in its training steps. The walk
keeps its own stack, so that no depth is too deep, and skips nodes whose operator has no attribute that could hold a
graph or a tensor: nearly all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from graphopt.graph.attribute_sets import may_hold
from graphopt.graph.graph_reader import GraphReader


@dataclass(frozen=True, slots=True, eq=False)
class GraphPlace:
    """A graph or function, and where it stands."""

    graph: GraphProto | FunctionProto
    parent: GraphPlace | None
    """The place whose values this graph may capture; None for the main graph and for functions."""
    title: str
    """How messages call it: "the graph", "the then_branch of If 'if_3'", "function 'my.domain::Gelu'"."""
    nodes: tuple[NodeProto, ...]
    holders: tuple[NodeProto, ...]
    """The nodes whose attributes may hold graphs or tensors."""
    depth: int = 0
    """In how many bodies it stands."""


def node_label(node: NodeProto) -> str:
    """The node's name, or the name of its first output where it has none."""
    return node.name or next(filter(None, node.output), "")


def node_title(node: NodeProto) -> str:
    """How messages call a node: by its operator, and its name or else its first output."""
    label = node_label(node)
    return f"{_word(node.op_type)} {label!r}" if label else f"{_word(node.op_type)} (unnamed)"


def function_title(function: FunctionProto) -> str:
    """How messages call a function: by its domain and name, and its overload where it has one."""
    overload = f", overload {function.overload!r}" if function.overload else ""
    return f"'{_word(function.domain)}::{_word(function.name)}'{overload}"


def _word(text: str) -> str:
    """Text as it stands, unless it would break a sentence: names in a file may hold line breaks."""
    return text if isinstance(text, str) and text.isprintable() else repr(text)


def _place(
    graph: GraphProto | FunctionProto, parent: GraphPlace | None, title: str, reader: GraphReader | None
) -> GraphPlace:
    if reader is not None:
        readings = reader.nodes(graph)
        nodes = tuple([reading.proto for reading in readings])
        holders = tuple([reading.proto for reading in readings if reading.attributes is None])
    else:
        nodes = tuple(graph.node)  # protobuf makes the objects once, and every later loop is faster for it
        holders = tuple([node for node in nodes if may_hold(node.domain, node.op_type)])
    return GraphPlace(graph, parent, title, nodes, holders, 0 if parent is None else parent.depth + 1)


def iterate_places(model: ModelProto, reader: GraphReader | None = None) -> Iterator[GraphPlace]:
    """The main graph, the functions and the training graphs, each directly followed by the bodies inside it.

    Args:
        model: the model.
        reader: reads the graphs, for who needs their nodes anyway.
    """
    main = _place(model.graph, None, "the graph", reader)
    yield from _with_bodies(main, reader)
    for function in model.functions:
        yield from _with_bodies(_place(function, None, f"function {function_title(function)}", reader), reader)
    for step in model.training_info:
        yield from _with_bodies(_place(step.initialization, main, "a training initialization", reader), reader)
        yield from _with_bodies(_place(step.algorithm, main, "a training algorithm", reader), reader)


def _with_bodies(root: GraphPlace, reader: GraphReader | None) -> Iterator[GraphPlace]:
    pending = [root]
    while pending:
        place = pending.pop()
        yield place
        bodies = [
            _place(body, place, f"the {_word(attribute.name)} of {node_title(node)}", reader)
            for node in place.holders
            for attribute in node.attribute
            for body in graphs_in(attribute)
        ]
        pending += reversed(bodies)


def graphs_in(attribute: AttributeProto) -> Iterable[GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.type == AttributeProto.GRAPH:
        return (attribute.g,)
    return attribute.graphs if attribute.type == AttributeProto.GRAPHS else ()


def sparse_tensors_of(place: GraphPlace) -> Iterator[tuple[SparseTensorProto, str]]:
    """The sparse tensors that stand in a graph itself, not in its bodies, each with what messages call it."""
    if isinstance(place.graph, GraphProto):
        for sparse in place.graph.sparse_initializer:
            yield sparse, f"sparse initializer {sparse.values.name!r}"
    for node in place.holders:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.SPARSE_TENSOR:
                yield attribute.sparse_tensor, _title(attribute, node)
            elif attribute.type == AttributeProto.SPARSE_TENSORS:
                yield from ((sparse, _title(attribute, node)) for sparse in attribute.sparse_tensors)


def attribute_tensors_of(place: GraphPlace) -> Iterator[tuple[TensorProto, str]]:
    """The dense tensors in the attributes of a graph's own nodes, each with what messages call it."""
    for node in place.holders:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t, _title(attribute, node)
            elif attribute.type == AttributeProto.TENSORS:
                yield from ((tensor, _title(attribute, node)) for tensor in attribute.tensors)


def _title(attribute: AttributeProto, node: NodeProto) -> str:
    return f"attribute {attribute.name!r} of {node_title(node)}"


def tensors_of(place: GraphPlace) -> Iterator[tuple[TensorProto, str]]:
    """The tensors that stand in a graph itself, not in its bodies, each with what `tensor_title` makes its title of.

    Those are the initializers, the dense attributes, and the two parts of all sparse tensors.
    """
    if isinstance(place.graph, GraphProto):
        yield from zip(place.graph.initializer, repeat(""))
    yield from attribute_tensors_of(place)
    for sparse, title in sparse_tensors_of(place):
        yield sparse.values, f"the values of {title}"
        yield sparse.indices, f"the indices of {title}"


def tensor_title(tensor: TensorProto, title: str) -> str:
    """What messages call a tensor. There are many initializers, and few are ever spoken of: they come without title."""
    return title or f"initializer {tensor.name!r}"


def iterate_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model: initializers, sparse parts and attributes, in all graphs, functions and training."""
    for place in iterate_places(model):
        for tensor, _ in tensors_of(place):
            yield tensor
