"""From the nodes of a match to what the fused node remembers of them, so that `unfuse` gives them back as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnx import NodeProto

from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.scope import Node
from graphopt.matching.match import Match
from graphopt.rewriting.fused_node import FusedNode
from graphopt.rewriting.record import NO_METADATA, Replaced
from graphopt.rule import PatternNode, Rule


class Note(NamedTuple):
    """What is to be remembered of a matched node because of its attributes: the same for all nodes that have those."""

    axis: int | None = None
    """Its axis, where the fused node states it otherwise."""
    attributes: tuple[str, ...] | None = None
    """Its attributes in their order, where inlining gives them in another."""
    written: frozenset[str] = frozenset()
    """Of a fused node: the attributes it lacks and the new fused node writes out."""


def note(rule: Rule, pattern: PatternNode, node: Node) -> Note:
    """What the attributes of a node give to remember, at its place in a rule's body."""
    if isinstance(node, FusedNode):
        written = {name for name, target in pattern.references.items() if target in rule.defaults}
        return Note(written=frozenset(written.difference(node.attributes)))
    normalised = pattern is rule.anchor and any(condition.kind == "axis" for condition in rule.conditions)
    axis = node.attributes["axis"].i if normalised else None
    return Note(axis if axis is not None and axis < 0 else None, _attribute_order(pattern, node))


def replaced_nodes(match: Match, view: DataflowGraph, notes: Sequence[Note]) -> tuple[Replaced, ...]:
    """The standard nodes that the fused node of a match stands for; `notes` has one entry for each matched node."""
    replaced: list[Replaced] = []
    rule, nodes = match.rule, view.nodes
    may_read_otherwise = bool(rule.constants or match.identities)
    for pattern, index, about in zip(rule.body, match.nodes, notes, strict=True):
        node = nodes[index]
        if isinstance(node, FusedNode):
            replaced += _without_written(node, about.written)
            continue
        proto, inputs, original_inputs = node.proto, node.inputs, node.original_inputs
        if original_inputs is None and may_read_otherwise:
            original_inputs = _remembered_inputs(match, view, pattern, node)
        domain, doc_string, entries = proto.domain, proto.doc_string, proto.metadata_props
        replaced.append(
            Replaced(
                node.op_type,
                node.name,
                node.outputs,
                original_inputs,
                pattern.is_commutative and inputs != tuple([match.values.get(name) for name in pattern.inputs]),
                len(inputs) if inputs and not inputs[-1] else None,
                about.axis,
                domain,
                doc_string,
                {entry.key: entry.value for entry in entries} if entries else NO_METADATA,
                _empty_fields(proto, node.name, domain, doc_string),
                about.attributes,
            )
        )
    replaced += [_passed_on(view.nodes[index]) for index in match.identities]
    return tuple(replaced)


def _passed_on(identity: Node) -> Replaced:
    proto = identity.proto
    return Replaced(
        identity.op_type,
        identity.name,
        identity.outputs,
        domain=proto.domain,
        doc_string=proto.doc_string,
        metadata={entry.key: entry.value for entry in proto.metadata_props} or NO_METADATA,
        empty=_empty_fields(proto, identity.name, proto.domain, proto.doc_string),
        passed_on=identity.inputs[0],
    )


def _without_written(node: FusedNode, written: frozenset[str]) -> Sequence[Replaced]:
    """The nodes that an inner fused node replaced; they note that they lack the attributes that the outer one writes
    out."""
    if not written:
        return node.replaced
    inner = [part for part in node.body.function.node if part.op_type != "Constant"]
    own = [item for item in node.replaced if not item.passed_on]
    if len(inner) != len(own):
        return node.replaced
    without = [
        item._replace(attributes=tuple(a.name for a in part.attribute if a.ref_attr_name in node.attributes))
        if any(a.ref_attr_name in written for a in part.attribute)
        else item
        for item, part in zip(own, inner, strict=True)
    ]
    return [*without, *(item for item in node.replaced if item.passed_on)]


def _remembered_inputs(match: Match, view: DataflowGraph, pattern: PatternNode, node: Node) -> tuple[str, ...] | None:
    """A node's inputs by name, where inlining would give others: the body has a constant in their place, or the match
    looks through an Identity."""
    if any(name in match.rule.constants for name in pattern.inputs):
        return node.inputs
    passed_on = {view.nodes[index].outputs[0] for index in match.identities}
    return None if passed_on.isdisjoint(node.inputs) else node.inputs


def _empty_fields(proto: NodeProto, name: str, domain: str, doc_string: str) -> tuple[str, ...]:
    """The fields of text that are written and empty, as some exporters do: a node is given back byte by byte."""
    empty: tuple[str, ...] = ()
    if not name and proto.HasField("name"):
        empty += ("name",)
    if not domain and proto.HasField("domain"):
        empty += ("domain",)
    if not doc_string and proto.HasField("doc_string"):
        empty += ("doc_string",)
    return empty


def _attribute_order(pattern: PatternNode, node: Node) -> tuple[str, ...] | None:
    names = tuple(node.attributes)
    if len(names) < 2 or names == tuple(name for name in (*pattern.references, *pattern.exact) if name in names):
        return None
    return names
