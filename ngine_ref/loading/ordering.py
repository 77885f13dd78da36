"""Who reads what, and an order in which every value is made before it is read."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence

from ngine_ref.errors import ModelError
from ngine_ref.loading.graph import Graph, Node


def captures(graph: Graph) -> list[str]:
    """Names that a body reads, at any depth, and does not make itself: they come from the scope around it."""
    made = {value.name for value in graph.inputs} | set(graph.initializers)
    for node in graph.nodes:
        made.update(node.outputs)
    read: dict[str, None] = {}
    for node in graph.nodes:
        read.update(dict.fromkeys(reads(node)))
    read.update(dict.fromkeys(value.name for value in graph.outputs))
    return [name for name in read if name and name not in made]


def captured_by(node: Node) -> list[str]:
    """Names that the bodies of a node read from outside, each once."""
    return list(dict.fromkeys(name for body in node.bodies() for name in captures(body)))


def reads(node: Node) -> list[str]:
    """Every name a node depends on: its inputs and what its bodies capture, each once."""
    return [name for name in dict.fromkeys((*node.inputs, *captured_by(node))) if name]


def producers(nodes: Sequence[Node]) -> dict[str, int]:
    """The index of the node that makes each value.

    Raises:
        ModelError: two nodes make the same value.
    """
    producer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.outputs:
            if name and name in producer:
                raise ModelError(f"The value {name!r} is made twice, by {nodes[producer[name]]} and by {node}.")
            if name:
                producer[name] = index
    return producer


def topological_order(nodes: Sequence[Node], given: Collection[str]) -> list[Node]:
    """The nodes, sorted stably: each as early as the file has it, but after what it reads.

    Args:
        nodes: in any order.
        given: names that exist from the start (inputs, initializers, captured values).

    Raises:
        ModelError: a value is read that nothing makes, a value is made twice, or the nodes form a cycle.
    """
    producer = producers(nodes)
    for name in producer:
        if name in given:
            raise ModelError(f"{nodes[producer[name]]} makes the value {name!r}, which is an input or initializer too.")
    readers: list[list[int]] = [[] for _ in nodes]
    missing = [0] * len(nodes)
    for index, node in enumerate(nodes):
        for name in reads(node):
            if name in producer:
                readers[producer[name]].append(index)
                missing[index] += 1
            elif name not in given:
                raise ModelError(f"{node} reads the value {name!r}, which nothing makes.")
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[Node] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for reader in readers[index]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = [index for index, count in enumerate(missing) if count]
        raise ModelError("The nodes form a cycle: " + _cycle(nodes, stuck, producer) + ".")
    return order


def _cycle(nodes: Sequence[Node], stuck: Iterable[int], producer: dict[str, int]) -> str:
    """One cycle in words, found by walking from reader to producer among the nodes that never became ready."""
    left = set(stuck)
    path: list[int] = []
    seen: dict[int, int] = {}
    index = min(left)
    while index not in seen:
        seen[index] = len(path)
        path.append(index)
        index = next(producer[name] for name in reads(nodes[index]) if producer.get(name) in left)
    ring = [*path[seen[index] :], index]
    return " reads from ".join(str(nodes[step]) for step in ring[:8]) + (" ..." if len(ring) > 8 else "")


def needed(nodes: Sequence[Node], wanted: Iterable[str]) -> list[Node]:
    """Those of the (sorted) nodes on which the wanted values depend."""
    names = set(wanted)
    kept: list[Node] = []
    for node in reversed(nodes):
        if not names.isdisjoint(filter(None, node.outputs)):
            kept.append(node)
            names.update(reads(node))
    kept.reverse()
    return kept
