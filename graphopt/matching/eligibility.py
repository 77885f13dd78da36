"""The named conditions that a rule may require: one function and one sentence each.

A condition looks at one candidate (what its rule's values are bound to) and returns None where it holds, else a
sentence and the place at fault. It decides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice
from typing import Literal, NamedTuple

from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.declared_shapes import Dims
from graphopt.graph.scope import Node
from graphopt.rule import Condition, Rule
from graphopt.wording import counted, listed

Order = Literal["sink", "file"]
Fault = tuple[str, str]
"""A sentence, and the node or value at fault."""


class Candidate(NamedTuple):
    """What a condition may look at."""

    view: DataflowGraph
    anchor: int
    values: Mapping[str, str | None]
    variadic: tuple[str, ...]
    order: Order
    nodes: tuple[int, ...] = ()
    """The matched nodes; empty while the pattern is not matched to its end."""

    def value(self, name: str) -> str:
        """The graph's value for a value of the rule; '' where it is absent."""
        return self.values.get(name) or ""


Check = Callable[[Candidate, Condition], Fault | None]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A kind of condition: how it is written, what it says, and the function that checks it."""

    arguments: tuple[str, ...]
    """What its values stand for; a name in brackets may be left out."""
    parameters: tuple[str, ...]
    sentence: str
    """What it says, with places for values and parameters."""
    check: Check
    partial: bool = False
    """Whether it can be checked before the whole pattern is matched."""
    refuses: bool = True
    """Whether it can refuse a candidate; the others only say something about the rule, and have no number."""


def normal_axis(view: DataflowGraph, node: Node) -> int | None:
    """The axis of a Concat, counted from the front; None where it is no number, or the rank is unknown."""
    axis = node.attributes.integer("axis")
    if axis is None or axis >= 0:
        return axis
    ranks = (view.rank(value) for value in (*reversed(node.inputs), *node.outputs) if value)
    rank = next((rank for rank in ranks if rank is not None), None)
    return None if rank is None else axis + rank


def _axis(candidate: Candidate, condition: Condition) -> Fault | None:
    node = candidate.view.nodes[candidate.anchor]
    wanted = condition.parameters["equals"]
    axis = normal_axis(candidate.view, node)
    if axis == wanted:
        return None
    if axis is not None:
        return f"{node.title} joins along axis {axis}, not along axis {wanted}", node.label
    written = node.attributes.integer("axis")
    if written is None:
        return f"the axis of {node.title} is not a number in the model", node.label
    return f"{node.title} joins along axis {written}, and the rank to count it from is unknown", node.label


def _variadic(candidate: Candidate, condition: Condition) -> Fault | None:
    node = candidate.view.nodes[candidate.anchor]
    least = condition.parameters["least"]
    if len(candidate.variadic) < least:
        return f"{node.title} has {counted(len(node.inputs), 'input')}, it needs at least {least + 1}", node.label
    return None


def _sole_reader(candidate: Candidate, condition: Condition) -> Fault | None:
    value = candidate.value(condition.values[0])
    if candidate.view.read_count(value) == 1:
        return None
    return f"{value!r} is read {describe_readers(candidate.view, value)}", value


def _interior(candidate: Candidate, condition: Condition) -> Fault | None:
    view = candidate.view
    for name in condition.values:
        value = candidate.value(name)
        if value in candidate.variadic or list(candidate.values.values()).count(value) > 1:
            return f"{value!r} is also read as an input of the fused operator: {describe_readers(view, value)}", value
        inside = sum(index in candidate.nodes for index in view.readers(value))
        if inside != view.read_count(value):
            return f"{value!r} is also read outside the pattern: {describe_readers(view, value)}", value
    return None


def _adjacent(candidate: Candidate, condition: Condition) -> Fault | None:
    if candidate.order == "sink":  # the producer has one reader, so it may be moved to just before it
        return None
    view = candidate.view
    first, second = (view.producer(candidate.value(name)) for name in condition.values)
    if first is None or second is None or first + 1 == second:
        return None
    between = second - first - 1 - len(view.paths.passing(candidate.value(condition.values[0])) if view.paths else ())
    if not between:
        return None
    return (
        f"{counted(between, 'node')} between {view.nodes[first].title} and {view.nodes[second].title} in the file",
        view.nodes[second - 1].label,
    )


def _channel_slope(candidate: Candidate, condition: Condition) -> Fault | None:
    view = candidate.view
    slope, weight = (candidate.value(name) for name in condition.values)
    dims, weight_dims = view.dims(slope), view.dims(weight)
    rank = len(weight_dims) if weight_dims is not None else view.rank(candidate.value("x"))
    if dims is None or None in dims:
        return f"the shape of slope {slope!r} is not known before the model runs", slope
    if all(dim == 1 for dim in dims) and len(dims) <= (rank or 1):
        return None
    shown = list(dims)
    if rank is None:
        return f"slope {slope!r} has shape {shown}, and the rank it is aligned with is unknown", slope
    channels = weight_dims[0] if weight_dims else None
    if len(dims) <= rank and _is_per_channel(dims, rank, channels):
        return None
    wanted = [channels if channels is not None else "C", *[1] * (rank - 2)]
    if len(dims) == 1:
        return f"slope {slope!r} has shape {shown}, which ONNX aligns with the last axis, not with the channels", slope
    return f"slope {slope!r} has shape {shown}, neither one element nor one a channel ({wanted})", slope


def _is_per_channel(dims: Dims, rank: int, channels: int | None) -> bool:
    aligned = (1,) * (rank - len(dims)) + dims
    others = aligned[:1] + aligned[2:]
    return all(dim == 1 for dim in others) and (channels is None or aligned[1] in (1, channels))


def _holds(candidate: Candidate, condition: Condition) -> Fault | None:
    return None  # a statement about the rule itself: `preference` and `producers` go by it


REQUIREMENTS: Mapping[str, Requirement] = {
    "axis": Requirement(("y",), ("equals",), "{0} is joined along axis {equals}, however written", _axis, partial=True),
    "variadic": Requirement(
        ("inputs",), ("least",), "{0} stands for at least {least} of the inputs", _variadic, partial=True
    ),
    "sole_reader": Requirement(("value",), (), "{0} is read exactly once in the entire graph", _sole_reader),
    "interior": Requirement(("value", "..."), (), "{values} are read only inside the pattern", _interior),
    "adjacent": Requirement(("first", "second"), (), "{0} is made immediately before {1}", _adjacent),
    "channel_slope": Requirement(
        ("slope", "weight"), (), "{0} has one element, or one a channel as ONNX aligns it", _channel_slope
    ),
    "prefer_constant": Requirement(
        ("value",), (), "of several operand orders, the one that makes {0} a constant", _holds, refuses=False
    ),
    "is_producer": Requirement(
        ("value",), (), "the operator may be the producer in a rule for any producer", _holds, refuses=False
    ),
}
"""Every kind of condition, by the name it has in the domain `require`."""


@lru_cache(maxsize=1024)
def checks(rule: Rule) -> tuple[tuple[Check, Condition], ...]:
    """The conditions that a match of the rule may fail, each with its function."""
    return tuple((REQUIREMENTS[condition.kind].check, condition) for condition in rule.conditions if condition.number)


def sentence(condition: Condition) -> str:
    """What a condition of a rule says, with the rule's own names."""
    template = REQUIREMENTS[condition.kind].sentence
    return template.format(*condition.values, values=listed(condition.values, "and"), **condition.parameters)


def preference(candidate: Candidate, conditions: tuple[Condition, ...]) -> tuple[bool, ...]:
    """A sort key: smaller is the operand order that the rule would rather have."""
    keys: list[bool] = []
    for condition in conditions:
        if condition.kind == "prefer_constant":
            value = candidate.value(condition.values[0])
            keys += [candidate.view.constant(value) is None, not _scales(candidate.view.dims(value))]
    return tuple(keys)


def _scales(dims: Dims | None) -> bool:
    """Whether a shape is that of a scalar or of one number a channel: `[]`, `[1]`, `[C,1,1]`, `[1,C,1,1]`."""
    if dims is None or None in dims:
        return False
    while dims and dims[0] == 1:
        dims = dims[1:]
    return not dims or (len(dims) > 1 and all(dim == 1 for dim in dims[1:]))


def describe_readers(view: DataflowGraph, value: str) -> str:
    """Who reads a value, in words: `2 times: by Conv 'a' and as a graph output`."""
    count = view.read_count(value)
    if not count:
        return "by nobody"
    groups = list(islice(_reader_groups(view, value), _SHOWN + 2))
    if len(groups) > _SHOWN + 1:  # there may be thousands, so the others are only counted
        rest = count - sum(times for _, times in groups[:_SHOWN])
        groups = [*groups[:_SHOWN], (f"{rest} more", 1)]
    shown = [f"{text} ({times} times)" if times > 1 else text for text, times in groups]
    readers = listed(shown, "and")
    return f"{count} times: {readers}" if count != 1 else readers


_SHOWN = 3


def _reader_groups(view: DataflowGraph, value: str) -> Iterator[tuple[str, int]]:
    """Each reader in words, and how often it reads the value; the reads of one node stand together."""
    for index, reads in groupby(view.readers(value)):
        yield f"by {view.nodes[index].title}", sum(1 for _ in reads)
    for index, reads in groupby(view.captures(value)):
        yield f"inside a body of {view.nodes[index].title}", sum(1 for _ in reads)
    if value in view.outputs:
        where = f"as an output of {view.scope.title}" if view.scope.title else "as a graph output"
        yield where if value in view.scope.outputs else "by a training step", 1
