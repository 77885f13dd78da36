"""Where a rule's body occurs in a graph: pure, iterative, from the anchor backwards.

Backwards, because a value has one producer and many readers: each step is a look-up, never a search. The only choice
is the order of the operands of Add and Mul; every order is tried, in a fixed sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from onnx import AttributeProto, TensorProto, defs, numpy_helper

from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.identity_paths import IdentityPaths
from graphopt.graph.scope import Node
from graphopt.matching.attribute_matching import conflict, fit
from graphopt.matching.match import ABSENT, Bindings, Fault, Match, Mismatch
from graphopt.matching.quick_match import learn, quick_match
from graphopt.rule import PatternNode, Rule, Step


def match(rule: Rule, view: DataflowGraph, anchor: int) -> Iterator[Match | Mismatch]:
    """Every way, and every failed way, to lay the rule's body over the graph so that its last node is `anchor`."""
    quick = quick_match(rule, view, anchor)
    return search(rule, view, anchor) if quick is None else iter((quick,))


def search(rule: Rule, view: DataflowGraph, anchor: int) -> Iterator[Match | Mismatch]:
    """What `match` finds, without the short cut."""
    choices: list[bool] = []
    while True:
        found, made = attempt(rule, view, anchor, choices)
        yield found
        # The next assignment: the last choice that still has another side takes it, those behind it start afresh.
        while made and made[-1]:
            made.pop()
        if not made:
            return
        made[-1] = True
        choices = made


def likely_rules(rules: Sequence[Rule], view: DataflowGraph, anchor: int) -> Sequence[Rule]:
    """Those of an operator's rules that may match an anchor, see `may_match`."""
    told = _told_apart(tuple(rules))
    if told is None or view.paths is not None:
        return [rule for rule in rules if may_match(rule, view, anchor)]
    slot, by_operator = told
    inputs = view.nodes[anchor].inputs
    operator = view.operator_of(inputs[slot]) if -len(inputs) <= slot < len(inputs) else None
    return () if operator is None else by_operator.get(operator, ())


@lru_cache(maxsize=256)
def _told_apart(rules: tuple[Rule, ...]) -> tuple[int, dict[tuple[str, str], tuple[Rule, ...]]] | None:
    """Rules that the operator behind one input of the anchor tells apart, by that operator; None where it takes more.
    Templates make such rules, one for each producer."""
    if any(len(rule.expected) != 1 for rule in rules) or len({rule.expected[0][0] for rule in rules}) != 1:
        return None
    slot = rules[0].expected[0][0]
    if slot is None:
        return None
    operators = {rule.expected[0][1] for rule in rules}
    return slot, {key: tuple(rule for rule in rules if rule.expected[0][1] == key) for key in operators}


def may_match(rule: Rule, view: DataflowGraph, anchor: int) -> bool:
    """Whether the producers next to the anchor are those of the rule: a quick look before `match`."""
    inputs, operator_of = view.nodes[anchor].inputs, view.operator_of
    if view.paths is not None and rule.seen_through:
        inputs = tuple(map(view.paths.source, inputs))
    for slot, key in rule.expected:
        if slot is None:
            if key not in map(operator_of, inputs):
                return False
        elif not -len(inputs) <= slot < len(inputs) or operator_of(inputs[slot]) != key:
            return False
    return True


def attempt(
    rule: Rule, view: DataflowGraph, anchor: int, choices: Sequence[bool]
) -> tuple[Match | Mismatch, list[bool]]:
    """One assignment of operands: what comes of it, and the choices that were made (True: operands exchanged)."""
    producers, view_nodes, opset = view.producers, view.nodes, view.opset
    outputs = view_nodes[anchor].outputs
    values: Bindings = {rule.output: outputs[0] if outputs else ""}
    attributes: dict[str, AttributeProto | None] = {}
    nodes: list[int] = []
    made: list[bool] = []
    variadic: tuple[str, ...] = ()
    for step in rule.steps:
        pattern, output, inputs, variadic_place, only_binds = step
        if output is None:
            output = next(name for name in pattern.outputs if name in values)
        value = values[output] or ""
        index = producers.get(value)
        if index is None:
            unmade = Fault("{}", (_origin(view, value),), value, ", not made by")
            return Mismatch(rule, anchor, pattern, values, variadic, unmade), made
        node = view_nodes[index]
        if node.op_type != pattern.op_type or node.domain != pattern.domain:
            of_domain = " of domain {1.domain!r}" if node.domain else ""
            other = Fault("{0!r} is made by {1.title}" + of_domain, (value, node), value, ", not by")
            return Mismatch(rule, anchor, pattern, values, variadic, other), made
        nodes.append(index)
        fault: Fault | None = None
        if len(node.outputs) > 1 or len(pattern.outputs) > 1:
            fault = _bind_outputs(view, pattern, node, values)
        if fault is None:
            fault = _bind_attributes(opset, pattern, node, attributes)
        operands = node.inputs
        if pattern.is_commutative and len(operands) == 2 and operands[0] != operands[1]:
            made.append(len(made) < len(choices) and choices[len(made)])
            if made[-1]:
                operands = operands[::-1]
        if fault is None and variadic_place is not None:
            operands, variadic, fault = _take_variadic(step, node)
        if fault is None:
            if only_binds and view.paths is None and len(operands) == len(inputs) and "" not in operands:
                values.update(zip(inputs, operands, strict=True))
            else:
                fault = _bind_inputs(rule, view, step, node, operands, values)
        if fault is not None:
            return Mismatch(rule, anchor, pattern, values, variadic, fault), made
    nodes.reverse()
    passed = () if view.paths is None else _passed(rule, view.paths, values)
    found = Match(rule, anchor, tuple(nodes), values, variadic, attributes, passed)
    if rule.branches is not None:
        learn(found, view)
    return found, made


def _passed(rule: Rule, paths: IdentityPaths, values: Bindings) -> tuple[int, ...]:
    """The Identity nodes through which matched nodes read from each other."""
    return tuple(place for name in rule.seen_through for place in paths.passing(values.get(name) or ""))


def _bind_outputs(view: DataflowGraph, pattern: PatternNode, node: Node, values: Bindings) -> Fault | None:
    for slot, name in enumerate(pattern.outputs):
        actual = node.outputs[slot] if slot < len(node.outputs) else ""
        if not actual or values.setdefault(name, actual) != actual:
            return Fault("{.title} does not make {!r} as output {}", (node, name, slot), node.label)
    for extra in node.outputs[len(pattern.outputs) :]:
        if extra and view.read_count(extra):
            return Fault("{.title} has a further output {!r} that is read", (node, extra), extra)
    return None


def _bind_attributes(
    opset: int, pattern: PatternNode, node: Node, attributes: dict[str, AttributeProto | None]
) -> Fault | None:
    bound, fault = fit(pattern, node, opset)
    if fault is None and not attributes.keys().isdisjoint(bound):
        fault = conflict(pattern, bound, attributes)
    if fault is not None:
        return Fault("{.title} {}", (node, fault), node.label)
    attributes.update(bound)
    return None


def _take_variadic(step: Step, node: Node) -> tuple[tuple[str, ...], tuple[str, ...], Fault | None]:
    """Part a node's inputs: those of fixed meaning, and those that the variadic input stands for."""
    inputs, place = node.inputs, step.variadic_place or 0
    end = len(inputs) - (len(step.inputs) - place)
    if end < place:
        fault = Fault("{.title} has {} inputs, fewer than the rule needs", (node, len(inputs)), node.label)
        return (), (), fault
    if "" in inputs[place:end]:
        return (), (), Fault("{.title} lacks one of its inputs", (node,), node.label)
    return inputs[:place] + inputs[end:], inputs[place:end], None


def _bind_inputs(
    rule: Rule, view: DataflowGraph, step: Step, node: Node, operands: tuple[str, ...], values: Bindings
) -> Fault | None:
    """Bind the inputs of one matched node; the reason and the place where they do not fit."""
    names, pattern = step.inputs, step.pattern
    listed = len(operands)
    if listed > len(names) and any(operands[len(names) :]):
        return Fault("{.title} has {} inputs, more than the rule knows", (node, listed), node.label)
    for slot, name in enumerate(names):
        actual = operands[slot] if slot < listed else ABSENT
        if view.paths is not None and actual and name in rule.seen_through:
            actual = view.paths.source(actual)
        if name == "":
            if actual:
                return Fault("{.title} has an input {!r} where the rule has none", (node, actual), actual)
        elif not actual and not (name in rule.inputs and _may_be_absent(pattern.domain, pattern.op_type, slot)):
            return Fault("{.title} lacks its input {}", (node, slot), node.label)
        elif name in values:
            if (values[name] or "") != (actual or ""):
                about = (node, actual, values[name])
                return Fault("{.title} reads {!r} where the pattern has {!r} again", about, str(actual))
        else:
            if name in rule.constants:
                others = [other for other in operands if other != actual]
                fault = _constant_fault(view, rule.constants[name], str(actual), others)
                if fault:
                    return Fault("{}", (fault,), str(actual))
            values[name] = actual
    return None


@lru_cache(maxsize=4096)
def _may_be_absent(domain: str, op_type: str, slot: int) -> bool:
    """Whether an input may be left out; of a fused operator, that was looked at when it was made."""
    if domain != "":
        return True
    inputs = defs.get_schema(op_type).inputs
    return slot < len(inputs) and inputs[slot].option == defs.OpSchema.FormalParameterOption.Optional


def _constant_fault(view: DataflowGraph, wanted: np.ndarray, value: str, others: list[str]) -> str | None:
    """Why a value of the graph is not the rule's constant; None where it is."""
    tensor = view.constant(value)
    if tensor is None:
        return f"{value!r} is not a constant, the rule asks for {wanted.item():g}"
    if int(np.prod(tensor.dims)) != 1 or tensor.data_location == TensorProto.EXTERNAL:
        return f"{value!r} has shape {list(tensor.dims)}, the rule asks for the number {wanted.item():g}"
    array = numpy_helper.to_array(tensor).reshape(())
    if not same_after_rounding(wanted, array):
        return f"{value!r} is {array}, the rule asks for {wanted.item():g}"
    if len(tensor.dims) > 0:
        ranks = [rank for other in others if (rank := view.rank(other)) is not None]
        if not ranks or max(ranks) < len(tensor.dims):
            return f"{value!r} has shape {list(tensor.dims)}, which may raise the rank of the result"
    return None


def same_after_rounding(wanted: np.ndarray, found: np.ndarray) -> bool:
    """Whether a number written in a rule (float32) is the model's number, in the precision both can hold."""
    if found.dtype == np.float64:
        return bool(found.astype(np.float32) == wanted)
    if found.dtype.kind in "iu":
        return bool(found.astype(np.float64) == wanted.astype(np.float64))
    return bool(wanted.astype(found.dtype) == found)


def _origin(view: DataflowGraph, value: str) -> str:
    if not value:
        return "the value is absent"
    if value in view.scope.inputs:
        return f"{value!r} is an input"
    return f"{value!r} is a constant" if view.constant(value) is not None else f"{value!r} is captured"
