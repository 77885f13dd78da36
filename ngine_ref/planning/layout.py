"""Where each value of a plan lies in memory.

`sharing.py` says which values share a buffer. Here each buffer gets its place: in the arena, from the first step that
writes to it to the last that reads from it; or on the heap if one of its values is a result of the run, or holds
Python objects. What is only known while running is made on the heap too, and dropped after its last use.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod

import numpy as np

from ngine_ref.planning.arena import Buffer, place
from ngine_ref.planning.lowering import split_fused_tails
from ngine_ref.planning.plan import Draft, PlannedValue, Step
from ngine_ref.planning.sharing import Derive, Group, Sharing, Slices
from ngine_ref.registry import Array, Kernel, TensorSpec


@dataclass(slots=True)
class Action:
    """One step, with what happens to memory around it."""

    step: Step
    is_view: bool = False
    """The output is a view of the input: nothing to compute."""
    copies: list[tuple[int, Slices]] | None = None
    """Of a Concat: the inputs that are not in place yet, and where they belong; None for any other step."""
    allocate: list[int] = field(default_factory=list)
    """Roots of groups on the heap whose buffers are made before the step."""
    release: list[int] = field(default_factory=list)
    """Values that are dropped after the step: of groups on the heap, and those known only while running."""
    temporary: list[tuple[int, TensorSpec]] = field(default_factory=list)
    """Of a bound step, with their offsets in the arena: the kernel's scratch memory, then the outputs that it makes
    beyond those the node names."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Layout:
    """A plan with its memory."""

    values: list[PlannedValue]
    actions: list[Action]
    inputs: dict[str, int]
    results: list[int]
    arena_bytes: int
    """The size of the block that a run needs."""
    roots: list[tuple[int, int]]
    """Root values in the arena with their offsets."""
    derived: dict[int, Collection[tuple[int, int, Derive]]]
    """By root: the other values of its group, each with the value it is derived from and how, in a workable order."""
    owned_results: set[int]
    """Results that may be handed out as they are, because nothing else that is handed out shares their buffer."""
    moved_bytes: int
    """Bytes that the bound steps read and write."""
    copied_bytes: int
    """Bytes that the bound Concats copy."""


def lay_out(plan: Draft) -> Layout:
    """Decide where each value lies.

    Every Concat is offered its inputs as slices. Where that costs memory, because a small value that lives long then
    holds a large buffer, only the tails of fused Concats are.
    """
    split, tails = split_fused_tails(plan)
    everything = Sharing(split)
    layout = _place(everything)
    if everything.sliced - tails:
        only_tails = _place(Sharing(split, tails))
        layout = min((layout, only_tails), key=lambda candidate: candidate.arena_bytes)
    return layout


def _place(sharing: Sharing) -> Layout:
    plan = sharing.plan
    end = len(plan.steps)
    actions = [Action(step, index in sharing.views, sharing.copies.get(index)) for index, step in enumerate(plan.steps)]
    groups = list({id(group): group for group in sharing.group.values()}.values())
    in_arena: list[Group] = []
    for group in groups:
        if group.last == end or sharing.spec(group.root).dtype.hasobject:
            _put_on_heap(group, actions)
        elif not group.fixed:
            in_arena.append(group)
    buffers = [Buffer(_size(sharing.spec(group.root)), group.first, group.last) for group in in_arena]
    temporary = [
        (index, spec)
        for index, action in enumerate(actions)
        if action.step.kernel is not None
        for spec in _temporaries(action.step, action.step.kernel)
    ]
    buffers += [Buffer(_size(spec), index, index) for index, spec in temporary]
    offsets, arena_bytes = place(buffers)
    for (index, spec), offset in zip(temporary, offsets[len(in_arena) :], strict=True):
        actions[index].temporary.append((offset, spec))
    _release_unplanned(sharing, actions)
    copied = sum(_size(sharing.spec(value)) for copies in sharing.copies.values() for value, _ in copies)
    return Layout(
        plan.values,
        actions,
        plan.inputs,
        plan.results,
        arena_bytes,
        [(group.root, offset) for group, offset in zip(in_arena, offsets, strict=False)],
        {group.root: group.derived for group in groups},
        {value for value in plan.results if _is_owned(value, sharing)},
        sum(_moved(action, sharing) for action in actions),
        copied,
    )


def _put_on_heap(group: Group, actions: list[Action]) -> None:
    if group.fixed:
        return
    actions[group.first].allocate.append(group.root)
    if group.last < len(actions):
        actions[group.last].release.extend(group.values)


def _temporaries(step: Step, kernel: Kernel) -> list[TensorSpec]:
    named = {slot for slot, value in enumerate(step.outputs) if value is not None}
    scratch = TensorSpec((kernel.scratch_bytes,), np.dtype(np.uint8))
    return [scratch, *(spec for slot, spec in enumerate(kernel.outputs) if slot not in named)]


def _release_unplanned(sharing: Sharing, actions: list[Action]) -> None:
    fed = set(sharing.plan.inputs.values())
    for value, planned in enumerate(sharing.plan.values):
        if planned.spec is None and value not in fed and 0 <= sharing.last[value] < len(actions):
            actions[sharing.last[value]].release.append(value)


def _is_owned(value: int, sharing: Sharing) -> bool:
    group = sharing.group.get(value)
    if group is None or group.fixed:
        return False
    whole = sharing.elements(value) == sharing.elements(group.root)
    return whole and sum(result in group.values for result in sharing.plan.results) == 1


def _moved(action: Action, sharing: Sharing) -> int:
    """Bytes a bound step reads and writes; what lies in place already is neither."""
    if action.step.kernel is None or action.is_view:
        return 0
    if action.copies is not None:
        return 2 * sum(_size(sharing.spec(value)) for value, _ in action.copies)
    return sum(_size(sharing.spec(value)) for value in (*action.step.made(), *action.step.read()))


def _size(spec: TensorSpec) -> int:
    return prod(spec.shape) * spec.dtype.itemsize


def array_in(memory: Array, offset: int, spec: TensorSpec) -> Array:
    """An array of that shape and element type in a piece of memory."""
    return np.ndarray(spec.shape, spec.dtype, memory, offset)
