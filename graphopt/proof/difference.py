"""Where two expressions part, in a sentence. Only looked for when a certificate fails."""

from __future__ import annotations

from graphopt.proof.attribute_identity import attribute_text
from graphopt.proof.expressions import Expressions
from graphopt.proof.operation_identity import Kind, Operation
from graphopt.proof.tensor_identity import Identity, describe
from graphopt.proof.value_numbering import NumberedModel


def first_difference(expressions: Expressions, before: NumberedModel, old: int, new: int) -> str:
    """Follow two different numbers down to operations that differ themselves, and say in what.

    Args:
        expressions: those of both models.
        before: the original, which knows names for the values that a fused node hides.
        old: the number in the original.
        new: the number in the rewritten model.
    """
    names: dict[int, str] = {}
    for name, number in before.values.items():
        names.setdefault(number, name)
    nearest = ""
    while True:
        nearest = names.get(old, nearest)
        deeper = _deeper(expressions, old, new)
        if deeper is None:
            return _describe_difference(expressions, names, nearest, old, new)
        old, new = deeper


def _deeper(expressions: Expressions, old: int, new: int) -> tuple[int, int] | None:
    """The first operands that differ, when the operations themselves do not."""
    before, after = expressions[old], expressions[new]
    if before[0] != after[0] or len(before) != len(after):
        return None
    if before[0] == "output" and before[1] == after[1]:
        return before[2], after[2]
    if before[0] in ("body", "signature"):
        place = 2 if before[0] == "body" else 3
        return None if before[1:place] != after[1:place] else _first_pair(before[place:], after[place:])
    operation = expressions.operation(old)
    if operation is None:
        return None
    pairs_old, pairs_new = _operands(before), _operands(after)
    if len(pairs_old) != len(pairs_new):
        return None
    if operation.kind is Kind.UNORDERED:
        return _unordered_pair(expressions, pairs_old, pairs_new)
    if sorted(pairs_old) == sorted(pairs_new) and pairs_old != pairs_new:
        return None
    return _first_pair(pairs_old, pairs_new) or _first_inner_pair(before, after)


def _operands(expression: Identity) -> list[int]:
    return [part for part in expression[1:] if isinstance(part, int)]


def _first_pair(old: Identity | list[int], new: Identity | list[int]) -> tuple[int, int] | None:
    return next(((a, b) for a, b in zip(old, new, strict=True) if a != b), None)


def _unordered_pair(expressions: Expressions, old: list[int], new: list[int]) -> tuple[int, int] | None:
    """The operands of an Add or Mul that belong together: first those that only one side has, then by operator."""
    left, right = [number for number in old if number not in new], [number for number in new if number not in old]
    for a in left:
        for b in right:
            if expressions[a][0] == expressions[b][0]:
                return a, b
    return (left[0], right[0]) if left and right else _first_pair(old, new)


def _first_inner_pair(before: Identity, after: Identity) -> tuple[int, int] | None:
    """The first subgraphs, or functions called, that differ."""
    for old, new in zip(before, after, strict=True):
        if isinstance(old, tuple) and isinstance(new, tuple) and old != new and old[0] == new[0]:
            if old[0] == "function":
                return old[1], new[1]
            if old[0] == "bodies":
                return next(((a[1], b[1]) for a, b in zip(old[1:], new[1:], strict=True) if a[1] != b[1]), None)
    return None


def _describe_difference(expressions: Expressions, names: dict[int, str], nearest: str, old: int, new: int) -> str:
    made, remade = expressions.operation(old), expressions.operation(new)
    inside = f" (in what makes {nearest!r})" if nearest and old not in names else ""
    if made is None or remade is None or (made.domain, made.op_type) != (remade.domain, remade.op_type):
        return (
            f"where the original has {_thing(expressions, names, old)}{inside}, "
            f"there is {_thing(expressions, names, new)} after fusing"
        )
    subject = f"{made.op_type} {names[old]!r}" if old in names else f"{made.op_type}{inside}"
    changed = _changed_attribute(made, remade)
    if changed is not None:
        was, now = attribute_text(made.attributes.get(changed)), attribute_text(remade.attributes.get(changed))
        return f"{subject} has {changed} {was} in the original and {now} after fusing"
    before, after = _operands(expressions[old]), _operands(expressions[new])
    if len(before) != len(after):
        return f"{subject} has {len(before)} inputs in the original and {len(after)} after fusing"
    if sorted(before) == sorted(after) and before != after:
        return f"{subject} reads its inputs in another order after fusing"
    if made.outputs != remade.outputs:
        return f"{subject} makes {made.outputs} outputs in the original and {remade.outputs} after fusing"
    return f"{subject} is random or of unknown meaning, and not the same node after fusing"


def _changed_attribute(made: Operation, remade: Operation) -> str | None:
    names = sorted({*made.attributes, *remade.attributes})
    return next((name for name in names if made.attributes.get(name) != remade.attributes.get(name)), None)


def _thing(expressions: Expressions, names: dict[int, str], number: int) -> str:
    """A value in words: by its kind, and its name in the original where it has one."""
    expression = expressions[number]
    name = names.get(number)
    operation = expressions.operation(number)
    if operation is not None:
        return f"{operation.op_type} {name!r}" if name else operation.op_type
    match expression[0]:
        case "input":
            return f"input {expression[1]!r}"
        case "tensor" | "sparse":
            return f"{describe(expression)} {name!r}" if name else describe(expression)
        case "absent":
            return "no input"
        case "unmade":
            return f"value {expression[1]!r}, which nothing makes"
        case "output":
            return f"output {expression[1]} of {_thing(expressions, names, expression[2])}"
        case "bound":
            return f"input {expression[2]} of the body"
        case "parameter":
            return f"input {expression[1]} of the function"
    return "another body"
