"""The matcher's short cut: a rule without choices, at nodes whose attributes fitted it before.

That is nearly every match of a large model. Where it finds one, `matcher.attempt` would find the same; where it finds
none, it says nothing about that. The rule's body is a tree here, walked from the anchor on, and all values are bound at
once.
"""

from __future__ import annotations

from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.scope import Node
from graphopt.matching.match import ABSENT, Bindings, Match
from graphopt.rule import Rule


def quick_match(rule: Rule, view: DataflowGraph, anchor: int) -> Match | None:
    """The rule's only match at an anchor, or None where that takes a closer look."""
    branches = rule.branches
    if branches is None or view.paths is not None:
        return None
    producers, nodes = view.producers, view.nodes
    node = nodes[anchor]
    step = rule.steps[0]
    operands: list[str | None] = [*node.inputs]
    variadic: tuple[str, ...] = ()
    if step.variadic_place is not None:
        begin, end = step.variadic_place, len(operands) - len(step.inputs) + step.variadic_place
        variadic = node.inputs[begin:end]
        del operands[begin:end]
    if len(operands) != len(step.inputs) or node.op_type != rule.anchor.op_type or node.domain != rule.anchor.domain:
        return None
    matched, places = [node], [anchor]
    for domain, op_type, operand, count in branches:
        place = producers.get(operands[operand] or "")
        if place is None:
            return None
        node = nodes[place]
        if node.op_type != op_type or node.domain != domain or len(node.inputs) > count:
            return None
        operands += node.inputs
        if len(node.inputs) < count:
            operands += [ABSENT] * (count - len(node.inputs))
        matched.append(node)
        places.append(place)
    bound = matched[0].attributes.fits.get(_form(rule, view, matched))
    if bound is None or "" in operands or "" in variadic or not matched[0].outputs[0]:
        return None
    places.reverse()
    values: Bindings = dict(zip(rule.operands, operands, strict=True))
    values[rule.output] = matched[0].outputs[0]
    return Match(rule, anchor, tuple(places), values, variadic, bound)


def learn(found: Match, view: DataflowGraph) -> None:
    """Remember that nodes of this form match the rule. The anchor's attributes keep it, and go with their model."""
    matched = [view.nodes[place] for place in reversed(found.nodes)]
    if all(len(node.outputs) == 1 for node in matched):
        matched[0].attributes.fits[_form(found.rule, view, matched)] = found.bound


def _form(rule: Rule, view: DataflowGraph, matched: list[Node]) -> tuple[object, ...]:
    """What decides, beside the operators, whether nodes match and what attributes are bound.

    The anchor stands for itself, and how many inputs it has is checked.
    """
    form: list[object] = [rule, view.opset, len(matched[0].outputs)]
    for node in matched[1:]:
        form += node.attributes, len(node.inputs), len(node.outputs)
    return tuple(form)
