"""One sweep over a scope, producers before readers: nodes that are not needed are bypassed, Constants become
initializers.

A bypassed node's readers read the value it stood for. Where its output must keep its name (an output of the scope, a
value that a training step reads) the value's producer takes that name over; where that is not safe, the node stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter

from onnx import AttributeProto, GraphProto, TensorProto

from graphopt.cleanups.captures import Captured, rename_captured
from graphopt.cleanups.effects import is_deterministic
from graphopt.cleanups.same_value import SAME_VALUE
from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.scope import Node, Scope
from graphopt.graph.value_types import TensorType, ValueTypes
from graphopt.ledger import Cleaned


def sweep(scope: Scope, chosen: Collection[str], types: ValueTypes | None) -> list[Cleaned]:
    """Clean one scope once; returns what was removed.

    Args:
        scope: the scope; its nodes stand in topological order, and its bodies know what they capture.
        chosen: names of cleanups.
        types: what is known of the values' types; None inside functions.
    """
    work = _Sweep(scope, chosen, types)
    for node in scope.nodes:
        work.visit(node)
    work.finish()
    return work.cleaned


class _Sweep:
    """The state of one sweep, and what cleanups may ask about a node's surroundings."""

    def __init__(self, scope: Scope, chosen: Collection[str], types: ValueTypes | None) -> None:
        self.cleaned: list[Cleaned] = []
        self.opset = scope.opset
        self._scope = scope
        self._chosen = chosen
        self._types = types
        self._captured = Captured(scope)
        self._fixed = {*scope.outputs, *scope.training_reads}
        """Values whose names must stay."""
        self._kept: list[Node] = []
        self._makers: dict[str, Node] = {}
        self._same: dict[str, str] = {}
        """Outputs of bypassed nodes, and the values they are."""
        self._taken_over: dict[str, str] = {}
        """Values whose producers take over a fixed name, and that name."""
        self._alike: dict[tuple[str, tuple[str, ...]], list[Node]] = {}
        self._undone: list[Node] = []
        """Transposes that a later one undid: they may have no reader now."""

    def constant(self, value: str) -> TensorProto | None:
        """See `Place`."""
        return self._scope.constant(value)

    def type_of(self, value: str) -> TensorType | None:
        """See `Place`."""
        return None if self._types is None else self._types.of(value)

    def maker(self, value: str) -> Node | None:
        """See `Place`."""
        return self._makers.get(value)

    def is_read(self, value: str) -> bool:
        """See `Place`."""
        return bool(value) and DataflowGraph.of(self._scope).read_count(value) > 0

    def visit(self, node: Node) -> None:
        """Bypass the next node, turn it into an initializer, or keep it."""
        if self._same and not self._same.keys().isdisjoint(node.inputs):
            node = node.with_names(tuple(self._same.get(name, name) for name in node.inputs), node.outputs)
        if node.domain == "":
            if node.op_type == "Constant":
                if "constant" in self._chosen and self._became_initializer(node):
                    return
            elif self._is_bypassed(node) or ("duplicate" in self._chosen and self._is_duplicate(node)):
                return
        self._kept.append(node)
        for name in node.outputs:
            self._makers[name] = node

    def _is_bypassed(self, node: Node) -> bool:
        name, same_value = SAME_VALUE.get(node.op_type, ("", None))
        if same_value is None or name not in self._chosen or not (node.inputs and node.inputs[0] and node.outputs):
            return False
        value = same_value(self, node)
        if value is None or not self._bypass(node, name, {node.outputs[0]: value}):
            return False
        if value != node.inputs[0]:
            self._undone.append(self._makers[node.inputs[0]])
        return True

    def _is_duplicate(self, node: Node) -> bool:
        if not is_deterministic(node):
            return False
        inputs = node.inputs
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        alike = self._alike.setdefault((node.op_type, inputs), [])
        for other in alike:
            if _same_attributes(node, other) and [*map(bool, node.outputs)] == [*map(bool, other.outputs)]:
                same = dict(zip(node.outputs, other.outputs, strict=False))
                return self._bypass(node, "duplicate", {old: new for old, new in same.items() if old})
        alike.append(node)
        return False

    def _bypass(self, node: Node, cleanup: str, same: Mapping[str, str]) -> bool:
        """Leave a node out, if everything that reads its outputs can read these values instead."""
        names = dict(self._taken_over)
        for old, new in same.items():
            if old in self._fixed:
                if not self._may_take_over(old, new, names):
                    return False
                names[new] = old
            elif not self._captured.may_rename(old, new):
                return False
        self._taken_over = names
        self._same.update(same)
        self.cleaned.append(Cleaned(cleanup, node.label, tuple(filter(None, node.outputs)), self._scope.title))
        return True

    def _may_take_over(self, old: str, new: str, names: Mapping[str, str]) -> bool:
        """Whether the producer of `new` can make it under the name `old`."""
        maker = self._makers.get(new)
        return (
            maker is not None
            and is_deterministic(maker)
            and new not in self._fixed
            and new not in names
            and self._captured.may_rename(new, old)
            and not self._captured.redefines(old)
        )

    def _became_initializer(self, node: Node) -> bool:
        tensor = node.constant
        name = node.outputs[0]
        if tensor is None or name in self._fixed or not isinstance(self._scope.proto, GraphProto):
            return False
        self._scope.added[name] = self._scope.initializers[name] = tensor
        self.cleaned.append(Cleaned("constant", node.label, (name,), self._scope.title))
        return True

    def finish(self) -> None:
        """Put the nodes that stay, under their final names, into the scope and its bodies."""
        if not self.cleaned:
            return
        scope = self._scope
        gone = {*self._same, *self._taken_over} - set(self._taken_over.values())
        final = {old: self._taken_over.get(new, new) for old, new in self._same.items()} | self._taken_over
        renames = {old: new for old, new in final.items() if old != new}
        nodes = list(_renamed(self._kept, self._taken_over))
        for node in nodes:
            for body in node.bodies:
                rename_captured(body, renames)
        scope.nodes = nodes
        scope.defined -= gone
        scope.is_rewritten = True
        self._drop_undone()

    def _drop_undone(self) -> None:
        """Leave out the Transposes that nobody reads any more."""
        if not self._undone:
            return
        names = {self._taken_over.get(node.outputs[0], node.outputs[0]) for node in self._undone}
        read = {*self._fixed, *self._captured.names}
        read.update(name for node in self._scope.nodes for name in node.inputs)
        unread = names - read
        for node in self._scope.nodes:
            if not unread.isdisjoint(node.outputs):
                self.cleaned.append(Cleaned("transpose", node.label, node.outputs, self._scope.title))
        self._scope.nodes = [node for node in self._scope.nodes if unread.isdisjoint(node.outputs)]
        self._scope.defined -= unread


def _renamed(nodes: Iterable[Node], names: Mapping[str, str]) -> Iterable[Node]:
    for node in nodes:
        if names and not names.keys().isdisjoint((*node.inputs, *node.outputs)):
            inputs, outputs = (tuple(names.get(name, name) for name in side) for side in (node.inputs, node.outputs))
            node = node.with_names(inputs, outputs)
        yield node


def _same_attributes(one: Node, other: Node) -> bool:
    first, second = one.proto.attribute, other.proto.attribute
    return len(first) == len(second) and _texts(first) == _texts(second)


def _texts(attributes: Iterable[AttributeProto]) -> list[bytes]:
    return [a.SerializeToString(deterministic=True) for a in sorted(attributes, key=attrgetter("name"))]
