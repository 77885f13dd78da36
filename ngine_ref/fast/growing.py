"""Finds regions: connected convolutions on pictures of one size, with the arithmetic between them.

A region starts at a 3x3 convolution and takes in, in the plan's order, every step that reads only values of the
region, constants, or pictures that were there before it:

    conv_first -> [conv, leaky, concat] x 5 -> mul -> add -> ... -> conv_body -> add -> | Resize ...
    '----------------------------- one region: one step of the plan -------------------'

What depends on the region and cannot join taints what it makes: a step that reads a tainted value cannot join either,
or the region would have to run before and after it. In the plan the region stands where its last member stood, and
tainted steps move behind it. A Concat is no step inside, only a list of parts; where somebody outside reads it, it is
made after the region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ngine_ref.fast.program import Elementwise, Operand, Program, Step
from ngine_ref.fast.reading import Arithmetic, Convolution, Form, Join, Picture, Reader


@dataclass(slots=True)
class Growth:
    """A region while it grows."""

    reader: Reader
    size: Picture
    members: list[int] = field(default_factory=list)
    """Indices of plan steps."""
    steps: list[Step] = field(default_factory=list)
    sources: dict[int, str] = field(default_factory=dict)
    """Pictures from outside, by value."""
    parts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """What each value of the region is made of: itself, or the parts of a join."""
    tainted: set[int] = field(default_factory=set)
    makers: dict[str, int] = field(default_factory=dict)
    """The step that makes each name."""

    def join(self, index: int, form: Form | None) -> bool:
        """Take a step of the plan in, if that is possible."""
        if isinstance(form, Convolution):
            joined = self._convolution(form)
        elif isinstance(form, Arithmetic):
            joined = self._arithmetic(form)
        elif isinstance(form, Join):
            joined = self._join(form)
        else:
            return False
        if joined:
            self.members.append(index)
        return joined

    def _names(self, values: Sequence[int]) -> tuple[str, ...] | None:
        """The maps that values consist of; None if one of them cannot be had."""
        names: list[str] = []
        for value in values:
            if value in self.parts:
                names += self.parts[value]
            elif value not in self.tainted and self.reader.picture(value) == self.size:
                names.append(str(value))
            else:
                return None
        return tuple(names)

    def _use(self, values: Sequence[int]) -> None:
        for value in values:
            if value not in self.parts:
                self.sources[value] = str(value)

    def _convolution(self, form: Convolution) -> bool:
        read = (*(form.prefix or ()), form.source, *form.pictures)
        inputs, prefix = self._names([form.source]), self._names(form.prefix or ())
        operands = [self._names([value]) for value in form.pictures]
        if inputs is None or prefix is None or any(names is None or len(names) != 1 for names in operands):
            return False
        self._use(read)
        after = self._renamed(form.after, form.pictures)
        for name in (form.convolved, *(operation.output for operation in after)):
            self.makers[name] = len(self.steps)
        self.steps.append(Step(inputs, form.weight, form.bias, form.convolved, after))
        self.parts[form.output] = (*prefix, form.result)
        return True

    def _arithmetic(self, form: Arithmetic) -> bool:
        own = [self.parts[value] for value in form.pictures if value in self.parts]
        if not own or any(len(parts) != 1 for parts in own) or self._names(form.pictures) is None:
            return False
        made = [self.makers[parts[0]] for parts in own if parts[0] in self.makers]
        if not made:
            return False
        at = max(made)
        step = self.steps[at]
        if step.channels != self.reader.channels(form.output):
            return False
        self._use(form.pictures)
        operations = self._renamed(form.operations, form.pictures)
        self.steps[at] = replace(step, after=(*step.after, *operations))
        for operation in operations:
            self.makers[operation.output] = at
        self.parts[form.output] = (str(form.output),)
        return True

    def _join(self, form: Join) -> bool:
        names = self._names(form.parts)
        if names is None or not any(part in self.parts for part in form.parts):
            return False
        self._use(form.parts)
        self.parts[form.output] = names
        return True

    def _renamed(self, operations: Sequence[Elementwise], pictures: Sequence[int]) -> tuple[Elementwise, ...]:
        """Operators on pictures as operators on the region's maps: a join of one part is that part."""
        names = {str(value): self.parts[value][0] for value in pictures if value in self.parts}

        def inputs(operation: Elementwise) -> tuple[Operand, ...]:
            return tuple(names.get(x, x) if isinstance(x, str) else x for x in operation.inputs)

        return tuple(replace(operation, inputs=inputs(operation)) for operation in operations)

    def program(self, outputs: Sequence[str]) -> Program:
        """The region as a program with those outputs."""
        read = {name for step in self.steps for name in step.read()}
        channels = {name: self.reader.channels(value) for value, name in self.sources.items() if name in read}
        return Program(channels, tuple(self.steps), tuple(outputs))


def grow(reader: Reader, forms: Sequence[Form | None], start: int, readers: Counter[int]) -> Growth | None:
    """The largest region that starts at a step of the plan.

    Args:
        reader: of the plan.
        forms: what each step is; None for those that cannot be in a region.
        start: index of a step that is a convolution.
        readers: how often steps read each value.
    """
    first = forms[start]
    assert isinstance(first, Convolution)
    size = reader.picture(first.output)
    if size is None or first.weight.shape[2] != 3:
        return None
    region = Growth(reader, size)
    if not region.join(start, first):
        return None
    unread = readers[first.output]
    for index in range(start + 1, len(forms)):
        if unread <= 0:
            break
        step = reader.plan.steps[index]
        own = sum(value in region.parts or value in region.tainted for value in step.read())
        if region.join(index, forms[index]):
            unread += readers[step.made()[0]] - own
        elif own:
            region.tainted.update(step.made())
            unread += sum(readers[value] for value in step.made()) - own
    return region
