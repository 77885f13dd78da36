"""When each feature map is transformed, where it lives, and when its memory is free: decided once a program.

Two questions are answered for a program, whatever the size of the picture:

1. Which convolutions share input transforms? A convolution whose inputs begin with all that is already transformed
   only transforms the rest. In a dense block every map is transformed once, though five convolutions read it:

       step   inputs            transforms   V after it
       conv1  x                 x            | x |
       conv2  x, x1             x1           | x | x1 |
       conv3  x, x1, x2         x2           | x | x1 | x2 |

2. Which maps may take the same buffer? A buffer is free again one step after the last step that reads it: never in
   that step itself, because another worker may still read its border rows (see `executor.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ngine_ref.fast.program import Program, Step


@dataclass(frozen=True, slots=True)
class Placed:
    """A step, with its place in the shared transforms."""

    step: Step
    transforms: tuple[str, ...] = ()
    """The inputs that have to be transformed here (3x3 only); the others still are."""
    first_channel: int = 0
    """Where they go, counted in channels."""
    kept: bool = False
    """Whether the transforms must outlive the tile row they are made for, because another step reads them."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One buffer for feature maps, which several maps take in turn."""

    index: int
    channels: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything about a program that does not depend on the picture's size."""

    program: Program
    steps: tuple[Placed, ...]
    slots: dict[str, Slot]
    """The buffer of every map that is stored; other values live in registers."""
    bordered: frozenset[str]
    """Maps that a 3x3 convolution reads: they need their neighbours' border pixels."""
    kept_channels: int
    """The most channels of transforms that are kept at a time."""


def schedule(program: Program) -> Schedule:
    """Place the transforms and the feature maps of a program."""
    program.check()
    placed = _place_transforms(program)
    kept = [sum(program.channels()[name] for name in item.step.inputs) for item in placed if item.kept]
    bordered = frozenset(name for item in placed for name in item.transforms)
    return Schedule(program, placed, _place_maps(program, placed), bordered, max(kept, default=0))


def _place_transforms(program: Program) -> tuple[Placed, ...]:
    channels = program.channels()
    placed: list[Placed] = []
    transformed: tuple[str, ...] = ()
    latest = -1
    """Index of the newest 3x3 step: the one whose transforms may be extended."""
    for step in program.steps:
        if step.pointwise:
            placed.append(Placed(step))
            continue
        shared = len(transformed)
        if shared and step.inputs[:shared] == transformed:
            before = placed[latest]
            placed[latest] = Placed(before.step, before.transforms, before.first_channel, kept=True)
            kept = True
        else:
            shared, kept = 0, False
        first = sum(channels[name] for name in step.inputs[:shared])
        transformed = step.inputs
        latest = len(placed)
        placed.append(Placed(step, step.inputs[shared:], first, kept))
    return tuple(placed)


def _place_maps(program: Program, placed: tuple[Placed, ...]) -> dict[str, Slot]:
    channels = program.channels()
    last_read = dict.fromkeys(program.outputs, len(placed))
    for index, item in enumerate(placed):
        # A 3x3 convolution reads the maps it transforms; of the others it reads what was transformed before.
        inputs = item.step.inputs if item.step.pointwise else item.transforms
        for name in (*inputs, *item.step.operands()):
            last_read[name] = max(last_read.get(name, -1), index)
    slots: dict[str, Slot] = {}
    busy: list[tuple[int, Slot]] = []
    free: list[Slot] = []
    count = 0
    for index, made in enumerate([tuple(program.inputs), *(tuple(item.step.made()) for item in placed)]):
        step = index - 1
        free += [slot for end, slot in busy if end < step]
        busy = [(end, slot) for end, slot in busy if end >= step]
        for name in made:
            if name not in last_read:
                continue
            slot = next((slot for slot in free if slot.channels == channels[name]), None)
            if slot is None:
                slot = Slot(count, channels[name])
                count += 1
            else:
                free.remove(slot)
            slots[name] = slot
            busy.append((last_read[name], slot))
    return slots
