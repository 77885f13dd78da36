"""Whether the attributes of a node fit a node of a rule's body, and what they give to the rule's own attributes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from onnx import AttributeProto, defs, helper

from graphopt.graph.scope import Node
from graphopt.rule import PatternNode

Attributes = Mapping[str, AttributeProto | None]
"""The rule's attributes met so far; None where a node lacks it, and so must every other that shares it."""


class Fit(NamedTuple):
    """What becomes of one attribute set at one node of a body."""

    bound: Attributes
    """The rule's attributes, by the rule's names."""
    fault: str | None
    """What does not fit, to follow the node's title; None where all does."""


def fit(pattern: PatternNode, node: Node, opset: int) -> Fit:
    """How the attributes of a node fit a node of a body. Asked for every node and worked out for every attribute set:
    that makes the attributes as good as free in a model that repeats itself."""
    given = node.attributes
    known: Fit | None = given.fits.get((pattern, opset))
    if known is None:
        known = given.fits[pattern, opset] = _fit(pattern, node, opset)
    return known


def _fit(pattern: PatternNode, node: Node, opset: int) -> Fit:
    given = node.attributes
    bound: dict[str, AttributeProto | None] = {}
    for name in given.keys() - pattern.known_attributes:
        default = _schema_default(pattern.op_type, pattern.domain, opset, name)
        if default is None or not same_value(default, given[name]):
            return Fit(bound, f"has {_shown(given[name])}, which the rule does not know")
    for name, target in pattern.references.items():
        if not same_or_absent(bound.setdefault(target, given.get(name)), given.get(name)):
            return Fit(bound, other_value(name))
    for name, wanted in pattern.exact.items():
        found = given.get(name) or _schema_default(pattern.op_type, pattern.domain, opset, name)
        if found is None or not same_value(wanted, found):
            shown = _shown(found) if found is not None else f"no {name}"
            return Fit(bound, f"has {shown}, the rule asks for {_shown(wanted)}")
    return Fit(bound, None)


def conflict(pattern: PatternNode, bound: Attributes, before: Attributes) -> str | None:
    """What is wrong with a node that has other attributes than one after it in the pattern that shares them."""
    for name, target in pattern.references.items():
        if target in before and not same_or_absent(before[target], bound[target]):
            return other_value(name)
    return None


def other_value(name: str) -> str:
    """What is said of a node whose attribute another node of the pattern has otherwise."""
    return f"has another {name} than the node after it in the pattern"


def same_or_absent(one: AttributeProto | None, other: AttributeProto | None) -> bool:
    """Whether two attributes have the same value, or are both missing."""
    return one is other or (one is not None and other is not None and same_value(one, other))


def same_value(one: AttributeProto, other: AttributeProto) -> bool:
    """Whether two attributes have the same type and value; a reference equals only the same reference."""
    if one.ref_attr_name or other.ref_attr_name:
        return bool(one.ref_attr_name == other.ref_attr_name and one.type == other.type)
    return bool(one.type == other.type and helper.get_attribute_value(one) == helper.get_attribute_value(other))


def _shown(attribute: AttributeProto) -> str:
    if attribute.ref_attr_name:
        return f"{attribute.name} = @{attribute.ref_attr_name}"
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return f"{attribute.name} = {value if isinstance(value, int | float | str | list) else '...'}"


@lru_cache(maxsize=4096)
def _schema_default(op_type: str, domain: str, opset: int, name: str) -> AttributeProto | None:
    if not opset or domain != "" or not defs.has(op_type, opset, domain):
        return None
    attribute = defs.get_schema(op_type, opset, domain).attributes.get(name)
    if attribute is None or attribute.default_value.type == AttributeProto.UNDEFINED:
        return None
    return attribute.default_value
