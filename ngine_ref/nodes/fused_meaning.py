"""What a fused operator stands for, in standard operators: to tell whether a model's function is that operator.

The name `ai.ngine::ConvLeakyRelu` alone proves nothing: a model may have a function of that name with another body.
A kernel may stand in for the call only if the body, with the call's inputs and attributes put in, is the very
sequence of standard nodes that the kernel computes, so that it also has the same bits. (Some operators have bodies of
several forms, Gelu spelt out with Erf for example. Those are run as they are written.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from onnx import defs, helper

from ngine_ref.errors import OperatorError
from ngine_ref.loading.graph import Node
from ngine_ref.registry import Call


class Part(NamedTuple):
    """A standard node of a definition."""

    op_type: str
    """The operator of ONNX."""
    operands: tuple[int | str, ...]
    """An input slot of the fused operator; or `%0`, `%1` ..., the result of an earlier part."""
    attributes: tuple[str, ...] = ()
    """Those that the fused operator hands on to it."""


_CONV = Part("Conv", (0, 1, 2), ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"))
_MEANINGS: dict[str, tuple[Part, ...]] = {
    "Conv": (_CONV,),
    "ConvAdd": (_CONV, Part("Add", ("%0", 3))),
    "ConvAddRelu": (_CONV, Part("Add", ("%0", 3)), Part("Relu", ("%1",))),
    "ConvClip": (_CONV, Part("Clip", ("%0", 3, 4), ("min", "max"))),
    "ConvGelu": (_CONV, Part("Gelu", ("%0",), ("approximate",))),
    "ConvHardSigmoid": (_CONV, Part("HardSigmoid", ("%0",), ("alpha", "beta"))),
    "ConvHardSwish": (_CONV, Part("HardSwish", ("%0",))),
    "ConvLeakyRelu": (_CONV, Part("LeakyRelu", ("%0",), ("alpha",))),
    "ConvMish": (_CONV, Part("Mish", ("%0",))),
    "ConvMulAdd": (_CONV, Part("Mul", ("%0", 3)), Part("Add", ("%1", 4))),
    "ConvPRelu": (_CONV, Part("PRelu", ("%0", 3))),
    "ConvRelu": (_CONV, Part("Relu", ("%0",))),
    "ConvSiLU": (_CONV, Part("Sigmoid", ("%0",)), Part("Mul", ("%0", "%1"))),
    "ConvSigmoid": (_CONV, Part("Sigmoid", ("%0",))),
    "ConvTanh": (_CONV, Part("Tanh", ("%0",))),
    "GemmRelu": (Part("Gemm", (0, 1, 2), ("alpha", "beta", "transA", "transB")), Part("Relu", ("%0",))),
    "MatMulAdd": (Part("MatMul", (0, 1)), Part("Add", ("%0", 2))),
    "MulAdd": (Part("Mul", (0, 1)), Part("Add", ("%0", 2))),
    "MulSub": (Part("Mul", (0, 1)), Part("Sub", ("%0", 2))),
}


def define_activation(op_type: str, activation: str, attributes: Sequence[str] = ()) -> None:
    """State that a fused operator is a Conv followed by one operator of ONNX, which takes these of its attributes."""
    _MEANINGS[op_type] = (_CONV, Part(activation, ("%0",), tuple(attributes)))


def meaning(op_type: str) -> tuple[Part, ...]:
    """The standard nodes that a fused operator stands for, in order; none if it is not defined here."""
    return _MEANINGS.get(op_type, ())


_COMMUTATIVE = frozenset({"Add", "Mul"})

_Written = tuple[str, tuple[str, ...], Mapping[str, Any]]
"""A node with actual names, `%0`, `%1` ... for results of earlier nodes, and the attributes that say anything."""


def is_meaning_of(call: Node, body: Sequence[Node]) -> bool:
    """Whether the inlined body of a call of a fused operator is what that operator is defined as."""
    if complaint(call.op_type, len(call.inputs), call.attributes):
        return False  # the kernel would refuse it
    expected = _definition(call)
    if len(expected) != len(body) or not body:
        return False
    names: dict[str, str] = {}
    for number, (node, written) in enumerate(zip(body, expected, strict=True)):
        operands = [names.get(name, name) for name in node.inputs]
        if node.domain or _written(node.op_type, operands, node.attributes) != written:
            return False
        names[node.outputs[0]] = f"%{number}"
    return body[-1].outputs == call.outputs


def check_interface(call: Call) -> None:
    """Compare a call of a fused operator with what its definition reads.

    Raises:
        OperatorError: it has an input or attribute that the definition has no use for: a misspelt one.
    """
    sentence = complaint(call.op_type, len(call.inputs), call.attributes)
    if sentence:
        raise OperatorError(sentence)


def complaint(op_type: str, input_count: int, attributes: Mapping[str, Any]) -> str:
    """A sentence about an input or attribute that a fused operator has no use for, a misspelt one; else nothing."""
    if op_type == "ConcatFusedTail":
        count, producer_op = attributes.get("prefix_count", 0), attributes.get("producer_op", "")
        if not isinstance(count, int) or not isinstance(producer_op, str):
            return f"ConcatFusedTail: prefix_count is {count!r} and producer_op {producer_op!r}, a number and a name."
        return complaint(producer_op, input_count - count, tail_attributes(attributes))
    parts = _MEANINGS.get(op_type, ())
    known = {name for part in parts for name in part.attributes}
    unknown = sorted(set(attributes) - known)
    most = 1 + max((slot for part in parts for slot in part.operands if isinstance(slot, int)), default=input_count)
    if parts and unknown:
        return f"{op_type} has no attribute {unknown[0]!r}."
    return f"{op_type} takes at most {most} inputs, got {input_count}." if input_count > most else ""


def tail_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a `ConcatFusedTail` hands on to its producer."""
    own = ("axis", "prefix_count", "producer_op")
    return {name: value for name, value in attributes.items() if name not in own}


def _definition(call: Node) -> list[_Written]:
    """The standard nodes that the call stands for; none if the operator is not defined here."""
    if call.op_type != "ConcatFusedTail":
        return _filled_in(call.op_type, call.inputs, call.attributes)
    count = call.attributes.get("prefix_count", 0)
    parts = _filled_in(call.attributes.get("producer_op", ""), call.inputs[count:], call.attributes)
    tail = f"%{len(parts) - 1}"
    return [*parts, _written("Concat", [*call.inputs[:count], tail], {"axis": call.attributes.get("axis", 1)})]


def _filled_in(op_type: str, inputs: Sequence[str], attributes: Mapping[str, Any]) -> list[_Written]:
    def actual(operand: int | str) -> str:
        if isinstance(operand, str):
            return operand
        return inputs[operand] if operand < len(inputs) else ""

    return [
        _written(
            part.op_type,
            [actual(operand) for operand in part.operands],
            {name: attributes[name] for name in part.attributes if name in attributes},
        )
        for part in _MEANINGS.get(op_type, ())
    ]


def _written(op_type: str, operands: Sequence[str], attributes: Mapping[str, Any]) -> _Written:
    names = list(operands)
    while names and not names[-1]:
        names.pop()
    if op_type in _COMMUTATIVE:
        names.sort()
    return (
        op_type,
        tuple(names),
        {name: value for name, value in attributes.items() if value != _default(op_type, name)},
    )


@cache
def _default(op_type: str, attribute: str) -> Any:
    """The value that an absent attribute stands for, None where that depends on something else."""
    known = defs.get_schema(op_type).attributes.get(attribute)
    if known is None or not known.default_value.type:
        return None
    value = helper.get_attribute_value(known.default_value)
    return value.decode() if isinstance(value, bytes) else value
