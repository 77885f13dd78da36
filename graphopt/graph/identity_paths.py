"""Identity nodes between a value and its readers, which matching looks through: what they pass on is the value itself.

Only where nobody can tell: an Identity whose output leaves the scope, is read inside a body or by nobody at all is a
reader like any other.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from graphopt.graph.scope import Node


class IdentityPaths:
    """The Identity nodes of one scope that can be looked through.

    Args:
        nodes: the nodes of the scope, in topological order.
        places: which of them are Identity nodes of ONNX's own, in order.
        readers: the nodes that read a value, one entry for each input slot.
        kept: the values that must exist: outputs of the scope, and what bodies read.
    """

    def __init__(
        self, nodes: Sequence[Node], places: Iterable[int], readers: Mapping[str, list[int]], *kept: Container[str]
    ) -> None:
        self._source: dict[str, str] = {}
        self._passing: dict[str, list[int]] = {}
        """The nodes that pass a value on, by the value at the beginning of their path."""
        for place in places:
            node = nodes[place]
            if len(node.inputs) != 1 or len(node.outputs) != 1:
                continue
            value, passed_on = node.inputs[0], node.outputs[0]
            if value and passed_on in readers and not any(passed_on in names for names in kept):
                source = self._source[passed_on] = self._source.get(value, value)
                self._passing.setdefault(source, []).append(place)
        self._readers = {source: self._behind(source, nodes, readers) for source in self._passing}

    def _behind(self, source: str, nodes: Sequence[Node], readers: Mapping[str, list[int]]) -> list[int]:
        """Who reads a value, directly or through its Identity nodes."""
        passing = set(self._passing[source])
        values = [source, *(nodes[place].outputs[0] for place in self._passing[source])]
        return sorted(reader for value in values for reader in readers[value] if reader not in passing)

    def source(self, value: str) -> str:
        """The value that is passed on under this name."""
        return self._source.get(value, value)

    def readers(self, value: str) -> list[int] | None:
        """The nodes that read a value, directly or on a path; None where no path begins with it."""
        return self._readers.get(value)

    def passing(self, value: str) -> Sequence[int]:
        """The Identity nodes that pass a value on to its readers."""
        return self._passing.get(value, ())
