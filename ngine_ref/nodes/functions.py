"""Calls of model-local functions: replaced by their bodies, or left to a kernel that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ngine_ref import registry
from ngine_ref.errors import ModelError
from ngine_ref.loading.graph import AttributeReference, Function, Graph, Node, ValueInfo
from ngine_ref.nodes.fused_meaning import is_meaning_of

Functions = Mapping[tuple[str, str, str], Function]

MOST_NODES = 1_000_000
"""A few functions that call each other twice are more nodes than any machine holds; no real model has as many."""


def expand(nodes: Sequence[Node], functions: Functions) -> list[Node]:
    """Replace every call by the function's body, until none is left that a kernel does not compute.

    Only the given level is expanded; a body of If, Loop or Scan is when it is first run.

    A call stays a call where the registry has an operator of its name and domain. In the domain of the fused
    operators that holds only if the function's body is what the fused operator means: a model may use `ai.ngine` with
    a meaning of its own, and then the body is right.

    Raises:
        ModelError: a function calls itself, stands for more nodes than fit into memory,
            or is called with more inputs or outputs than it has.
    """
    if not functions:
        return list(nodes)
    _refuse_recursion(functions)
    fresh = _FreshNames(nodes)
    expanded: list[Node] = []
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        if len(expanded) + len(waiting) > MOST_NODES:
            raise ModelError(f"The functions of the model stand for more than {MOST_NODES} nodes; the last is {node}.")
        function = functions.get((node.domain, node.op_type, node.overload))
        operator = registry.find(node.op_type, node.domain)
        if function is None or (operator is not None and operator.domain == ""):
            expanded.append(node)
            continue
        body = inline(node, function, fresh)
        if operator is not None and is_meaning_of(node, body):
            expanded.append(node)
        else:
            waiting.extend(reversed(body))
    return expanded


def inline(call: Node, function: Function, fresh: Callable[[Node, str], str]) -> list[Node]:
    """The body of one call, with actual names, and with the call's attributes in place of references.

    Args:
        call: the node.
        function: what it calls.
        fresh: `fresh(call, name)` gives a new name for a value inside the body.

    Raises:
        ModelError: the call has more inputs or outputs than the function.
    """
    if len(call.inputs) > len(function.inputs) or len(call.outputs) > len(function.outputs):
        raise ModelError(
            f"{call} has {len(call.inputs)} inputs and {len(call.outputs)} outputs, "
            f"but its function takes {len(function.inputs)} and gives {len(function.outputs)}."
        )
    names = {"": ""} | dict.fromkeys(function.inputs, "") | dict(zip(function.inputs, call.inputs, strict=False))
    passed: list[Node] = []
    for formal, actual in zip(function.outputs, call.outputs, strict=False):
        if not actual:
            continue
        if formal in names:  # the function hands an input on, or one value twice
            passed.append(_identity(call, names[formal], actual))
        else:
            names[formal] = actual
    binding = {key: value for key, (value, _) in function.defaults.items()} | dict(call.attributes)
    types = {key: kind for key, (_, kind) in function.defaults.items()} | dict(call.attribute_types)

    def rename(name: str) -> str:
        if name not in names:
            names[name] = fresh(call, name)
        return names[name]

    body = [_bind(node, rename, binding, types) for node in function.nodes]
    return body + passed


def _identity(call: Node, source: str, target: str) -> Node:
    return Node("Identity", "", call.name, (source,), (target,), {}, {}, call.origin.get("", registry.NEWEST_OPSET))


def _bind(node: Node, rename: Callable[[str], str], binding: Mapping[str, Any], types: Mapping[str, int]) -> Node:
    attributes: dict[str, Any] = {}
    attribute_types: dict[str, int] = {}
    for key, value in node.attributes.items():
        if isinstance(value, AttributeReference):
            if value.name in binding:
                attributes[key], attribute_types[key] = binding[value.name], types[value.name]
            continue
        attribute_types[key] = node.attribute_types[key]
        if isinstance(value, Graph):
            attributes[key] = _bind_graph(value, rename, binding, types)
        elif isinstance(value, list) and value and isinstance(value[0], Graph):
            attributes[key] = [_bind_graph(item, rename, binding, types) for item in value]
        else:
            attributes[key] = value
    return replace(
        node,
        inputs=tuple(map(rename, node.inputs)),
        outputs=tuple(map(rename, node.outputs)),
        attributes=attributes,
        attribute_types=attribute_types,
    )


def _bind_graph(
    graph: Graph, rename: Callable[[str], str], binding: Mapping[str, Any], types: Mapping[str, int]
) -> Graph:
    """A body inside a function; its own names are renamed too, so that none hides an actual name."""
    own = {value.name for value in graph.inputs} | set(graph.initializers)
    for node in graph.nodes:
        own.update(node.outputs)
    local: dict[str, str] = {name: rename(f"{graph.name}/{name}") for name in sorted(own) if name}

    def rename_here(name: str) -> str:
        return local[name] if name in local else rename(name)

    def renamed(values: Sequence[ValueInfo]) -> tuple[ValueInfo, ...]:
        return tuple(ValueInfo(rename_here(value.name), value.type) for value in values)

    return Graph(
        graph.name,
        renamed(graph.inputs),
        renamed(graph.outputs),
        {rename_here(name): array for name, array in graph.initializers.items()},
        tuple(_bind(node, rename_here, binding, types) for node in graph.nodes),
    )


class _FreshNames:
    """Names for the values inside a body: the call's name, then the value's."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._taken = {name for node in nodes for name in (*node.inputs, *node.outputs)}
        self._calls = 0
        self._last: Node | None = None

    def __call__(self, call: Node, name: str) -> str:
        if call is not self._last:
            self._last = call
            self._calls += 1
        candidate = f"{call.name or call.op_type}/{self._calls}/{name}"
        while candidate in self._taken:
            candidate += "_"
        self._taken.add(candidate)
        return candidate


def _refuse_recursion(functions: Functions) -> None:
    calls = {key: sorted(_called(function.nodes, functions)) for key, function in functions.items()}
    finished: set[tuple[str, str, str]] = set()
    for start in calls:
        path = [start]
        on_path = {start}
        branches = [iter(calls[start])]
        while path:
            callee = next(branches[-1], None)
            if callee is None:
                on_path.discard(path[-1])
                finished.add(path.pop())
                branches.pop()
            elif callee in on_path:
                raise ModelError(f"The function {callee[0]}::{callee[1]} calls itself.")
            elif callee not in finished:
                path.append(callee)
                on_path.add(callee)
                branches.append(iter(calls[callee]))


def _called(nodes: Sequence[Node], functions: Functions) -> set[tuple[str, str, str]]:
    keys = {(node.domain, node.op_type, node.overload) for node in nodes} & functions.keys()
    for node in nodes:
        for body in node.bodies():
            keys |= _called(body.nodes, functions)
    return keys
