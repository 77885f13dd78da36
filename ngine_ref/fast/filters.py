"""Filter banks: transformed once and kept, or made anew while a run goes on.

A transformed bank is four times its weights: 268 MB for RRDBNet-23. Kept, it costs nothing but that memory, once for
all plans that use the weights. Made anew, it costs one small GEMM a step, which vanishes against a large picture;
four buffers are enough, because the parts are never more than a step apart (`teamwork.py`):

    step s reads     bank s      |  s % 4
    step s makes     bank s + 2  |  (s + 2) % 4     each part its share of the output channels
    others may still read s - 1  |  (s - 1) % 4     another buffer than all of these
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

import numpy as np

from ngine_ref.fast.arithmetic import Instruction
from ngine_ref.fast.memory import Arena
from ngine_ref.fast.program import Step
from ngine_ref.fast.winograd import FILTER_TRANSFORM, PLANES, TAPS, Float32, transformed_filters

AHEAD = 2
"""How many steps before its use a bank is made."""
BUFFERS = 4


class KeptFilters:
    """The transformed filter bank of some weights, shared by all who want the same."""

    def __init__(self, weight: Float32, scale: float, arena: Arena) -> None:
        self.weight = weight
        """Held on to: as long as the bank lives, nothing else can have the weights' identity."""
        self.bank = arena.zeros(PLANES, *weight.shape[:2])
        """U [36, N, C]."""
        self.bank[:] = transformed_filters(weight, scale)


_kept: WeakValueDictionary[tuple[int, float], KeptFilters] = WeakValueDictionary()
_lock = threading.Lock()


def keep_filters(step: Step, arena: Arena) -> KeptFilters:
    """The filter bank of a 3x3 step, made if nobody has it yet."""
    with _lock:
        key = (id(step.weight), step.scale)
        found = _kept.get(key)
        if found is None:
            found = _kept[key] = KeptFilters(step.weight, step.scale, arena)
        return found


def kept_bytes(steps: Sequence[Step]) -> int:
    """How much memory the banks of these steps take, if they are kept."""
    return sum(4 * PLANES * step.channels * step.weight.shape[1] for step in steps if not step.pointwise)


def pointwise_filters(step: Step) -> Float32:
    """The weights [N, C] of a 1x1 step."""
    return np.ascontiguousarray(step.weight[:, :, 0, 0]) * np.float32(step.scale)


class PassingFilters:
    """The filter banks of a program's steps in four buffers, for one run at a time."""

    def __init__(self, steps: Sequence[Step], parts: int, arena: Arena) -> None:
        self._steps, self._parts = steps, parts
        largest = max((step.channels * step.weight.shape[1] for step in steps if not step.pointwise), default=0)
        self._buffers = [arena.zeros(PLANES * largest) for _ in range(BUFFERS)]
        self._transforms: dict[float, Float32] = {}

    def bank(self, number: int) -> Float32:
        """Where the bank [36, N, C] of step `number` is while that step runs."""
        step = self._steps[number]
        shape = (PLANES, *step.weight.shape[:2])
        return self._buffers[number % BUFFERS][: int(np.prod(shape))].reshape(shape)

    def make(self, number: int, part: int) -> list[Instruction]:
        """A part's share of making the bank of step `number`; nothing where there is no such bank."""
        if number >= len(self._steps) or self._steps[number].pointwise:
            return []
        step = self._steps[number]
        outputs, inputs = step.weight.shape[:2]
        first, last = outputs * part // self._parts, outputs * (part + 1) // self._parts
        if first == last:
            return []
        share = self.bank(number).reshape(PLANES, -1)[:, first * inputs : last * inputs]
        taps = step.weight[first:last].reshape(-1, TAPS * TAPS).T
        return [partial(np.matmul, self._transform(step.scale), taps, share)]

    def _transform(self, scale: float) -> Float32:
        if scale not in self._transforms:
            self._transforms[scale] = (scale * FILTER_TRANSFORM).astype(np.float32)
        return self._transforms[scale]
