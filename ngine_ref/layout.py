"""Where each value of a plan lies in memory.

Values whose shapes are known before the run lie in groups that share one buffer. Within a group, a value is

- the root, which has the buffer to itself at first;
- a view of an earlier value in another shape (`Kernel.view`), or an elementwise result that takes over the buffer of
  an operand that dies there (`Kernel.in_place`);
- a slice of a `Concat`'s output, so that nothing need be copied: the producer writes straight into the joint buffer.
  A `ConcatFusedTail` is first split into its convolution and a `Concat`, which makes that the general case. In a
  chain of them, as in a dense block, each output is a slice of the next, and the whole block is one buffer.

       c4 |x       |x1  |x2  |x3  |x4  |      c1 = Concat(x, x1) is the head of c2 = Concat(c1, x2), and so on;
       c3 |-------------c3--------|    |      x is the root of no buffer any more
       c2 |--------c2--------|
       c1 |-----c1------|

A slice of a batch of images is not contiguous. Only kernels that can write into such memory (`Kernel.strided`) get it.

A group's buffer lies in the arena, from the first step that writes to the last that reads; or on the heap if one of
its values is a result of the run, or holds Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from ngine_ref.arena import Buffer, place
from ngine_ref.lowering import split_fused_tails
from ngine_ref.plan import Draft, PlannedValue, Step
from ngine_ref.registry import Array, TensorSpec

Derive = Callable[[Array], Array]
Slices = tuple[slice, ...]


@dataclass(slots=True)
class Action:
    """One step, with what happens to memory around it."""

    step: Step
    allocate: list[int] = field(default_factory=list)
    """Roots of groups on the heap whose buffers are made before the step."""
    release: list[int] = field(default_factory=list)
    """Values that are dropped after the step: of groups on the heap, and those known only while running."""
    copies: list[tuple[int, Slices]] | None = None
    """Of a Concat: the inputs that are not in place yet, and where they belong; None for any other step."""
    is_view: bool = False
    """The output is a view of the input: nothing to compute."""
    spare: tuple[TensorSpec, ...] = ()
    """Outputs the kernel makes beyond those the node names."""
    scratch: tuple[int, int] = (0, 0)
    """Offset and size of the kernel's scratch memory in the arena."""
    spare_offsets: tuple[int, ...] = ()


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
    derived: dict[int, list[tuple[int, int, Derive]]]
    """By root: the other values of the group, each with the value it is derived from and how, in a workable order."""
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
    everything = _Groups(split, None).layout()
    if not everything.sliced - tails:
        return everything.result
    only_tails = _Groups(split, tails).layout()
    return min((everything.result, only_tails.result), key=lambda layout: layout.arena_bytes)


@dataclass(slots=True)
class _Group:
    root: int
    members: list[tuple[int, int, Derive]]
    first: int
    last: int
    values: set[int]
    fixed: bool
    """Not ours to write: a feed or a constant."""
    rigid: bool
    """It must stay contiguous: it has views, or a kernel writes it that cannot write strided memory."""
    strided: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Outcome:
    result: Layout
    sliced: set[int]


class _Groups:
    """Builds the groups step by step, then places their buffers."""

    def __init__(self, plan: Draft, sliceable: set[int] | None) -> None:
        self._plan = plan
        self._sliceable = sliceable
        self._sliced: set[int] = set()
        self._last = self._last_reads()
        self._group: dict[int, _Group] = {}
        self._actions = [Action(step) for step in plan.steps]
        fed = set(plan.inputs.values())
        for value, planned in enumerate(plan.values):
            if planned.spec is not None and (value in fed or planned.constant is not None):
                self._group[value] = _Group(value, [], -1, self._last[value], {value}, fixed=True, rigid=True)

    def _last_reads(self) -> list[int]:
        last = [-1] * len(self._plan.values)
        for index, step in enumerate(self._plan.steps):
            for value in (*step.made(), *step.read()):
                last[value] = index
        for value in self._plan.results:
            last[value] = len(self._plan.steps)
        return last

    def layout(self) -> _Outcome:
        moved = 0
        for index, action in enumerate(self._actions):
            if action.step.kernel is not None:
                moved += self._assign(index, action)
        copied = sum(self._size(value) for action in self._actions for value, _ in action.copies or ())
        return _Outcome(self._place(moved, copied), self._sliced)

    def _spec(self, value: int) -> TensorSpec:
        spec = self._plan.values[value].spec
        assert spec is not None, "a bound step has only values of known shape"
        return spec

    def _size(self, value: int) -> int:
        spec = self._spec(value)
        return prod(spec.shape) * spec.dtype.itemsize

    def _assign(self, index: int, action: Action) -> int:
        """Groups for the outputs of one bound step; returns the bytes it moves."""
        step, kernel = action.step, action.step.kernel
        assert kernel is not None
        action.spare = tuple(
            spec for slot, spec in enumerate(kernel.outputs) if slot >= len(step.outputs) or step.outputs[slot] is None
        )
        if self._make_view(action):
            return 0
        taken_over = self._take_over(index, step)
        for value in step.made()[1 if taken_over else 0 :]:
            self._group[value] = _Group(
                value, [], index, self._last[value], {value}, fixed=False, rigid=not (kernel.strided or _joins(step))
            )
        if step.join_axis is not None:
            action.copies = self._slice_inputs(step)
            return 2 * sum(self._size(value) for value, _ in action.copies)
        return sum(map(self._size, step.made())) + sum(self._size(v) for v in step.inputs if v is not None)

    def _make_view(self, action: Action) -> bool:
        step, kernel = action.step, action.step.kernel
        if kernel is None or kernel.view is None or action.spare or step.outputs[1:] or step.inputs[0] is None:
            return False
        source, output = step.inputs[0], step.outputs[0]
        group = self._group[source]
        if output is None or source in group.strided:
            return False
        self._join(output, source, kernel.view)
        group.rigid = True
        action.is_view = True
        return True

    def _take_over(self, index: int, step: Step) -> bool:
        """Let the first output have the buffer of an input that dies here, if the kernel allows that."""
        kernel, output = step.kernel, step.outputs[0] if step.outputs else None
        if kernel is None or output is None:
            return False
        for slot in kernel.in_place:
            source = step.inputs[slot] if slot < len(step.inputs) else None
            if source is None:
                continue
            group = self._group[source]
            shared = sum(value in group.values for value in step.inputs if value is not None)
            free = not group.fixed and group.last <= index and shared == 1
            spec = self._spec(source)
            fits = (spec.shape, spec.dtype) == (kernel.outputs[0].shape, kernel.outputs[0].dtype)
            # A small result must not keep a large joint buffer alive.
            fits = fits and prod(spec.shape) == prod(self._spec(group.root).shape)
            if free and fits and (kernel.strided or source not in group.strided):
                self._join(output, source, _same)
                group.rigid = group.rigid or not kernel.strided
                return True
        return False

    def _join(self, value: int, source: int, derive: Derive) -> None:
        group = self._group[source]
        group.members.append((value, source, derive))
        group.values.add(value)
        group.last = max(group.last, self._last[value])
        if source in group.strided:
            group.strided.add(value)
        self._group[value] = group

    def _slice_inputs(self, step: Step) -> list[tuple[int, Slices]]:
        """Make the inputs of a Concat slices of its output where that can be; return the others."""
        axis, output = step.join_axis, step.outputs[0]
        assert axis is not None
        copies: list[tuple[int, Slices]] = []
        start = 0
        for value in step.inputs:
            if value is None:
                continue
            stop = start + self._spec(value).shape[axis]
            where = (*(slice(None),) * axis, slice(start, stop))
            if output is None or not self._slice(value, output, where, axis):
                copies.append((value, where))
            start = stop
        return copies

    def _slice(self, value: int, output: int, where: Slices, axis: int) -> bool:
        if self._sliceable is not None and value not in self._sliceable:
            return False
        group, joint = self._group[value], self._group[output]
        spec = self._spec(value)
        contiguous = prod(self._spec(output).shape[:axis]) == 1 and output not in joint.strided
        held = group.fixed or group is joint or group.last > len(self._plan.steps) - 1
        if held or (group.rigid and not contiguous) or spec.dtype.hasobject:
            return False
        root = group.root
        shape = self._spec(root).shape
        if prod(shape) != prod(spec.shape):  # it is itself a part of something
            return False
        joint.members.append((root, output, _slicer(where, shape)))
        joint.members.extend(group.members)
        joint.values |= group.values
        joint.first, joint.last = min(joint.first, group.first), max(joint.last, group.last)
        joint.rigid = joint.rigid or group.rigid
        if contiguous:
            joint.strided |= group.strided
        else:
            joint.strided |= group.values
        for member in group.values:
            self._group[member] = joint
        self._sliced.add(value)
        return True

    def _place(self, moved: int, copied: int) -> Layout:
        results = self._plan.results
        groups = list({id(group): group for group in self._group.values()}.values())
        buffers: list[Buffer] = []
        in_arena: list[int] = []
        for group in groups:
            if group.fixed:
                continue
            spec = self._spec(group.root)
            if spec.dtype.hasobject or group.last == len(self._plan.steps):
                self._actions[group.first].allocate.append(group.root)
                if group.last < len(self._plan.steps):
                    self._actions[group.last].release.extend(group.values)
            else:
                in_arena.append(group.root)
                buffers.append(Buffer(self._size(group.root), group.first, group.last))
        for index, action in enumerate(self._actions):
            if action.step.kernel is not None:
                buffers.append(Buffer(action.step.kernel.scratch_bytes, index, index))
                buffers.extend(Buffer(prod(spec.shape) * spec.dtype.itemsize, index, index) for spec in action.spare)
        offsets, total = place(buffers)
        rest = iter(offsets[len(in_arena) :])
        for action in self._actions:
            if action.step.kernel is not None:
                action.scratch = (next(rest), action.step.kernel.scratch_bytes)
                action.spare_offsets = tuple(next(rest) for _ in action.spare)
        self._release_dynamic()
        return Layout(
            self._plan.values,
            self._actions,
            self._plan.inputs,
            results,
            total,
            list(zip(in_arena, offsets, strict=False)),
            {group.root: group.members for group in groups},
            {value for value in results if self._is_owned(value, results)},
            moved,
            copied,
        )

    def _release_dynamic(self) -> None:
        fed = set(self._plan.inputs.values())
        for value, planned in enumerate(self._plan.values):
            if planned.spec is None and value not in fed and 0 <= self._last[value] < len(self._plan.steps):
                self._actions[self._last[value]].release.append(value)

    def _is_owned(self, value: int, results: Sequence[int]) -> bool:
        group = self._group.get(value)
        if group is None or group.fixed:
            return False
        whole = prod(self._spec(value).shape) == prod(self._spec(group.root).shape)
        return whole and sum(result in group.values for result in results) == 1


def _joins(step: Step) -> bool:
    return step.join_axis is not None


def _same(array: Array) -> Array:
    return array


def _slicer(where: Slices, shape: tuple[int, ...]) -> Derive:
    def cut(array: Array) -> Array:
        part = array[where]
        return part if part.shape == shape else part.reshape(shape)

    return cut


def array_in(memory: Array, offset: int, spec: TensorSpec) -> Array:
    """An array of that shape and element type in a piece of memory."""
    return np.ndarray(spec.shape, spec.dtype, memory, offset)
