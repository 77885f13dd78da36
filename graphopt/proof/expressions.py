"""Every expression that was met, each once (hash-consing): equal expressions have one number."""

from __future__ import annotations

from graphopt.proof.operation_identity import Operation, OperationTable
from graphopt.proof.tensor_identity import Identity


class Expressions:
    """The expressions of all models that are compared, by number.

    An expression is a tuple. A leaf begins with a string, any other with the number of an operation, and the numbers
    of its operands follow.
    """

    def __init__(self, table: OperationTable) -> None:
        self.known: list[Identity] = []
        """By number."""
        self.ranks: list[int | None] = []
        """The rank of the tensor that each stands for, None where nobody said."""
        self.numbers: dict[Identity, int] = {}
        """Their numbers."""
        self._table = table

    def __getitem__(self, number: int) -> Identity:
        """The expression of that number."""
        return self.known[number]

    def __len__(self) -> int:
        return len(self.known)

    def intern(self, expression: Identity, rank: int | None = None) -> int:
        """The number of an expression; a new one takes the next, and the rank."""
        number = self.numbers.get(expression)
        if number is None:
            number = self.numbers[expression] = len(self.known)
            self.known.append(expression)
            self.ranks.append(rank)
        return number

    def constant(self, identity: Identity) -> int:
        """The number of a tensor, whose identity tells its shape."""
        return self.intern(identity, len(identity[2]) if identity[0] == "tensor" else len(identity[1]))

    def operation(self, number: int) -> Operation | None:
        """The operation that makes the value of that number; None for an input, a constant and the like."""
        head = self.known[number][0]
        return self._table.operations[head] if isinstance(head, int) else None
