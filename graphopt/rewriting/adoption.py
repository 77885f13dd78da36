"""Fused nodes that a model already has: which of them are ours, and which only share the name.

A node is ours when its function is what one of the rules would have made of it, or when it has no function at all
(for engines with kernels). A function of the same name with another meaning makes its calls strangers: no rule sees
them, and no body of ours takes their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from graphopt.graph.conventions import STANDARD_DOMAINS, opset_versions
from graphopt.graph.model_walk import node_label
from graphopt.graph.scope import Node, Scope
from graphopt.rewriting.fused_node import Body, FusedNode
from graphopt.rewriting.outlining import specialise
from graphopt.rewriting.record import Replaced, read_record
from graphopt.rule import PatternNode, Rule

Key = tuple[str, str]
"""A function's domain, as spelled, and name."""


class Adopter:
    """Recognises the fused nodes of one model."""

    def __init__(self, model: ModelProto, rules: Sequence[Rule]) -> None:
        self._rules: dict[tuple[str, str], list[Rule]] = {}
        self._domains = {rule.domain for rule in rules}
        for rule in rules:
            self._rules.setdefault(rule.key, []).append(rule)
        self._functions: dict[Key, FunctionProto] = {
            (function.domain, function.name): function for function in model.functions
        }
        self._bodies: dict[tuple[object, ...], Body | None] = {}

    def adopt(self, scopes: Iterable[Scope]) -> None:
        """Replace every fused node of ours by a `FusedNode`, and give strangers their own domain back."""
        redefined = {name for domain, name in self._functions if domain in STANDARD_DOMAINS}
        for scope in scopes:
            for node in scope.nodes if redefined else ():
                if node.domain == "" and node.op_type in redefined:  # the model's own function, not ONNX's operator
                    node.domain = "ai.onnx (not ONNX's)"
            if any(node.domain in self._domains for node in scope.nodes):
                scope.nodes = [self._adopted(node, scope.opset) for node in scope.nodes]

    def _adopted(self, node: Node, opset: int) -> Node:
        if node.domain not in self._domains or isinstance(node, FusedNode):
            return node
        body = self._body_of(node, opset)
        if body is None:
            node.domain = f"{node.proto.domain} (not ours)"
            return node
        return _fused(node, body)

    def _body_of(self, node: Node, opset: int) -> Body | None:
        function = self._functions.get((node.proto.domain, node.op_type))
        count = _variadic_count(node)
        producer = node.attributes.get("producer_op")
        listed = tuple(map(bool, node.inputs))
        key = (node.proto.domain, node.op_type, count, producer.s if producer is not None else b"", opset, listed)
        if key not in self._bodies:
            self._bodies[key] = self._recognise(node, function, count, opset)
        return self._bodies[key]

    def _recognise(self, node: Node, function: FunctionProto | None, count: int | None, opset: int) -> Body | None:
        given = _constants(function) if function is not None else {}
        for rule in self._rules.get((node.domain, node.op_type), ()):
            if not _has_defaults(rule, node):
                continue
            version = opset if function is None else opset_versions(function).get("", opset)
            count = count if rule.variadic else None
            for absent in (_absent(rule, node, count), frozenset[str]()):
                for wanted in self._written(rule, given, "", count, version, absent):
                    if function is None or _same_body(wanted, function):
                        return Body(rule.key, function or wanted, rule.label, count, (), version, absent)
        return None

    def _written(
        self,
        rule: Rule,
        given: Mapping[str, TensorProto],
        prefix: str,
        count: int | None,
        opset: int,
        absent: frozenset[str],
    ) -> Iterator[FunctionProto]:
        """What a rule may have been written as, with the constants that the function has (`given`, by their names
        there, which begin with `prefix`): a fused operator in its body may be any of that operator's rules."""
        constants = {
            name: given.get(prefix + name) or numpy_helper.from_array(value) for name, value in rule.constants.items()
        }
        fused = [pattern for pattern in rule.body if pattern.domain in self._domains]
        choices = [list(self._written_inside(pattern, given, prefix, opset, absent)) for pattern in fused]
        for functions in product(*choices):
            nested = {pattern.outputs: function for pattern, function in zip(fused, functions, strict=True)}
            yield specialise(rule, constants, nested, count, opset, absent)

    def _written_inside(
        self,
        pattern: PatternNode,
        given: Mapping[str, TensorProto],
        prefix: str,
        opset: int,
        absent: frozenset[str],
    ) -> Iterator[FunctionProto]:
        for rule in self._rules.get((pattern.domain, pattern.op_type), ()):
            inputs = zip(rule.inputs, pattern.inputs, strict=False)
            without = frozenset(formal for formal, name in inputs if name in absent)
            yield from self._written(rule, given, f"{prefix}{pattern.outputs[0]}_", None, opset, without)


def _constants(function: FunctionProto) -> dict[str, TensorProto]:
    return {
        node.output[0]: node.attribute[0].t
        for node in function.node
        if node.op_type == "Constant" and len(node.attribute) == 1
    }


def _absent(rule: Rule, node: Node, variadic_count: int | None) -> frozenset[str]:
    """The rule's inputs that a fused node does not have."""
    formals = [
        name
        for formal in rule.inputs
        for name in ([formal] * (variadic_count or 0) if formal == rule.variadic else [formal])
    ]
    given = [*node.inputs, *[""] * len(formals)]
    return frozenset(formal for formal, name in zip(formals, given, strict=False) if not name)


def _variadic_count(node: Node) -> int | None:
    counts = [a.i for name, a in node.attributes.items() if name.endswith("_count")]
    return counts[0] if counts else None


def _has_defaults(rule: Rule, node: Node) -> bool:
    varying = {target for pattern in rule.body for target in pattern.references.values()}
    return all(
        name in node.attributes
        and helper.get_attribute_value(node.attributes[name]) == helper.get_attribute_value(default)
        for name, default in rule.defaults.items()
        if name not in varying
    )


def _same_body(one: FunctionProto, other: FunctionProto) -> bool:
    def text(function: FunctionProto) -> tuple[object, ...]:
        nodes = tuple(node.SerializeToString(deterministic=True) for node in function.node)
        return tuple(function.input), tuple(function.output), nodes

    return text(one) == text(other)


def _fused(node: Node, body: Body) -> FusedNode:
    replaced = read_record(node.proto) or made_up_record(node.proto, body.function)
    fused = FusedNode(
        (node.domain, node.op_type), node.name, node.inputs, node.outputs, node.attributes, body, replaced
    )
    fused.proto = node.proto
    return fused


def made_up_record(call: NodeProto, function: FunctionProto) -> tuple[Replaced, ...]:
    """Names for the nodes of a fused node that carries none: built on its own name, or on its output's."""
    label = node_label(call)
    outputs = dict(zip(function.output, call.output, strict=False))
    return tuple(
        Replaced(
            node.op_type,
            f"{label}/{node.op_type}_{place}",
            tuple(outputs.get(name) or f"{label}/{name}" for name in node.output),
        )
        for place, node in enumerate(function.node)
        if node.op_type != "Constant"
    )
