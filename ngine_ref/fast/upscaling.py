"""Finds streams: a nearest enlargement, the convolution after it, and one or two more that nobody else reads.

    Resize x2 -> conv -> leaky                                     Stream(enlarge)
    Resize x2 -> conv -> leaky -> conv -> leaky -> conv to 3       Stream(enlarge, middle, few)
    conv -> leaky                                                  Stream(middle)      (made in `fast_pass.py`)

Every value inside must be read inside only. After a convolution come any elementwise operators that read nothing but
its own values and constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ngine_ref.fast.program import Elementwise, Step
from ngine_ref.fast.reading import Arithmetic, Convolution, Enlargement, Form, Reader
from ngine_ref.fast.stream import Stream

FEW = 8
"""Output channels up to which products with all taps are cheaper than Winograd's transforms."""


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A stream found in a plan."""

    members: tuple[int, ...]
    """Indices of steps."""
    source: int
    output: int
    stream: Stream


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    members: tuple[int, ...]
    step: Step
    output: int


def find_chains(reader: Reader, forms: Sequence[Form | None], readers: Counter[int]) -> Iterator[Chain]:
    """All streams of a plan that begin with an enlargement.

    Args:
        reader: of the plan.
        forms: what each step is.
        readers: how often each value is read; being a result of the run counts.
    """
    readers_of: dict[int, list[int]] = {}
    for index, step in enumerate(reader.plan.steps):
        for value in step.read():
            readers_of.setdefault(value, []).append(index)
    finder = _Finder(forms, readers, readers_of)
    for index, form in enumerate(forms):
        if isinstance(form, Enlargement):
            enlarge = finder.link(form.output)
            if enlarge is None:
                continue
            middle = finder.link(enlarge.output)
            few = finder.link(middle.output) if middle else None
            if few and few.step.channels > FEW:
                few = None
            links = [link for link in (enlarge, middle, few) if link]
            members = (index, *(member for link in links for member in link.members))
            stream = Stream(enlarge.step, middle.step if middle else None, few.step if few else None)
            yield Chain(members, form.source, links[-1].output, stream)


@dataclass(frozen=True, slots=True, eq=False)
class _Finder:
    forms: Sequence[Form | None]
    readers: Counter[int]
    readers_of: dict[int, list[int]]

    def link(self, source: int) -> _Link | None:
        """The 3x3 convolution that alone reads a value, with what follows it."""
        if self.readers[source] != 1 or not self.readers_of.get(source):
            return None
        start = self.readers_of[source][0]
        form = self.forms[start]
        if not isinstance(form, Convolution) or form.prefix is not None or form.weight.shape[2] != 3 or form.pictures:
            return None
        members, after, output = self._followers(start, form)
        step = Step((str(source),), form.weight, form.bias, form.convolved, after)
        return _Link(members, step, output)

    def _followers(self, start: int, form: Convolution) -> tuple[tuple[int, ...], tuple[Elementwise, ...], int]:
        """The longest run of elementwise steps after a convolution that leaves one value to read."""
        members, after = [start], list(form.after)
        own = {form.output}
        unread = self.readers[form.output]
        best = (tuple(members), tuple(after), form.output)
        waiting = sorted(set(self.readers_of.get(form.output, [])))
        while waiting:
            index = waiting.pop(0)
            follower = self.forms[index]
            if not isinstance(follower, Arithmetic) or not own.issuperset(follower.pictures):
                continue
            members.append(index)
            after += follower.operations
            own.add(follower.output)
            unread += self.readers[follower.output] - len(follower.pictures)
            waiting = sorted({*waiting, *self.readers_of.get(follower.output, [])} - set(members))
            if unread == self.readers[follower.output]:
                best = (tuple(members), tuple(after), follower.output)
        return best
