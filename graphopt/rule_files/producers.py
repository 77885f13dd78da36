"""Rules for every producer: a template that stands for one rule for each operator that may take part in it.

A template has a statement `tail = require.any_producer (producer)`. For each rule of the set that says
`= require.is_producer (y)` it becomes a rule in which that statement is a node of the other rule's operator, with all
its inputs in place of `producer` and all its attributes. So a new producer is one file, its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace

from onnx import AttributeProto, FunctionProto, NodeProto, helper

from graphopt.rule import Rule
from graphopt.rule_files.rule_text import RuleText

TEMPLATE = "any_producer"
MARK = "is_producer"
ATTRIBUTE = "producer_op"
"""The attribute of the fused operator that names the producer."""


def is_template(item: RuleText) -> bool:
    """Whether a function stands for one rule for each producer."""
    return _slot(item.function) is not None


def expand(template: RuleText, rules: Iterable[Rule]) -> list[RuleText]:
    """The functions that a template becomes, one for each signature of each producer among the rules.

    Raises:
        RuleError: a name of the template stands in a producer too.
    """
    producers: dict[tuple[object, ...], Rule] = {}
    for rule in rules:
        if any(condition.kind == MARK for condition in rule.conditions):
            producers.setdefault((rule.key, rule.inputs, rule.attributes), rule)
    operators = [rule.key for rule in producers.values()]
    return [
        replace(template, function=_written(template, rule, alone=operators.count(rule.key) == 1))
        for rule in producers.values()
    ]


def _slot(function: FunctionProto) -> NodeProto | None:
    return next((node for node in function.node if node.domain == "require" and node.op_type == TEMPLATE), None)


def _written(template: RuleText, producer: Rule, *, alone: bool) -> FunctionProto:
    function = deepcopy(template.function)
    slot = _slot(function)
    if slot is None or len(slot.input) != 1 or len(slot.output) != 1 or slot.input[0] not in function.input:
        raise template.error(
            f"{function.name} must have a statement `tail = require.{TEMPLATE} (producer)`, where `producer` is one "
            "of its inputs.",
            slot,
        )
    placeholder = slot.input[0]
    inputs = [name for old in function.input for name in (producer.inputs if old == placeholder else [old])]
    _check_names(template, producer, [*inputs, *slot.output, *function.output, *function.attribute])
    function.input[:] = inputs
    function.attribute.extend(producer.attributes)
    function.attribute_proto.extend(producer.defaults.values())
    function.attribute_proto.append(helper.make_attribute(ATTRIBUTE, producer.op_type))
    function.overload = producer.op_type if alone or not producer.label else f"{producer.op_type}.{producer.label}"
    if producer.domain not in {entry.domain for entry in function.opset_import}:
        function.opset_import.add(domain=producer.domain, version=1)
    slot.domain, slot.op_type = producer.domain, producer.op_type
    slot.input[:] = producer.inputs
    types = _attribute_types(producer)
    slot.attribute.extend(
        AttributeProto(name=name, ref_attr_name=name, type=types[name])
        for name in (*producer.attributes, *producer.defaults)
    )
    return function


def _check_names(template: RuleText, producer: Rule, names: Sequence[str]) -> None:
    clashing = next(
        (name for name in [*names, *producer.attributes] if [*names, *producer.attributes].count(name) > 1), ""
    )
    if clashing:
        raise template.error(
            f"{clashing!r} is a name of {template.function.name} and of its producer {producer.op_type} "
            f"({producer.source}:{producer.line}); rename one."
        )


def _attribute_types(rule: Rule) -> dict[str, AttributeProto.AttributeType]:
    return {
        attribute.ref_attr_name: attribute.type
        for node in rule.function.node
        for attribute in node.attribute
        if attribute.ref_attr_name
    }
