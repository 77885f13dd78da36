"""The nodes of a model's graphs, read from protobuf once for all who need them: checks, fusion and certificate.

Every access to a protobuf message makes a Python object, which costs more than most of what is then done with it: read
in each of those places anew, a tenth of a fuse was spent on it.
"""

from __future__ import annotations

from typing import NamedTuple

from onnx import FunctionProto, GraphProto, NodeProto

from graphopt.graph.attribute_sets import AttributeSet, AttributeSets, may_hold


class NodeReading(NamedTuple):
    """A node as it stands in its graph. Nothing of it can be changed, whatever becomes of the node."""

    proto: NodeProto
    op_type: str
    domain: str
    """As it is spelled."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: AttributeSet | None
    """None where they may hold tensors or graphs, which are too large to be compared to see whether they repeat."""


class GraphReader:
    """What was read of the graphs of one model, as long as nobody changes it; a rewritten model may be read with it."""

    def __init__(self) -> None:
        self.sets = AttributeSets()
        self._names: dict[str, str] = {}
        self.one = self._names.setdefault
        """Gives a name (handed over twice) as one object, however often it is read: most look-ups then compare
        pointers, not text that lies elsewhere in memory."""
        self._graphs: dict[int, tuple[GraphProto | FunctionProto, list[NodeReading]]] = {}
        """By the graph's identity; it is kept, so that no other gets that."""

    def nodes(self, graph: GraphProto | FunctionProto) -> list[NodeReading]:
        """The nodes of a graph or function in the order of the file."""
        known = self._graphs.get(id(graph))
        if known is None:
            known = self._graphs[id(graph)] = graph, self._read(graph)
        return known[1]

    def forget(self) -> None:
        """Let go of everything: when it is asked again, it reads again."""
        self.sets = AttributeSets()
        self._names.clear()
        self._graphs.clear()

    def _read(self, graph: GraphProto | FunctionProto) -> list[NodeReading]:
        readings: list[NodeReading] = []
        sets, one = self.sets.of, self.one
        for proto in graph.node:
            op_type, domain = proto.op_type, proto.domain
            op_type = one(op_type, op_type)
            attributes = None if may_hold(domain, op_type) else sets(proto)
            # Slices: protobuf iterates item by item, half as fast.
            read, made = proto.input[:], proto.output[:]
            inputs, outputs = tuple(map(one, read, read)), tuple(map(one, made, made))
            readings.append(NodeReading(proto, op_type, domain, inputs, outputs, attributes))
        return readings
