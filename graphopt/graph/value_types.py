"""Element types and static shapes of a model's values, as onnx's own inference finds them when one is asked for.

What a model declares of its inner values is not believed: it may be wrong, and who cleans or proves relies on it. The
declared types of the graph's inputs are what a caller must feed, so they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from onnx import GraphProto, ModelProto, ValueInfoProto

from graphopt.graph.declared_shapes import Dims, tensor_dims
from graphopt.graph.value_sizes import bodies_in, inferred_shapes, shape_skeleton


class TensorType(NamedTuple):
    """What is known of a tensor before the model runs."""

    element_type: int
    """A `TensorProto.DataType`."""
    dims: Dims | None
    """None for an unknown rank, and for each dimension that is unknown."""


class ValueTypes:
    """The types of the values in a model's graph and in the bodies inside it; values of functions are not among them.

    Only the element type is known of a value inside a body: from one round of a loop to the next its shape may differ.
    """

    def __init__(self, model: ModelProto) -> None:
        self._model = model

    def of(self, value: str) -> TensorType | None:
        """What is known of a value; None for what is no tensor, and where nothing is known."""
        return self._by_name.get(value)

    @cached_property
    def _by_name(self) -> dict[str, TensorType | None]:
        graph = inferred_shapes(shape_skeleton(self._model, trusting=False))
        found: dict[str, TensorType | None] = dict(_types(graph))
        bodies = list(bodies_in(graph))
        while bodies:
            body = bodies.pop()
            for name, (element_type, _) in _types(body):
                known = found.setdefault(name, TensorType(element_type, None))
                if known is not None:  # two bodies may each have a value of that name
                    found[name] = TensorType(element_type, None) if known.element_type == element_type else None
            bodies += bodies_in(body)
        return found


def keeps_shape(before: Dims | None, after: Dims | None) -> bool:
    """Whether a reshaping from one shape to the other changes nothing.

    One dimension may be unknown: both have the same number of elements, so it is equal where all others are.
    """
    if before is None or after is None or len(before) != len(after):
        return False
    unknown = [place for place, pair in enumerate(zip(before, after, strict=True)) if None in pair]
    others = [pair for pair in zip(before, after, strict=True) if None not in pair]
    if any(one != other for one, other in others):
        return False
    return not unknown or (len(unknown) == 1 and all(one for one, _ in others))


def _types(graph: GraphProto) -> Iterator[tuple[str, TensorType]]:
    for tensor in graph.initializer:
        yield tensor.name, TensorType(tensor.data_type, tuple(tensor.dims))
    for info in (*graph.input, *graph.value_info, *graph.output):
        if _is_known(info):
            yield info.name, TensorType(info.type.tensor_type.elem_type, tensor_dims(info.type.tensor_type))


def _is_known(info: ValueInfoProto) -> bool:
    return info.type.HasField("tensor_type") and info.type.tensor_type.elem_type != 0
