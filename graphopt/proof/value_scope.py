"""What surrounds a list of nodes while it is numbered: the values it sees, what its operators mean, who calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnx import FunctionProto, GraphProto, ValueInfoProto

from graphopt.graph.value_types import ValueTypes
from graphopt.proof.node_reading import Dialect
from graphopt.proof.operation_identity import Attributes

ABSENT = 0
"""The number of an optional input that is not there."""


class Values(dict[str, int]):
    """The numbers of a scope's values by name; what it lacks is looked up in the scopes around it."""

    __slots__ = ("_outer", "_unmade")

    def __init__(self, unmade: Callable[[str], int], outer: Values | None = None) -> None:
        self._unmade = unmade
        self._outer = outer

    def __missing__(self, name: str) -> int:
        scope = self._outer
        while scope is not None:
            number = scope.get(name)
            if number is not None:
                return number
            scope = scope._outer
        return self._unmade(name)


@dataclass(slots=True, eq=False)
class Scope:
    """A list of nodes that is being numbered, and what surrounds it."""

    values: Values
    dialect: Dialect
    declarations: GraphProto | FunctionProto
    """Where value_info may tell a rank."""
    bindings: Attributes | None = None
    level: int = 0
    """How many bodies lie around it: their inputs are told apart by level and position."""
    caller: Scope | None = None
    """Of an inlined call: the scope of the call; the call's values go by the names they have there."""
    outputs: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Of an inlined call: the names of its outputs here, and those that they have there."""
    types: ValueTypes | None = None
    """What is known of the values' types; None inside functions."""
    impure: bool = False
    """Whether anything inside is numbered by name."""
    _ranks: dict[str, int | None] | None = None

    def whole_name(self, name: str) -> tuple[str, ...]:
        """The value's name, made unique among those of this graph: inside a call it begins with the call's output."""
        scope = self
        inner: tuple[str, ...] = ()
        while scope.caller is not None:
            renamed = dict(zip(*scope.outputs, strict=False))
            if not renamed.get(name):
                inner = ("inside", name, *inner)
                name = next(iter(renamed.values()), "")
            else:
                name = renamed[name]
            scope = scope.caller
        return (name, *inner)

    def declared_rank(self, name: str) -> int | None:
        """The rank that value_info, or the declaration of an input or output, gives a value of this scope."""
        if self._ranks is None:
            declared = [*self.declarations.value_info]
            if isinstance(self.declarations, GraphProto):
                declared += [*self.declarations.input, *self.declarations.output]
            self._ranks = {info.name: declared_rank(info) for info in declared}
        return self._ranks.get(name)


def declared_rank(info: ValueInfoProto) -> int | None:
    """The rank of a tensor whose shape is declared, else None."""
    tensor = info.type.tensor_type
    return len(tensor.shape.dim) if tensor.HasField("shape") else None
