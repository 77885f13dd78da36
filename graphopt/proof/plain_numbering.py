"""Value numbers of nodes that have no subgraphs and call no function: nearly all nodes, so a proof's time goes here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphopt.proof.canonical_operations import CanonicalOperations
from graphopt.proof.expressions import Expressions
from graphopt.proof.no_operations import NoOperations
from graphopt.proof.node_reading import Record
from graphopt.proof.operation_identity import Kind, Operation, OperationTable
from graphopt.proof.tensor_identity import Identity
from graphopt.proof.value_scope import ABSENT, Scope, Values

_UNORDERED, _CONV, _CONCAT = Kind.UNORDERED, Kind.CONV, Kind.CONCAT
_LAST_WITHOUT_ALIAS = Kind.OPAQUE
"""Kinds after this one may make an alias of their first input."""


class PlainNumbering:
    """Numbers lists of plain nodes in one table of expressions.

    Args:
        expressions: all that were met.
        table: the operations they begin with.
        problems: where a value that is made twice is noted, as a sentence.
    """

    def __init__(self, expressions: Expressions, table: OperationTable, problems: dict[str, None]) -> None:
        self._expressions = expressions
        self._intern, self._ranks = expressions.intern, expressions.ranks
        self._table = table
        self._problems = problems
        self._canonical = CanonicalOperations(expressions.known, table)
        self._no_operations = NoOperations(expressions.known, table, expressions.intern)

    def number(self, scope: Scope, records: Iterator[Record]) -> Record | None:
        """Give every value that these nodes make its number, up to the first that is no plain node; returns that.

        What is usual is written out here, and what is not is called: half of the time would go into calls.
        """
        values = scope.values
        look_up, find = values.__getitem__, self._expressions.numbers.get
        for record in records:
            operation, inputs, outputs, bodies, function = record
            if function is not None or bodies:
                return record
            operands = list(map(look_up, inputs))
            while operands and operands[-1] == ABSENT:
                operands.pop()
            kind = operation.kind
            if kind is _CONV:
                operation = self._canonical.conv(operation, operands)
            elif kind is _UNORDERED:
                operands.sort()
            if kind <= _CONV:
                number = find((operation.number, *operands))
                if number is None:
                    number = self._number_new(operation, operands)
            elif kind is _CONCAT and operands:
                number = self._fold_concat(scope, record, operands)
            else:
                self.name(values, outputs, self._number_unusual(scope, record, operands))
                continue
            if len(outputs) == 1 and outputs[0] not in values:
                values[outputs[0]] = number
            else:
                self.name(values, outputs, self.results(number, outputs))
        return None

    def name(self, values: Values, outputs: Sequence[str], results: Sequence[int]) -> None:
        """Give the values that a node makes their numbers."""
        for name, number in zip(outputs, results, strict=False):
            if name:
                if name in values:
                    self._problems[f"value {name!r} is made twice"] = None
                values[name] = number

    def results(self, number: int, outputs: Sequence[str]) -> list[int]:
        """The numbers of all outputs of a node, the first of which has that number."""
        return [self._intern(("output", place, number)) if place else number for place in range(len(outputs))]

    def _number_new(self, operation: Operation, operands: Sequence[int]) -> int:
        """The number of an operation on operands that may not have met before."""
        slot = operation.rank_input
        rank = self._ranks[operands[slot]] if -1 < slot < len(operands) else None
        return self._intern((operation.number, *operands), rank)

    def _number_unusual(self, scope: Scope, record: Record, operands: list[int]) -> list[int]:
        """The numbers of the outputs of a node whose kind has rules of its own."""
        operation, _, outputs, _, _ = record
        kind = operation.kind
        number = None
        if kind is Kind.IDENTITY and operands:
            number = operands[0]
        elif kind is Kind.CONSTANT:
            content = self._table.constant(operation)
            number = None if content is None else self._expressions.constant(content)
        elif kind is Kind.OPAQUE or (kind is Kind.DROPOUT and self._no_operations.trains(operands)):
            number = self._intern((operation.number, *operands, names_made(scope, record)))
        if number is None:
            number = self._number_new(operation, operands)
        results = self.results(number, outputs)
        if kind > _LAST_WITHOUT_ALIAS and operands and results:
            results[0] = self._no_operations.source(scope, record, number, operands)
        return results

    def _fold_concat(self, scope: Scope, record: Record, operands: list[int]) -> int:
        """Concat(a, b, c) as Concat(Concat(a, b), c): linear, and equal to a Concat that starts from a shorter one."""
        ranks, find = self._ranks, self._expressions.numbers.get
        rank = ranks[operands[0]]
        if rank is None:
            rank = next((ranks[operand] for operand in operands if ranks[operand] is not None), None)
        operation = self._canonical.concat(scope, record, operands, rank).number
        number = operands[0]
        for operand in operands[1:]:
            pair = (operation, number, operand)
            number = find(pair) or self._intern(pair, rank)
        return number


def names_made(scope: Scope, record: Record) -> Identity:
    """What makes an expression equal to no other of its graph: the whole names of what it makes."""
    scope.impure = True
    return ("names", *[scope.whole_name(name) for name in record[2]])
