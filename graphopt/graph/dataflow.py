"""The data-flow view of one scope: who makes a value, who reads it, what is constant. Read-only.

Nodes are integers: their place in the scope's list. Edges run from a producer to each of its readers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import networkx as nx
from onnx import TensorProto

from graphopt.errors import ModelError
from graphopt.graph.conventions import FUSED_DOMAIN
from graphopt.graph.declared_shapes import Dims
from graphopt.graph.identity_paths import IdentityPaths
from graphopt.graph.scope import Node, Scope

# fmt: off
_RANK_KEEPING = frozenset({
    "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat", "Dropout", "Elu", "Erf", "Gelu", "HardSigmoid",
    "HardSwish", "Identity", "InstanceNormalization", "LRN", "LeakyRelu", "MaxPool", "Mish", "PRelu", "Relu", "Selu",
    "Sigmoid", "Softplus", "Softsign", "Tanh",
})
# fmt: on
"""Operators whose output has the rank of their first input."""


_SHOWN = 12
"""Of a longer cycle a message names so many nodes."""


class LeanGraph(nx.DiGraph):  # type: ignore[misc]  # networkx has no types of its own
    """A directed graph whose edges share one empty attribute dictionary: a tenth of the memory."""

    _no_attributes: ClassVar[dict[str, Any]] = {}

    def edge_attr_dict_factory(self) -> dict[str, Any]:
        """What networkx stores with an edge."""
        return self._no_attributes


class DataflowGraph:
    """Producers, readers by slot, captures, outputs and constants of one scope."""

    @classmethod
    def of(cls, scope: Scope) -> DataflowGraph:
        """The view of a scope as it stands now; made anew only when the scope's nodes have changed."""
        view = scope.view
        if not isinstance(view, DataflowGraph) or view.nodes is not scope.nodes:
            view = scope.view = cls(scope)
        return view

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.nodes: list[Node] = scope.nodes
        self.opset = scope.opset
        self.outputs = frozenset(scope.outputs).union(scope.training_reads)
        """The values that leave the scope."""
        self.producers = {name: index for index, node in enumerate(self.nodes) for name in node.outputs}
        """The node that makes a value; none for inputs, initializers and captured values."""
        self.producers.pop("", None)
        by_name: defaultdict[str, list[int]] = defaultdict(list)
        captured: defaultdict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            by_name[node.op_type].append(index)
            for body in node.bodies:
                for name in body.captures:
                    captured[name].append(index)
        self._by_name = by_name
        self._captured = captured
        # Most rules ask how often a value is read, and seldom who does: the lists are made when somebody asks.
        self._reads = Counter(chain.from_iterable([node.inputs for node in self.nodes]))
        self._reads.pop("", None)
        identities = self.with_operator("", "Identity")
        self.paths = (
            IdentityPaths(self.nodes, identities, self._readers, self.outputs, captured) if identities else None
        )
        """The Identity nodes to look through; None where there are none."""
        self._sources: dict[str, str] = {}
        self._ranks: dict[str, int | None] = {}

    @cached_property
    def _readers(self) -> Mapping[str, list[int]]:
        """The nodes that read a value, one entry for each input slot."""
        readers: defaultdict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            for name in node.inputs:
                readers[name].append(index)
        readers.pop("", None)
        return readers

    @cached_property
    def is_sorted(self) -> bool:
        """Whether every node stands after the nodes it reads from."""
        later = set(self.producers)
        for node in self.nodes:
            if not later.isdisjoint(node.inputs):
                return False
            for body in node.bodies:
                if not later.isdisjoint(body.captures):
                    return False
            later.difference_update(node.outputs)
        return True

    def with_operator(self, domain: str, op_type: str) -> list[int]:
        """The nodes of one operator, in the order of the scope."""
        return [index for index in self._by_name.get(op_type, ()) if self.nodes[index].domain == domain]

    def producer(self, value: str) -> int | None:
        """The node that makes a value; None for inputs, initializers and captured values."""
        return self.producers.get(value)

    def operator_of(self, value: str) -> tuple[str, str] | None:
        """Domain and name of the operator that makes a value."""
        index = self.producers.get(value)
        return None if index is None else (self.nodes[index].domain, self.nodes[index].op_type)

    def readers(self, value: str) -> list[int]:
        """The nodes that read a value, one entry for each input slot that does; Identity nodes are looked through."""
        if self.paths is not None:
            behind = self.paths.readers(value)
            if behind is not None:
                return behind
        return self._readers.get(value, [])

    def captures(self, value: str) -> list[int]:
        """The nodes inside whose bodies a value is read, one entry for each read, at any depth."""
        return self._captured.get(value, [])

    def read_count(self, value: str) -> int:
        """How often a value is read in all: by slots, by bodies, and by whoever is outside of this scope."""
        reads = self._reads.get(value, 0) if self.paths is None else len(self.readers(value))
        return reads + len(self.captures(value)) + (value in self.outputs)

    def constant(self, value: str) -> TensorProto | None:
        """The tensor of a value that never changes: an initializer, or a Constant node's; None for any other."""
        index = self.producers.get(value)
        if index is not None and self._is_identity(self.nodes[index]):
            value = self._behind_identities(value)
            index = self.producers.get(value)
        return self.scope.constant(value) if index is None else self.nodes[index].constant

    def _is_identity(self, node: Node) -> bool:
        return node.op_type == "Identity" and node.domain == "" and len(node.inputs) == 1

    def _behind_identities(self, value: str) -> str:
        """The value that a chain of Identity nodes passes on. Chains may be long and have many readers: each link is
        followed once."""
        known, passed = self._sources, []
        while value not in known:
            known[value] = value  # a circle ends where it began
            passed.append(value)
            index = self.producers.get(value)
            if index is None or not self._is_identity(self.nodes[index]):
                break
            value = self.nodes[index].inputs[0]
        known.update(dict.fromkeys(passed, known[value]))
        return known[value]

    def dims(self, value: str) -> Dims | None:
        """The shape of a value, as far as the model states it (None for a dimension it leaves open)."""
        tensor = self.constant(value)
        return tuple(tensor.dims) if tensor is not None else self.scope.declared_dims(value)

    def rank(self, value: str) -> int | None:
        """The rank of a value: stated by the model, or that of a convolution's weight further up; None if unknown."""
        known, passed = self._ranks, []
        while value not in known:
            known[value] = None  # a circle ends where it began
            passed.append(value)
            rank, source = self._rank_or_source(value)
            if source is None:
                known[value] = rank
                break
            value = source
        known.update(dict.fromkeys(passed, known[value]))
        return known[value]

    def _rank_or_source(self, value: str) -> tuple[int | None, str | None]:
        """The rank of a value, or else another value that has the same."""
        dims = self.dims(value)
        if dims is not None:
            return len(dims), None
        index = self.producers.get(value)
        if index is None:
            return None, None
        node = self.nodes[index]
        if node.domain in ("", FUSED_DOMAIN) and node.op_type.startswith("Conv") and len(node.inputs) > 1:
            weight = self.dims(node.inputs[1])
            return (None if weight is None else len(weight)), None
        if node.domain != "" or node.op_type not in _RANK_KEEPING or not node.inputs:
            return None, None
        return None, node.inputs[0]

    @cached_property
    def graph(self) -> LeanGraph:
        """The scope as a networkx graph: an edge from each producer to each reader, captured reads included."""
        graph = LeanGraph()
        graph.add_nodes_from(range(len(self.nodes)))
        graph.add_edges_from(self._edges())
        return graph

    def _edges(self) -> Iterator[tuple[int, int]]:
        for reads in (self._readers, self._captured):
            for value, indices in reads.items():
                made_by = self.producers.get(value)
                if made_by is not None:
                    for index in indices:
                        yield made_by, index

    def topological_order(self, model: str = "the model") -> list[int]:
        """The nodes so that producers come before readers, otherwise in the order of the file (a stable sort).

        Args:
            model: what the message calls the model.

        Raises:
            ModelError: the nodes form a cycle; the message names its nodes.
        """
        try:
            return list(nx.lexicographical_topological_sort(self.graph))
        except nx.NetworkXUnfeasible:
            cycle = [self.nodes[a].title for a, _ in nx.find_cycle(self.graph)]
            shown = cycle if len(cycle) <= _SHOWN else [*cycle[:_SHOWN], f"{len(cycle) - _SHOWN} more"]
            raise ModelError(f"{model}: the nodes form a cycle: {' -> '.join([*shown, cycle[0]])}.") from None


def sort_nodes(scope: Scope, model: str = "the model") -> None:
    """Bring the nodes of a scope into topological order; a sorted scope stays as it is.

    Args:
        scope: the scope.
        model: what the message calls the model.

    Raises:
        ModelError: the nodes form a cycle.
    """
    view = DataflowGraph.of(scope)
    if not view.is_sorted:
        scope.nodes = [scope.nodes[index] for index in view.topological_order(model)]
