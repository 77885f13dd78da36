"""The attributes of nodes, one object for all nodes that have the same.

A model of a hundred thousand nodes has a handful of different attribute lists. Whatever follows from a list alone
(does it fit a rule, what does the fused node get from it) is then worked out once for each list, not for each node.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from onnx import AttributeProto, NodeProto, defs

from graphopt.graph.conventions import standard_name

_HOLDER_TYPES = frozenset(
    {
        defs.OpSchema.AttrType.GRAPH,
        defs.OpSchema.AttrType.GRAPHS,
        defs.OpSchema.AttrType.TENSOR,
        defs.OpSchema.AttrType.TENSORS,
        defs.OpSchema.AttrType.SPARSE_TENSOR,
        defs.OpSchema.AttrType.SPARSE_TENSORS,
    }
)

defs.has("Identity")  # onnx registers all schemas when first asked for one: that is for importing, not for a model

_serialize = AttributeProto.SerializePartialToString


class AttributeSet(dict[str, AttributeProto]):
    """The attributes of a node by name. Shared by nodes, so nobody changes it."""

    __slots__ = ("fits", "integers")

    def __init__(self, attributes: Iterable[AttributeProto]) -> None:
        super().__init__({attribute.name: attribute for attribute in attributes})
        self.fits: dict[Any, Any] = {}
        """What the matcher found out about these attributes, see `attribute_matching`."""
        self.integers: dict[str, int | None] = {}

    def integer(self, name: str) -> int | None:
        """The number of that name; None where there is none, or where it is a parameter of a function."""
        if name not in self.integers:
            attribute = self.get(name)
            self.integers[name] = None if attribute is None or attribute.ref_attr_name else attribute.i
        return self.integers[name]

    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has None there
    """By identity, which is quick: the equal sets of one model are one object."""


class AttributeSets:
    """The attribute sets of one model."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], AttributeSet] = {}

    def of(self, proto: NodeProto) -> AttributeSet:
        """The attributes of a node; nodes whose attributes are equal bit by bit and in order get one object."""
        attributes = proto.attribute
        key = tuple(map(_serialize, attributes))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = AttributeSet(attributes)
        return found


@lru_cache(maxsize=4096)
def may_hold(domain: str, op_type: str) -> bool:
    """Whether attributes of this operator may hold graphs or tensors; of an operator unknown to onnx, they may."""
    if not (isinstance(domain, str) and isinstance(op_type, str)):  # not UTF-8 in the file; the checks refuse it
        return True
    standard = standard_name(domain)
    if not defs.has(op_type, standard):
        return True
    return any(attribute.type in _HOLDER_TYPES for attribute in defs.get_schema(op_type, standard).attributes.values())
