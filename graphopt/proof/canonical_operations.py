"""One operation for its several spellings, where the operands decide: a Concat's axis, a Conv's `kernel_shape`."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import AttributeProto

from graphopt.proof.node_reading import Record
from graphopt.proof.operation_identity import Operation, OperationTable
from graphopt.proof.tensor_identity import Identity
from graphopt.proof.value_scope import Scope


class CanonicalOperations:
    """Operations in the spelling that numbers are made of.

    Args:
        expressions: the expression of each number.
        table: the operations.
    """

    def __init__(self, expressions: Sequence[Identity], table: OperationTable) -> None:
        self._expressions = expressions
        self._table = table
        self._axes: dict[Identity, Operation] = {}
        self._shorter: dict[int, Operation] = {}

    def concat(self, scope: Scope, record: Record, operands: Sequence[int], rank: int | None) -> Operation:
        """The Concat with its axis counted from the front where the rank is known. Equal Concats are decided once:
        what is learnt of a rank later must not part them."""
        operation = record[0]
        kind, axis = operation.attributes.get("axis", (None, 0))
        if kind != AttributeProto.INT or axis >= 0:
            return operation
        key = (operation.number, *operands)
        decided = self._axes.get(key)
        if decided is None:
            if rank is None:
                ranks = map(scope.declared_rank, record[1] + record[2])
                rank = next((rank for rank in ranks if rank is not None), None)
            if rank is not None and axis + rank >= 0:
                positive = {**operation.attributes, "axis": (AttributeProto.INT, axis + rank)}
                operation = self._table.with_attributes(operation, positive)
            decided = self._axes[key] = operation
        return decided

    def conv(self, operation: Operation, operands: Sequence[int]) -> Operation:
        """The Conv without a `kernel_shape` that only repeats the dims of its constant weight."""
        written = operation.attributes.get("kernel_shape")
        if written is None or len(operands) < 2:
            return operation
        weight = self._expressions[operands[1]]
        if weight[0] != "tensor" or written != (AttributeProto.INTS, weight[2][2:]):
            return operation
        shorter = self._shorter.get(operation.number)
        if shorter is None:
            kept = {name: value for name, value in operation.attributes.items() if name != "kernel_shape"}
            shorter = self._shorter[operation.number] = self._table.with_attributes(operation, kept)
        return shorter
