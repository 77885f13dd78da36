"""The matcher's short cut: a rule without choices, at an anchor whose attributes fitted it before.

That is nearly every match of a large model. Where it finds one, `matcher.attempt` would find the same; where it finds
none, it says nothing about that. The rule's body is a tree here, walked from the anchor on, and all values are bound at
once.
"""

from __future__ import annotations

from graphopt.graph.attribute_sets import AttributeSet
from graphopt.graph.dataflow import DataflowGraph
from graphopt.matching.match import Bindings, Match
from graphopt.rule import Rule


def quick_match(rule: Rule, view: DataflowGraph, anchor: int) -> Match | None:
    """The rule's only match at an anchor, or None where that takes a closer look."""
    branches = rule.branches
    if branches is None or view.paths is not None:
        return None
    producers, nodes = view.producers, view.nodes
    node = nodes[anchor]
    first, outputs, operands = node.attributes, node.outputs, list(node.inputs)
    step = rule.steps[0]
    variadic: tuple[str, ...] = ()
    if step.variadic_place is not None:
        begin, end = step.variadic_place, len(operands) - len(step.inputs) + step.variadic_place
        variadic = node.inputs[begin:end]
        del operands[begin:end]
    if len(operands) != len(step.inputs) or len(outputs) != 1:
        return None
    places = [anchor]
    attributes: list[AttributeSet] = []
    for domain, op_type, operand, count in branches:
        place = producers.get(operands[operand])
        if place is None:
            return None
        node = nodes[place]
        operands += node.inputs
        if node.op_type != op_type or node.domain != domain or len(operands) != count or len(node.outputs) != 1:
            return None
        places.append(place)
        attributes.append(node.attributes)
    bound = first.fits.get((rule, view.scope.opset, *attributes))
    if bound is None or "" in operands or "" in variadic:
        return None
    places.reverse()
    values: Bindings = dict(zip(rule.operands, operands, strict=True))
    values[rule.output] = outputs[0]
    return Match(rule, anchor, tuple(places), values, variadic, bound)


def learn(found: Match, view: DataflowGraph) -> None:
    """Remember that nodes with the attributes of these fit the rule. The first of them keeps it, and goes with its
    model."""
    first, *others = [view.nodes[place].attributes for place in reversed(found.nodes)]
    first.fits[found.rule, view.scope.opset, *others] = found.bound
