"""Which values of a plan share memory.

Values whose shapes are known before the run fall into groups that share one buffer. Within a group, a value is

- the root, which has the buffer to itself at first;
- a view of an earlier value in another shape (`Kernel.view`), or an elementwise result that takes over the buffer of
  an operand that dies there (`Kernel.in_place`);
- a slice of a `Concat`'s output, so that nothing need be copied: the producer writes straight into the joint buffer.
  In a chain of them, as in a dense block, each output is a slice of the next, and the whole block is one buffer:

       c4 |x       |x1  |x2  |x3  |x4  |      c1 = Concat(x, x1) is the head of c2 = Concat(c1, x2), and so on;
       c3 |-------------c3--------|    |      the root of them all is c4
       c2 |--------c2--------|
       c1 |-----c1------|

A slice of a batch of images is not contiguous. Only kernels that can write into such memory (`Kernel.strided`) get it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from ngine_ref.planning.plan import Draft, Step
from ngine_ref.registry import Array, Kernel, TensorSpec

Derive = Callable[[Array], Array]
Slices = tuple[slice, ...]


@dataclass(slots=True, eq=False)
class Group:
    """Values in one buffer."""

    root: int
    first: int
    """The first step that writes to it; -1 for what is there from the start."""
    last: int
    """The last step that reads from it; the number of steps if one of the values is a result."""
    fixed: bool
    """Not ours to write: a feed or a constant."""
    rigid: bool
    """It must stay contiguous: it has views, or a kernel writes it that cannot write strided memory."""
    values: set[int] = field(default_factory=set)
    contiguous: set[int] = field(default_factory=set)
    """The values that are contiguous; those that lie in slices of a batch of images are not."""
    derived: deque[tuple[int, int, Derive]] = field(default_factory=deque)
    """The values other than the root, each with the value it is derived from and how, in a workable order."""


class Sharing:
    """Decides, step by step, which values share memory.

    Args:
        plan: with its fused Concats split (`lowering.py`).
        sliceable: the only values that may become slices of a Concat's output; None: any.
    """

    def __init__(self, plan: Draft, sliceable: set[int] | None = None) -> None:
        self.plan = plan
        self.group: dict[int, Group] = {}
        """By value, of all values of known shape."""
        self.views: set[int] = set()
        """The steps whose output is a view of their input, so that there is nothing to compute."""
        self.copies: dict[int, list[tuple[int, Slices]]] = {}
        """By step, of every Concat: the inputs that are not in place yet, and where they belong."""
        self.sliced: set[int] = set()
        """The values that became slices."""
        self._sliceable = sliceable
        self.last = self._last_reads()
        """By value: the last step that reads it."""
        fed = set(plan.inputs.values())
        for value, planned in enumerate(plan.values):
            if planned.spec is not None and (value in fed or planned.constant is not None):
                self.group[value] = _alone(value, -1, self.last[value], fixed=True, rigid=True)
        for index, step in enumerate(plan.steps):
            if step.kernel is not None:
                self._assign(index, step, step.kernel)

    def spec(self, value: int) -> TensorSpec:
        """Shape and element type of a value of known shape."""
        spec = self.plan.values[value].spec
        assert spec is not None, "a bound step has only values of known shape"
        return spec

    def elements(self, value: int) -> int:
        """How many elements a value of known shape has."""
        return prod(self.spec(value).shape)

    def _last_reads(self) -> list[int]:
        last = [-1] * len(self.plan.values)
        for index, step in enumerate(self.plan.steps):
            for value in (*step.made(), *step.read()):
                last[value] = index
        for value in self.plan.results:
            last[value] = len(self.plan.steps)
        return last

    def _assign(self, index: int, step: Step, kernel: Kernel) -> None:
        """Groups for the outputs of one bound step."""
        if self._make_view(index, step, kernel):
            return
        taken_over = self._take_over(index, step, kernel)
        for value in step.made()[1 if taken_over else 0 :]:
            rigid = not kernel.strided and step.join_axis is None
            self.group[value] = _alone(value, index, self.last[value], fixed=False, rigid=rigid)
        if step.join_axis is not None:
            self.copies[index] = self._slice_inputs(step, step.join_axis)

    def _make_view(self, index: int, step: Step, kernel: Kernel) -> bool:
        source = step.inputs[0] if step.inputs else None
        if kernel.view is None or source is None or len(kernel.outputs) > 1 or not step.made():
            return False
        group = self.group[source]
        if source not in group.contiguous:
            return False
        self._join(step.made()[0], source, kernel.view)
        group.rigid = True
        self.views.add(index)
        return True

    def _take_over(self, index: int, step: Step, kernel: Kernel) -> bool:
        """Let the first output have the buffer of an input that dies here, if the kernel allows that."""
        output = step.outputs[0] if step.outputs else None
        for slot in kernel.in_place:
            source = step.inputs[slot] if slot < len(step.inputs) else None
            if source is None or output is None:
                continue
            group, spec, wanted = self.group[source], self.spec(source), kernel.outputs[0]
            others = sum(value in group.values for value in step.inputs if value is not None) - 1
            free = not group.fixed and group.last <= index and not others
            # A small result must not keep a large joint buffer alive.
            fits = (spec.shape, spec.dtype) == (wanted.shape, wanted.dtype)
            if free and fits and self._is_whole(source) and (kernel.strided or source in group.contiguous):
                self._join(output, source, _same)
                group.rigid = group.rigid or not kernel.strided
                return True
        return False

    def _is_whole(self, value: int) -> bool:
        """Whether a value has the whole buffer of its group, rather than a slice of it."""
        return self.elements(value) == self.elements(self.group[value].root)

    def _join(self, value: int, source: int, derive: Derive) -> None:
        group = self.group[source]
        group.derived.append((value, source, derive))
        group.values.add(value)
        group.last = max(group.last, self.last[value])
        if source in group.contiguous:
            group.contiguous.add(value)
        self.group[value] = group

    def _slice_inputs(self, step: Step, axis: int) -> list[tuple[int, Slices]]:
        """Make the inputs of a Concat slices of its output where that can be; return the others."""
        (output,) = step.made()
        copies: list[tuple[int, Slices]] = []
        start = 0
        for value in step.inputs:
            assert value is not None, "no input of a Concat is optional"
            stop = start + self.spec(value).shape[axis]
            where = (*(slice(None),) * axis, slice(start, stop))
            if not self._slice(value, output, where):
                copies.append((value, where))
            start = stop
        return copies

    def _slice(self, value: int, output: int, where: Slices) -> bool:
        if self._sliceable is not None and value not in self._sliceable:
            return False
        group, joint = self.group[value], self.group[output]
        contiguous = prod(self.spec(output).shape[: len(where) - 1]) == 1
        held = group.fixed or group is joint or group.last == len(self.plan.steps)
        if held or (group.rigid and not contiguous) or not self._is_whole(value) or self.spec(value).dtype.hasobject:
            return False
        cut = (group.root, output, _slicer(where, self.spec(group.root).shape))
        if not contiguous:
            group.contiguous.clear()
        # The smaller group moves into the larger one: in a chain of thousands of Concats that is the new output.
        if len(group.values) > len(joint.values):
            group.root = output
            group.derived.appendleft(cut)
            self._merge(joint, group)
        else:
            joint.derived.append(cut)
            self._merge(group, joint)
        self.sliced.add(value)
        return True

    def _merge(self, small: Group, large: Group) -> None:
        large.derived.extend(small.derived)
        large.values |= small.values
        large.contiguous |= small.contiguous
        large.first, large.last = min(large.first, small.first), max(large.last, small.last)
        large.rigid = large.rigid or small.rigid
        for member in small.values:
            self.group[member] = large


def _alone(value: int, first: int, last: int, *, fixed: bool, rigid: bool) -> Group:
    """A group of one value, the root."""
    return Group(value, first, last, fixed, rigid, values={value}, contiguous={value})


def _same(array: Array) -> Array:
    return array


def _slicer(where: Slices, shape: tuple[int, ...]) -> Derive:
    def cut(array: Array) -> Array:
        part = array[where]
        return part if part.shape == shape else part.reshape(shape)

    return cut
