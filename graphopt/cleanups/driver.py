"""Runs the chosen cleanups over all scopes of a model until none finds anything more."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onnx import GraphProto, ModelProto

from graphopt.cleanups.sweep import sweep
from graphopt.cleanups.unused import drop_dead_nodes, drop_unused_initializers
from graphopt.graph.scope import Scope
from graphopt.graph.scope_reading import note_captures
from graphopt.graph.value_types import ValueTypes
from graphopt.ledger import Cleaned


def clean(model: ModelProto, scopes: Sequence[Scope], chosen: Collection[str]) -> list[Cleaned]:
    """Rewrite the scopes of a model by the chosen cleanups; returns what was removed, in order.

    Args:
        model: the model that the scopes were read from; it is not changed.
        scopes: all its scopes, outer ones before inner ones, nodes in topological order.
        chosen: names of cleanups.
    """
    cleaned: list[Cleaned] = []
    types = ValueTypes(model)
    sweeps = set(chosen).difference(("dead", "initializers"))
    found = bool(chosen)
    while found:
        note_captures(scopes)
        for scope in scopes:
            scope.forget()
        done = len(cleaned)
        for scope in scopes:
            if sweeps:
                known = types if isinstance(_root(scope).proto, GraphProto) else None
                cleaned += sweep(scope, sweeps, known)
        note_captures(scopes)
        for scope in scopes:
            if "dead" in chosen:
                cleaned += drop_dead_nodes(scope)
            if "initializers" in chosen:
                cleaned += drop_unused_initializers(scope, model.ir_version)
        found = len(cleaned) > done
    return cleaned


def _root(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope
