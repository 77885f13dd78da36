"""Value numbers: two values have one number exactly when the same expression makes them.

The expression of a value is its producer's operation and the numbers of what that reads; graphs of two models are
numbered in one table, so equal expressions meet. What passes may change is normalised: see `Kind`. A call in the
fused domain is numbered as its body, with the call's operands in place of the parameters (nothing is built). Another
function of the model is numbered once, with symbols for its parameters, and a call to it by that number.

Nothing recurses: numbering a list of nodes is a generator that hands out inner lists (bodies, functions) as tasks.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import GraphProto, ModelProto, TensorProto

from graphopt.errors import ModelError
from graphopt.graph.conventions import DEFAULTS_SINCE_IR
from graphopt.graph.graph_reader import GraphReader
from graphopt.graph.value_types import ValueTypes
from graphopt.proof.expressions import Expressions
from graphopt.proof.node_reading import BodyOf, Dialect, Function, FunctionName, Library, Record, read_nodes
from graphopt.proof.operation_identity import Kind, OperationTable
from graphopt.proof.plain_numbering import PlainNumbering, names_made
from graphopt.proof.tensor_identity import Identity, TensorTable
from graphopt.proof.value_scope import ABSENT, Scope, Values, declared_rank

Task = Generator["Task", Any, Any]

INLINED_NODES = 200_000
"""Fused calls that stand for more nodes than this, and for many times those of the model, are a bomb of functions."""


@dataclass(frozen=True, slots=True)
class NumberedModel:
    """The numbers of a model's values."""

    values: dict[str, int]
    """Of every value in the main graph."""
    outputs: list[tuple[str, int]]
    """Of the graph's outputs, in order."""
    inputs: list[Identity]
    """Name and type of what a caller feeds, in order."""
    imports: dict[str, int]
    """The opset version of every domain the main graph uses."""
    problems: list[str]
    """What keeps it from being a valid model, a sentence each."""


class ValueNumbering:
    """The table of expressions. Number as many models in it as are to be compared.

    Args:
        by_content: compare large weights of different names too, which takes longer (see `TensorTable`).
        by_type: see which Casts and Reshapes change nothing, for which types and shapes are inferred.
    """

    def __init__(self, by_content: bool = True, by_type: bool = True) -> None:
        self.tensors = TensorTable(by_content)
        self.table = OperationTable(self.tensors)
        self.expressions = Expressions(self.table)
        self._intern = self.expressions.intern
        self._problems: dict[str, None] = {}
        self._plain = PlainNumbering(self.expressions, self.table, self._problems)
        self._by_type = by_type
        self._weights: tuple[list[TensorProto], dict[str, int]] = [], {}
        """The initializers of the last model's graph, and their numbers by name."""
        self._inlined = self._most_inlined = 0
        self._intern(("absent",))

    def number(
        self,
        model: ModelProto,
        body_of: BodyOf | None = None,
        inlined: Container[FunctionName] = (),
        reader: GraphReader | None = None,
    ) -> NumberedModel:
        """Number every value of the model's graph.

        Args:
            model: the model; it is not changed.
            body_of: gives calls whose function the model does not carry their bodies.
            inlined: functions whose calls are numbered as their bodies, like those of the fused domain.
            reader: reads the graphs, and may know them already.

        Raises:
            ModelError: a function calls itself, or functions nest into an astronomical number of nodes.
        """
        self._problems.clear()
        self._inlined = 0
        self._most_inlined = max(INLINED_NODES, 20 * len(model.graph.node))
        library = Library(model.functions, body_of, self.table, inlined, reader)
        dialect = Dialect(model.opset_import, library, self.table)
        graph = model.graph
        types = ValueTypes(model) if self._by_type else None
        scope = Scope(Values(self._unmade), dialect, graph, types=types)
        values = scope.values
        self._number_weights(scope, graph)
        inputs = []
        for info in graph.input:
            default = values.get(info.name, ABSENT)
            if default == ABSENT or model.ir_version >= DEFAULTS_SINCE_IR:
                identity = ("input", info.name, info.type.SerializePartialToString(deterministic=True))
                values[info.name] = self._intern((*identity, default), declared_rank(info))
                inputs.append(identity)
        self._run(self._number_nodes(scope, read_nodes(graph, dialect, None)))
        library.forget()
        outputs = [(info.name, values[info.name]) for info in graph.output]
        imports = {domain: dialect.versions[domain] for domain in dialect.used if domain in dialect.versions}
        return NumberedModel(values, outputs, inputs, imports, list(self._problems))

    def _unmade(self, name: str) -> int:
        """The number of a value that nothing makes."""
        self._problems[f"nothing makes value {name!r}, or its nodes form a cycle"] = None
        return self._intern(("unmade", name))

    def _run(self, task: Task) -> None:
        """Work a task off, and the tasks it hands out, each before its giver goes on."""
        stack = [task]
        result: Any = None
        while stack:
            try:
                stack.append(stack[-1].send(result))
                result = None
            except StopIteration as stop:
                stack.pop()
                result = stop.value

    def _number_weights(self, scope: Scope, graph: GraphProto) -> None:
        """Number the initializers of a model's own graph. Mostly they are those of the other model: then protobuf
        compares them all, and their numbers are known."""
        tensors = list(graph.initializer)
        known, numbers = self._weights
        if tensors and tensors == known and not graph.sparse_initializer:
            scope.values.update(numbers)
            return
        self._number_initializers(scope, graph)
        # Of typed fields, not every protobuf compares every bit (NaN, -0).
        if not graph.sparse_initializer and all(tensor.HasField("raw_data") for tensor in tensors):
            self._weights = tensors, dict(scope.values)

    def _number_initializers(self, scope: Scope, graph: GraphProto) -> None:
        values, identity_of, constant = scope.values, self.tensors.identity, self.expressions.constant
        one = scope.dialect.reader.one
        for tensor in graph.initializer:
            name = tensor.name
            name = one(name, name)
            values[name] = constant(identity_of(tensor, name))
        for sparse in graph.sparse_initializer:
            scope.values[sparse.values.name] = self.expressions.constant(self.tensors.sparse_identity(sparse))

    def _number_nodes(self, scope: Scope, records: Sequence[Record]) -> Task:
        values = scope.values
        values[""] = ABSENT
        plain, waiting = self._plain, iter(records)
        while (record := plain.number(scope, waiting)) is not None:
            _, inputs, outputs, bodies, function = record
            operands = [values[name] for name in inputs]
            while operands and operands[-1] == ABSENT:
                operands.pop()
            if function is not None and function.inlined and not bodies:
                body, inner = self._enter_call(scope, record, function, operands)
                if function.is_flat:  # nearly every fused call: it needs no task of its own, which costs as much again
                    plain.number(inner, iter(body))
                else:
                    yield self._number_nodes(inner, body)
                results = self._leave_call(scope, inner, function)
            else:
                results = yield self._number_compound(scope, record, operands)
            plain.name(values, outputs, results)

    def _number_compound(self, scope: Scope, record: Record, operands: list[int]) -> Task:
        """The numbers of the outputs of a node that has subgraphs or calls a function."""
        operation, _, outputs, bodies, function = record
        extras: list[Identity] = []
        impure = operation.kind is Kind.OPAQUE and function is None
        if bodies:
            numbers = []
            for attribute, graph in bodies:
                owner = self._intern(("inputs of", attribute, operation.number, *operands))
                number, inside = yield self._number_body(scope, graph, owner)
                numbers.append((attribute, number))
                impure = impure or inside
            extras.append(("bodies", *numbers))
        if function is not None and not function.inlined:
            if function.signature is None:
                yield self._number_function(function)
            extras.append(("function", function.signature))
            impure = impure or function.impure
        elif function is not None:
            impure = True
        if impure:
            extras.append(names_made(scope, record))
        return self._plain.results(self._intern((operation.number, *operands, *extras)), outputs)

    def _number_body(self, outer: Scope, graph: GraphProto, owner: int) -> Task:
        """The number of a subgraph, and whether anything in it goes by name.

        What its node reads is `owner`, and decides the types of the body's inputs: bodies whose inputs may have
        different types have no expression in common, and what is known of one says nothing of another.
        """
        level = outer.level + 1
        scope = Scope(
            Values(self._unmade, outer.values), outer.dialect, graph, outer.bindings, level, types=outer.types
        )
        self._number_initializers(scope, graph)
        values = scope.values
        defaults = []
        for position, info in enumerate(graph.input):
            defaults.append(values.get(info.name, ABSENT))
            values[info.name] = self._intern(("bound", level, position, owner), declared_rank(info))
        yield self._number_nodes(scope, read_nodes(graph, scope.dialect, scope.bindings))
        outputs = [values[info.name] for info in graph.output]
        return self._intern(("body", tuple(defaults), *outputs)), scope.impure

    def _number_function(self, function: Function) -> Task:
        """Give a function its signature: what its outputs are, in symbols for its inputs and attributes."""
        self._enter(function)
        scope = Scope(Values(self._unmade), function.dialect, function.proto)
        for position, name in enumerate(function.inputs):
            scope.values[name] = self._intern(("parameter", position))
        yield self._number_nodes(scope, read_nodes(function.proto, function.dialect, None))
        outputs = [scope.values[name] for name in function.outputs]
        defaults = tuple(sorted(function.defaults.items()))
        function.signature = self._intern(("signature", len(function.inputs), defaults, *outputs))
        function.impure = scope.impure
        function.open = False

    def _enter_call(
        self, outer: Scope, record: Record, function: Function, operands: Sequence[int]
    ) -> tuple[Sequence[Record], Scope]:
        """The body of a call that is numbered as that, and its scope: the operands stand for the parameters."""
        self._enter(function)
        records, bindings = function.specialised(record[0])
        self._inlined += len(records)
        if self._inlined > self._most_inlined:
            raise ModelError(f"The fused functions of the model stand for more than {self._most_inlined:,} nodes.")
        values = Values(self._unmade)
        values.update(zip(function.inputs, operands, strict=False))
        for name in function.inputs[len(operands) :]:
            values[name] = ABSENT
        values[""] = ABSENT
        outputs = function.outputs, record[2]
        return records, Scope(values, function.dialect, function.proto, bindings, outer.level, outer, outputs)

    def _leave_call(self, outer: Scope, inner: Scope, function: Function) -> list[int]:
        """The numbers of the outputs of a call whose body is numbered."""
        outer.impure = outer.impure or inner.impure
        function.open = False
        return [inner.values[name] for name in function.outputs]

    def _enter(self, function: Function) -> None:
        if function.open:
            raise ModelError(f"Function {function.proto.domain}.{function.proto.name} calls itself.")
        function.open = True
