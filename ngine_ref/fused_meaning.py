"""What a fused operator stands for, in standard operators: to tell whether a model's function is that operator.

The name `ai.ngine::ConvLeakyRelu` alone proves nothing: a model may have a function of that name with another body.
A kernel may stand in for the call only if the body, with the call's inputs and attributes put in, is the very
sequence of standard nodes that the operator is defined as.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngine_ref.graph import Node

CONVOLUTION_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_DEFAULTS = {"auto_pad": "NOTSET", "group": 1, "alpha": float(np.float32(0.01))}
_COMMUTATIVE = frozenset({"Add", "Mul"})

_Part = tuple[str, tuple[str, ...], Mapping[str, Any]]
"""Operator, inputs, attributes; `%0`, `%1` ... name the result of an earlier part."""


def is_meaning_of(call: Node, body: Sequence[Node]) -> bool:
    """Whether the inlined body of a call of a fused operator is what that operator is defined as."""
    expected = _meaning(call)
    if expected is None or len(expected) != len(body):
        return False
    names: dict[str, str] = {}
    for number, (node, part) in enumerate(zip(body, expected, strict=True)):
        if node.domain or _canonical(node, names) != _sorted_if_commutative(part):
            return False
        names[node.outputs[0]] = f"%{number}"
    return body[-1].outputs == call.outputs


def _meaning(call: Node) -> list[_Part] | None:
    """The definition of the fused operators, in standard nodes; None for an operator that is not defined here."""
    attributes = call.attributes
    if call.op_type == "MulAdd" and len(call.inputs) == 3:
        a, b, c = call.inputs
        return [("Mul", (a, b), {}), ("Add", ("%0", c), {})]
    if call.op_type in ("ConvLeakyRelu", "ConvPRelu"):
        return _producer(call.op_type, call.inputs, attributes)
    if call.op_type == "ConcatFusedTail":
        count = attributes.get("prefix_count", 0)
        parts = _producer(attributes.get("producer_op", ""), call.inputs[count:], attributes)
        if parts is None:
            return None
        tail = f"%{len(parts) - 1}"
        return [*parts, ("Concat", (*call.inputs[:count], tail), {"axis": attributes.get("axis", 1)})]
    return None


def _producer(op_type: str, inputs: tuple[str, ...], attributes: Mapping[str, Any]) -> list[_Part] | None:
    convolution = {key: attributes[key] for key in CONVOLUTION_ATTRIBUTES if key in attributes}
    if op_type == "Conv":
        return [("Conv", _stripped(inputs), _stated(convolution))]
    if op_type == "ConvLeakyRelu":
        alpha = {"alpha": attributes["alpha"]} if "alpha" in attributes else {}
        return [("Conv", _stripped(inputs), _stated(convolution)), ("LeakyRelu", ("%0",), _stated(alpha))]
    if op_type == "ConvPRelu" and len(inputs) == 4:
        return [("Conv", _stripped(inputs[:3]), _stated(convolution)), ("PRelu", ("%0", inputs[3]), {})]
    return None


def _canonical(node: Node, names: Mapping[str, str]) -> _Part:
    inputs = tuple(names.get(name, name) for name in _stripped(node.inputs))
    return _sorted_if_commutative((node.op_type, inputs, _stated(node.attributes)))


def _sorted_if_commutative(part: _Part) -> _Part:
    op_type, inputs, attributes = part
    return (op_type, tuple(sorted(inputs)), attributes) if op_type in _COMMUTATIVE else part


def _stripped(inputs: Sequence[str]) -> tuple[str, ...]:
    """Without absent inputs at the end."""
    names = list(inputs)
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def _stated(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Without attributes that say what holds anyway."""
    return {key: value for key, value in attributes.items() if key not in _DEFAULTS or _DEFAULTS[key] != value}
