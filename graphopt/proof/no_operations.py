"""Which nodes give back what they were given, for all inputs: value numbering takes them for aliases of their input.

Inference Dropout, Cast to the type that is there, Reshape to the shape that is there, Pad of zeros, and Transposes that
undo each other. What is not known to change nothing is taken to change something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import AttributeProto, TensorProto

from graphopt.graph.value_types import keeps_shape
from graphopt.proof.node_reading import Record
from graphopt.proof.operation_identity import Kind, Operation, OperationTable
from graphopt.proof.tensor_identity import Identity, is_false
from graphopt.proof.value_scope import Scope

Intern = Callable[[Identity], int]


class NoOperations:
    """The expressions that were found to be aliases. Equal expressions are decided once, so what is learnt of a type
    later does not part them, and the proof for one model holds in the other.

    Args:
        expressions: the expression of each number.
        table: the operations they begin with.
        intern: gives an expression its number.
    """

    def __init__(self, expressions: Sequence[Identity], table: OperationTable, intern: Intern) -> None:
        self._expressions = expressions
        self._table = table
        self._intern = intern
        self._decided: dict[int, int] = {}
        self._composed: dict[tuple[int, Identity], Operation] = {}

    def source(self, scope: Scope, record: Record, number: int, operands: Sequence[int]) -> int:
        """The number of the value that the first output of a node is: `number`, its own, where it is no alias."""
        decided = self._decided.get(number)
        if decided is not None:
            return decided
        operation = record[0]
        if operation.kind is Kind.DROPOUT:
            return number if self.trains(operands) else operands[0]
        if operation.kind is Kind.TRANSPOSE:
            found = self._transposed(operation, operands[0], number)
        elif operation.op_type == "Pad":
            found = operands[0] if self._pads_nothing(operation, operands) else number
        elif scope.types is None:  # inside functions no type is known; elsewhere the same expression may have one
            return number
        else:
            found = operands[0] if _changes_nothing(scope, record) else number
        self._decided[number] = found
        return found

    def trains(self, operands: Sequence[int]) -> bool:
        """Whether a Dropout (opset 12 and up) may drop anything: `training_mode` is given and not constant false."""
        return len(operands) > 2 and not is_false(self._expressions[operands[2]])

    def _transposed(self, operation: Operation, operand: int, number: int) -> int:
        """Transposes one after another as one, and one that moves nothing as none."""
        order = _order(operation)
        expression = self._expressions[operand]
        inner = self._table.operations[expression[0]] if isinstance(expression[0], int) else None
        source = operand
        if inner is not None and inner.kind is Kind.TRANSPOSE:
            earlier = _order(inner)
            if order == earlier == ():
                return int(expression[1])
            length = len(order or earlier or ())
            order, earlier = (tuple(range(length))[::-1] if way == () else way for way in (order, earlier))
            if order is None or earlier is None or len(order) != len(earlier):
                return number
            order = tuple(earlier[axis] for axis in order)
            source = int(expression[1])
        if not order:
            return number
        if order == tuple(range(len(order))):
            return source
        return self._intern((self._with_order(operation, order).number, source))

    def _with_order(self, operation: Operation, order: tuple[int, ...]) -> Operation:
        key = (operation.number, order)
        if key not in self._composed:
            written = {} if order == tuple(range(len(order)))[::-1] else {"perm": (AttributeProto.INTS, order)}
            self._composed[key] = self._table.with_attributes(operation, written)
        return self._composed[key]

    def _pads_nothing(self, operation: Operation, operands: Sequence[int]) -> bool:
        """Whether all amounts are the constant 0; they are an input from opset 11 on."""
        if (operation.version or 0) >= 11:
            amounts = self._expressions[operands[1]] if len(operands) > 1 else ()
            if amounts[:2] != ("tensor", TensorProto.INT64):
                return False
            return isinstance(amounts[3], bytes) and not any(amounts[3])
        written = operation.attributes.get("pads") or operation.attributes.get("paddings")
        return written is not None and written[0] == AttributeProto.INTS and not any(written[1])


def _order(operation: Operation) -> tuple[int, ...] | None:
    """The axes of a Transpose: () for the reverse order at any rank, None where they are no order of axes."""
    kind, axes = operation.attributes.get("perm", (AttributeProto.INTS, ()))
    if kind != AttributeProto.INTS or ("perm" in operation.attributes and not axes):
        return None
    return axes if sorted(axes) == list(range(len(axes))) else None


def _changes_nothing(scope: Scope, record: Record) -> bool:
    """Whether a Cast or a Reshape leaves its input as it is."""
    operation, inputs, outputs, _, _ = record
    if scope.types is None or not inputs or not outputs:
        return False
    before = scope.types.of(inputs[0])
    if before is None:
        return False
    if operation.op_type == "Cast":
        return operation.attributes.get("to") == (AttributeProto.INT, before.element_type)
    after = scope.types.of(outputs[0])
    return after is not None and keeps_shape(before.dims, after.dims)
