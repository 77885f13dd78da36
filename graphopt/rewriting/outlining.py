"""From a match to a fused node and the function that gives it its meaning.

The function's body is the rule's body, specialised and flat: the variadic input spelled out, other fused operators
replaced by their own bodies, the model's own constants in place of the rule's, standard operators only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, helper

from graphopt.graph.attribute_sets import AttributeSet
from graphopt.graph.dataflow import DataflowGraph
from graphopt.matching.match import ABSENT, Match
from graphopt.rewriting.fused_node import Body, FusedNode
from graphopt.rewriting.remembering import Note, note, replaced_nodes
from graphopt.rule import PatternNode, Rule


class _Shape(NamedTuple):
    """What all matches of a rule share that have the same attributes and the same absent inputs."""

    attributes: AttributeSet
    """Those of the fused node."""
    body: Body
    notes: tuple[Note, ...]
    """One for each matched node."""


class Outliner:
    """Makes fused nodes, and keeps the bodies they share.

    A model has few shapes of matches and many matches of each, so all that depends on the shape is made once.
    """

    def __init__(self) -> None:
        self._bodies: dict[tuple[object, ...], Body] = {}
        self._shapes: dict[tuple[object, ...], _Shape] = {}

    def outline(self, match: Match, view: DataflowGraph) -> FusedNode:
        """The fused node for a match. It stands at the anchor's place and makes the anchor's output."""
        anchor = view.nodes[match.anchor]
        shape = self._shape(match, view)
        inputs, replaced = _call_inputs(match), replaced_nodes(match, view, shape.notes)
        return FusedNode(match.rule.key, anchor.name, inputs, anchor.outputs, shape.attributes, shape.body, replaced)

    def _shape(self, match: Match, view: DataflowGraph) -> _Shape:
        rule, values, view_nodes = match.rule, match.values, view.nodes
        nodes = [view_nodes[index] for index in match.nodes]
        # What a body depends on: the first five, and the bodies of fused nodes. The attributes are the call's affair.
        absent: tuple[str, ...] = ()
        if ABSENT in values.values():
            absent = tuple([name for name in rule.single_inputs if values[name] is ABSENT])
        constants = tuple([_digest(_constant_tensor(match, view, name)) for name in rule.constants])
        nested = tuple([node.body for node in nodes if isinstance(node, FusedNode)])
        body_key = rule, len(match.variadic), view.opset, absent, constants, nested
        key = (*body_key, *[node.attributes for node in nodes])
        shape = self._shapes.get(key)
        if shape is None:
            body = self._bodies.get(body_key)
            if body is None:
                body = self._bodies[body_key] = self._body(match, view, absent, nested)
            notes = tuple(note(rule, pattern, node) for pattern, node in zip(rule.body, nodes, strict=True))
            shape = self._shapes[key] = _Shape(AttributeSet(_call_attributes(match).values()), body, notes)
        return shape

    def _body(self, match: Match, view: DataflowGraph, absent: Iterable[str], nested: Sequence[Body]) -> Body:
        rule = match.rule
        constants = {name: _constant_tensor(match, view, name) for name in rule.constants}
        count = len(match.variadic) if rule.variadic else None
        functions = {
            pattern.outputs: node.body.function
            for pattern, index in zip(rule.body, match.nodes, strict=True)
            if isinstance(node := view.nodes[index], FusedNode)
        }
        without = frozenset(absent)
        function = specialise(rule, constants, functions, count, view.opset, without)
        dtypes = tuple(dict.fromkeys(_dtype_name(tensor) for tensor in constants.values()))
        without = without.union(*(inner.absent for inner in nested))
        label = ".".join(filter(None, [rule.label, *(inner.rule_label for inner in nested)]))
        return Body(rule.key, function, label, count, dtypes, view.opset, without)


def specialise(
    rule: Rule,
    constants: Mapping[str, TensorProto],
    nested: Mapping[tuple[str, ...], FunctionProto],
    variadic_count: int | None,
    opset: int,
    absent: Container[str] = (),
) -> FunctionProto:
    """The function that a rule becomes in a model: flat, standard operators only, for one number of variadic inputs.

    Args:
        rule: the rule.
        constants: the model's tensor for each constant of the rule.
        nested: the bodies of the fused operators in the rule's body, by the outputs of the pattern node.
        variadic_count: how many inputs the variadic input stands for; None where the rule has none.
        opset: the version of ONNX's operators in the scope that holds the match.
        absent: optional inputs that the matched nodes do not list; the body's nodes do not list them at their end
            either, since onnxruntime optimises `Conv(x, w)` otherwise than `Conv(x, w, "")`.
    """
    taken = {*rule.inputs, *rule.constants, *(name for pattern in rule.body for name in pattern.outputs)}
    spelled = [_free(f"{rule.variadic}_{place}", taken) for place in range(variadic_count or 0)]
    inputs = [name for formal in rule.inputs for name in (spelled if formal == rule.variadic else [formal])]
    function = FunctionProto(name=rule.op_type, domain=rule.domain, input=inputs, output=[rule.output])
    attributes = [*rule.attributes, *([f"{rule.variadic}_count"] if rule.variadic else [])]
    function.attribute.extend(attributes)
    function.attribute_proto.extend(rule.defaults.values())
    function.opset_import.add(domain="", version=opset)
    for name, tensor in constants.items():
        function.node.append(helper.make_node("Constant", [], [name], value=_unnamed(tensor)))
    for pattern in rule.body:
        names = [name for formal in pattern.inputs for name in (spelled if formal == rule.variadic else [formal])]
        while names and names[-1] in absent:
            names.pop()
        if pattern.domain == "":
            node = NodeProto(op_type=pattern.op_type, input=names, output=pattern.outputs)
            node.attribute.extend(_body_attributes(rule, pattern))
            function.node.append(node)
        else:
            function.node.extend(_spliced(nested[pattern.outputs], rule, pattern, names, taken))
    return function


def _free(wanted: str, taken: set[str]) -> str:
    """The wanted name, or one like it that the rule does not use itself; it is taken from then on."""
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted


def _body_attributes(rule: Rule, pattern: PatternNode) -> list[AttributeProto]:
    types = {
        attribute.name: attribute.type
        for node in rule.function.node
        if tuple(node.output) == pattern.outputs
        for attribute in node.attribute
    }
    references = [
        AttributeProto(name=name, ref_attr_name=target, type=types[name]) for name, target in pattern.references.items()
    ]
    return [*references, *pattern.exact.values()]


def _spliced(
    inner: FunctionProto, rule: Rule, pattern: PatternNode, inputs: Sequence[str], taken: set[str]
) -> list[NodeProto]:
    """The nodes of an inner fused operator's body, with the names and attributes of the outer one."""
    names = dict(zip(inner.input, [*inputs, *[""] * len(inner.input)], strict=False))
    names.update(zip(inner.output, pattern.outputs, strict=True))
    given = {attribute.name: attribute for attribute in _body_attributes(rule, pattern)}
    nodes: list[NodeProto] = []
    for old in inner.node:
        node = deepcopy(old)
        del node.input[:], node.output[:], node.attribute[:]
        node.input.extend(names.get(name, name) for name in old.input)
        for name in old.output:
            if name not in names:
                names[name] = _free(f"{pattern.outputs[0]}_{name}", taken)
            node.output.append(names[name])
        for attribute in old.attribute:
            if not attribute.ref_attr_name:
                node.attribute.append(attribute)
            elif attribute.ref_attr_name in given:
                outer = node.attribute.add()
                outer.CopyFrom(given[attribute.ref_attr_name])
                outer.name = attribute.name
        nodes.append(node)
    return nodes


def _call_inputs(match: Match) -> tuple[str, ...]:
    """The fused node's inputs: an absent one before a present one is '', one that the nodes did not list is left out
    at the end."""
    rule, values = match.rule, match.values
    inputs = [values[name] for name in rule.single_inputs]
    if rule.variadic is not None:
        place = rule.inputs.index(rule.variadic)
        inputs[place:place] = match.variadic
    while inputs and inputs[-1] is ABSENT:
        inputs.pop()
    return tuple([name or "" for name in inputs])


def _call_attributes(match: Match) -> dict[str, AttributeProto]:
    rule = match.rule
    attributes = {name: _renamed(match.attributes[name], name) for name in rule.attributes if name in match.attributes}
    for condition in rule.conditions:
        if condition.kind == "axis":  # it may have been written as a negative number
            name = rule.anchor.references["axis"]
            if attributes[name].i != condition.parameters["equals"]:
                attributes[name] = helper.make_attribute(name, condition.parameters["equals"])
    if rule.variadic is not None:
        name = f"{rule.variadic}_count"
        attributes[name] = helper.make_attribute(name, len(match.variadic))
    for name, default in rule.defaults.items():
        if name in match.attributes:
            attributes[name] = _renamed(match.attributes[name], name)
        elif name not in rule.optional:
            attributes[name] = default
    return attributes


def _renamed(attribute: AttributeProto, name: str) -> AttributeProto:
    if attribute.name == name:
        return attribute
    renamed = deepcopy(attribute)
    renamed.name = name
    return renamed


def _constant_tensor(match: Match, view: DataflowGraph, name: str) -> TensorProto:
    tensor = view.constant(match.values[name] or "")
    if tensor is None:
        raise AssertionError(f"{name!r} was matched as a constant")
    return tensor


def _unnamed(tensor: TensorProto) -> TensorProto:
    copy = deepcopy(tensor)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    return copy


def _digest(tensor: TensorProto) -> str:
    return hashlib.sha256(_unnamed(tensor).SerializeToString(deterministic=True)).hexdigest()


def _dtype_name(tensor: TensorProto) -> str:
    name: str = TensorProto.DataType.Name(tensor.data_type).lower()
    return name
