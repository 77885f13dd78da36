"""What the bodies of a scope's nodes read of it, and renaming it there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphopt.graph.scope import Scope


class Captured:
    """The names that bodies capture from a scope, at any depth."""

    def __init__(self, scope: Scope) -> None:
        bodies = [body for node in scope.nodes for body in node.bodies]
        self.names = frozenset(name for body in bodies for name in body.captures)
        inner = [scope for body in bodies for scope in _with_bodies(body)]
        self._defined = frozenset(name for scope in inner for name in scope.defined)
        self._given_out = frozenset(name for scope in inner for name in scope.outputs if name not in scope.defined)
        """Captured values that are themselves outputs of a body: its outputs keep their names."""

    def redefines(self, name: str) -> bool:
        """Whether the name means something else in one of the bodies."""
        return name in self._defined

    def may_rename(self, old: str, new: str) -> bool:
        """Whether the bodies can read `old` under the name `new`."""
        return old not in self.names or (old not in self._given_out and new not in self._defined)


def rename_captured(body: Scope, names: Mapping[str, str]) -> None:
    """Let a body, and those inside it, read captured values under their new names."""
    for scope in _with_bodies(body):
        wanted = names.keys() & set(scope.captures)
        if wanted:
            scope.nodes = [
                node
                if wanted.isdisjoint(node.inputs)
                else node.with_names(tuple(names[n] if n in wanted else n for n in node.inputs), node.outputs)
                for node in scope.nodes
            ]
            scope.is_rewritten = True


def _with_bodies(body: Scope) -> Iterator[Scope]:
    pending = [body]
    while pending:
        scope = pending.pop()
        yield scope
        pending += [inner for node in scope.nodes for inner in node.bodies]
