"""From protobuf nodes to records that are quick to number: the operation, the names it reads, the names it makes.

What a node means depends on where it stands: on the opset imports of the model or function, on the functions the
model carries, and inside a function on the attributes of the call. A `Dialect` holds the first two.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto

from graphopt.errors import UsageError
from graphopt.graph.attribute_sets import AttributeSet
from graphopt.graph.conventions import is_fused_domain, standard_name
from graphopt.graph.graph_reader import GraphReader, NodeReading
from graphopt.proof.operation_identity import (
    Attributes,
    Operation,
    OperationTable,
    is_standard,
    may_hold_graphs,
)

Bodies = tuple[tuple[str, GraphProto], ...]
Record = tuple[Operation, tuple[str, ...], tuple[str, ...], Bodies, "Function | None"]
"""Operation, names read, names made, subgraphs by attribute name, the function it calls."""
BodyOf = Callable[[NodeProto], FunctionProto | None]
"""Gives a call whose function the model does not carry its body, or None."""

FunctionName = tuple[str, str]
"""Domain and name of a function."""

_NO_BODIES: Bodies = ()
_serialize = AttributeProto.SerializePartialToString


class Function:
    """A function of the model with what its calls share."""

    def __init__(self, proto: FunctionProto, library: Library, operations: OperationTable, *, inlined: bool) -> None:
        self.proto = proto
        self.inlined = inlined or is_fused_domain(proto.domain)
        """Whether its calls are numbered as its body."""
        self.dialect = Dialect(proto.opset_import, library, operations)
        self.inputs, self.outputs = tuple(proto.input), tuple(proto.output)
        self.defaults = operations.defaults(proto.attribute_proto)
        self.open = False
        """True while its body is being numbered: met again then, it calls itself."""
        self.signature: int | None = None
        self.impure = False
        """Whether two calls with equal operands may differ: it draws random numbers, or nobody knows."""
        self._specialised: dict[int, tuple[list[Record], Attributes]] = {}
        self.is_flat = True
        """Whether no body that was specialised has subgraphs or calls functions."""

    def specialised(self, call: Operation) -> tuple[list[Record], Attributes]:
        """The body with the attributes of this call in place of references, and those attributes."""
        known = self._specialised.get(call.number)
        if known is None:
            bindings = {**self.defaults, **call.attributes}
            known = read_nodes(self.proto, self.dialect, bindings), bindings
            self._specialised[call.number] = known
            self.is_flat = self.is_flat and not any(record[3] or record[4] for record in known[0])
        return known


class Library:
    """The functions of a model, and the bodies that were handed over for calls of functions it does not have."""

    def __init__(
        self,
        own: Iterable[FunctionProto],
        body_of: BodyOf | None,
        operations: OperationTable,
        inlined: Container[FunctionName] = (),
        reader: GraphReader | None = None,
    ) -> None:
        self.body_of = body_of
        self.reader = reader or GraphReader()
        self._operations = operations
        self._own: dict[tuple[str, str], dict[str, Function]] = {}
        self._handed: dict[bytes, Function] = {}
        for proto in own:
            overloads = self._own.setdefault((standard_name(proto.domain), proto.name), {})
            function = Function(proto, self, operations, inlined=(proto.domain, proto.name) in inlined)
            overloads.setdefault(proto.overload, function)

    def overloads(self, domain: str, op_type: str) -> Mapping[str, Function]:
        """The model's own functions of that name, by overload."""
        return self._own.get((domain, op_type), {})

    def handed(self, call: NodeProto) -> Function | None:
        """The function for a call of none of the model's own."""
        proto = self.body_of(call) if self.body_of is not None else None
        if proto is None:
            return None
        key = proto.SerializeToString(deterministic=True)
        if key not in self._handed:
            self._handed[key] = Function(proto, self, self._operations, inlined=True)
        return self._handed[key]

    def forget(self) -> None:
        """Let go of the functions: their dialects know the library, and without the circle all is freed at once."""
        self._own.clear()
        self._handed.clear()


def body_by_name(functions: Iterable[FunctionProto]) -> BodyOf:
    """Bodies for the calls of these functions' names; a name with two different bodies is never resolved by chance."""
    known: dict[tuple[str, str, str], list[FunctionProto]] = {}
    for proto in functions:
        bodies = known.setdefault((standard_name(proto.domain), proto.name, proto.overload), [])
        if proto not in bodies:
            bodies.append(proto)

    def body_of(call: NodeProto) -> FunctionProto | None:
        bodies = known.get((standard_name(call.domain), call.op_type, call.overload), [])
        if len(bodies) > 1:
            raise UsageError(
                f"{len(bodies)} bodies were given for {call.domain}.{call.op_type}; give them call by call."
            )
        return bodies[0] if bodies else None

    return body_of


class _Operator:
    """What all nodes of one operator in one dialect share."""

    __slots__ = ("domain", "known", "may_be_bare", "may_hold_graphs", "op_type", "opset", "overloads")

    def __init__(self, domain: str, op_type: str, opset: int | None, library: Library) -> None:
        self.domain, self.op_type, self.opset = domain, op_type, opset
        self.overloads = library.overloads(domain, op_type)
        self.may_be_bare = library.body_of is not None and not is_standard(domain, op_type, opset)
        self.may_hold_graphs = bool(self.overloads) or may_hold_graphs(domain, op_type, opset)
        self.known: dict[Any, Operation] = {}
        """Operations by their attributes: most nodes of a model repeat one of a few."""


class Dialect:
    """What operator names mean in a graph or function: its opset imports, and the functions of the model."""

    def __init__(self, imports: Iterable[OperatorSetIdProto], library: Library, operations: OperationTable) -> None:
        self.versions = {standard_name(entry.domain): entry.version for entry in imports}
        self.used: set[str] = set()
        """The domains met so far."""
        self.operations = operations
        self.reader = library.reader
        self.usual: dict[tuple[str, str, AttributeSet], Operation] = {}
        """What nodes of one output name that call no function and can have no subgraphs, by what is read of them."""
        self._library = library
        self._operators: dict[tuple[str, str], _Operator] = {}

    def read(self, node: NodeReading, bindings: Attributes | None) -> Record:
        """One node as a record; `bindings` as in `OperationTable.attributes`."""
        proto, op_type, domain, inputs, outputs, shared = node
        operator = self._operators.get((domain, op_type)) or self._operator(domain, op_type)
        function = operator.overloads.get(proto.overload) if operator.overloads else None
        if function is None and operator.may_be_bare:
            function = self._library.handed(proto)
        # Of a call of a function the bytes are looked up first: none that has subgraphs is known.
        bodies = _bodies(proto) if operator.may_hold_graphs and not operator.overloads else ()
        if bodies or bindings is not None or op_type == "Constant":
            if operator.overloads:
                bodies = _bodies(proto)
            name = outputs[0] if outputs else ""
            found = self.operations.attributes(proto.attribute, bindings, name)
            return (self._operation(operator, function, found, outputs), inputs, outputs, bodies, function)
        attributes = map(_serialize, proto.attribute) if shared is None else (shared,)
        key = (len(outputs), function is None, *attributes)
        operation = operator.known.get(key)
        if operation is None:
            found = self.operations.attributes(proto.attribute, None, "")
            operation = self._operation(operator, function, found, outputs)
            bodies = _bodies(proto) if operator.overloads else ()
            if not bodies:
                operator.known[key] = operation
        if shared is not None and len(outputs) == 1 and not (operator.overloads or operator.may_be_bare):
            self.usual[domain, op_type, shared] = operation
        return (operation, inputs, outputs, bodies, function)

    def _operation(
        self, operator: _Operator, function: Function | None, attributes: Attributes, outputs: Sequence[str]
    ) -> Operation:
        if function is not None:
            return self.operations.call(operator.domain, operator.op_type, attributes, len(outputs))
        count = len(outputs)
        while count > 1 and not outputs[count - 1]:
            count -= 1
        return self.operations.operation(operator.domain, operator.op_type, operator.opset, attributes, count)

    def _operator(self, written: str, op_type: str) -> _Operator:
        domain = standard_name(written)
        self.used.add(domain)
        operator = _Operator(domain, op_type, self.versions.get(domain), self._library)
        self._operators[written, op_type] = operator
        return operator


def read_nodes(graph: GraphProto | FunctionProto, dialect: Dialect, bindings: Attributes | None) -> list[Record]:
    """All nodes of a graph or function, in an order in which makers come before readers, if there is one."""
    nodes = dialect.reader.nodes(graph)
    if bindings is not None:
        return _in_order([dialect.read(node, bindings) for node in nodes])
    records: list[Record] = []
    usual = dialect.usual.get
    for node in nodes:
        _, op_type, domain, inputs, outputs, shared = node
        operation = usual((domain, op_type, shared)) if shared is not None and len(outputs) == 1 else None
        records.append(
            dialect.read(node, None) if operation is None else (operation, inputs, outputs, _NO_BODIES, None)
        )
    return _in_order(records)


def _bodies(proto: NodeProto) -> Bodies:
    """The subgraphs of a node, in the order of their attributes' names."""
    return tuple(sorted(_bodies_as_written(proto), key=itemgetter(0)))


def _bodies_as_written(proto: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    for attribute in proto.attribute:
        kind = attribute.type
        if kind == AttributeProto.GRAPH and not attribute.ref_attr_name:
            yield attribute.name, attribute.g
        elif kind == AttributeProto.GRAPHS:
            for position, graph in enumerate(attribute.graphs):
                yield f"{attribute.name}[{position}]", graph


def _in_order(records: list[Record]) -> list[Record]:
    """The records as they stand where that is a topological order, as is usual; else the nearest one."""
    later = {name for record in records for name in record[2] if name}
    for record in records:
        if not later.isdisjoint(record[1] if not record[3] else _reads(record)):
            return _sorted(records)
        later.difference_update(record[2])
    return records


def _sorted(records: Sequence[Record]) -> list[Record]:
    """Depth first from each node in file order, on a stack of our own. Nodes of a cycle come in some order."""
    maker = {name: index for index, record in enumerate(records) for name in record[2] if name}
    order: list[Record] = []
    seen = [False] * len(records)
    for start in range(len(records)):
        if seen[start]:
            continue
        seen[start] = True
        stack = [(start, iter(_reads(records[start])))]
        while stack:
            index, reads = stack[-1]
            for name in reads:
                needed = maker.get(name, -1)
                if needed >= 0 and not seen[needed]:
                    seen[needed] = True
                    stack.append((needed, iter(_reads(records[needed]))))
                    break
            else:
                order.append(records[index])
                stack.pop()
    return order


def _reads(record: Record) -> Sequence[str]:
    """The names a node reads, also from inside its bodies, at any depth."""
    names = list(record[1])
    waiting = [graph for _, graph in record[3]]
    own: set[str] = set()
    inside: list[str] = []
    while waiting:
        graph = waiting.pop()
        own.update(info.name for info in graph.input)
        own.update(tensor.name for tensor in graph.initializer)
        own.update(tensor.values.name for tensor in graph.sparse_initializer)
        inside.extend(info.name for info in graph.output)
        for node in graph.node:
            inside.extend(node.input)
            own.update(node.output)
            waiting.extend(graph for _, graph in _bodies(node))
    return names + [name for name in inside if name not in own]
