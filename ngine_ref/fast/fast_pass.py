"""The pass that hands regions of a plan to the fast executors.

    before   conv_first | conv ... conv_body, add | Resize, conv | Resize, conv, conv_hr, conv_last | ...
    after    region                               | stream       | stream                           | ...

Streams are looked for first (an enlargement wants its convolution), then regions grow in what is left. A step that
fits neither keeps its own kernel. What is found depends on shapes and on the graph alone: the same plan every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ngine_ref.fast.executor import BoundRegion, Region
from ngine_ref.fast.growing import Growth, grow
from ngine_ref.fast.program import Program
from ngine_ref.fast.reading import Convolution, Reader
from ngine_ref.fast.stream import BoundStream, Stream, StreamRegion
from ngine_ref.fast.upscaling import find_chains
from ngine_ref.fast.winograd import TILE
from ngine_ref.loading.graph import Node
from ngine_ref.nodes.evaluation import bind, kernel_operator
from ngine_ref.planning.plan import Draft, Step
from ngine_ref.registry import NEWEST_OPSET, Array, Kernel, TensorSpec, Workspace

LEAST_WORK = 32 * 32
"""Input times output channels from which Winograd gains on a direct convolution."""
LEAST_TILES = 12
"""Tiles below which the transformed weights cost more to read than they save."""
SHORT = 2
"""Convolutions up to which a region pays for its layout, its own buffers and calling its helpers by itself."""
LEAST_TILES_SHORT = 150
"""Tiles below which a short region does not."""
LEAST_WORK_SHORT = 800_000
"""Input times output channels times tiles from which a short region gains: 64 x 64 on 56x56 pixels."""
LEAST_CHANNELS_SHORT = 64
"""Input and output channels that it takes for that: transforms of 160 channels for 32 outputs cost more than they save
where the buffers come out of memory (the convolutions of a plain dense block then take twice their plain time)."""


def hand_over_regions(plan: Draft, keep_filters: bool | None = None) -> Draft:
    """The same plan with fast regions as single steps.

    Args:
        plan: a draft; it is not changed.
        keep_filters: whether regions keep their transformed filters; None: unless these are large and the picture is.
    """
    rewriting = _Rewriting(plan, keep_filters)
    rewriting.streams()
    rewriting.regions()
    return rewriting.plan


def _pays(growth: Growth) -> bool:
    batch, height, width = growth.size
    tiles = batch * -(-height // TILE) * -(-width // TILE)
    channels = [step.weight.shape[:2] for step in growth.steps if not step.pointwise]
    work = max(outputs * inputs for outputs, inputs in channels)
    if len(growth.steps) <= SHORT:
        wide = min(map(min, channels)) >= LEAST_CHANNELS_SHORT
        return wide and tiles >= LEAST_TILES_SHORT and work * tiles >= LEAST_WORK_SHORT
    return tiles >= LEAST_TILES and work >= LEAST_WORK


class _Rewriting:
    """A plan while regions take the place of its steps."""

    def __init__(self, plan: Draft, keep_filters: bool | None) -> None:
        self._keep_filters = keep_filters
        self.plan = Draft(list(plan.values), list(plan.steps), plan.inputs, plan.results)
        self._reader = Reader(self.plan)
        self._forms = [self._reader.read(step) for step in plan.steps]
        self._readers = Counter(value for step in plan.steps for value in step.read())

    def streams(self) -> None:
        """Put streams in place of enlargements and what follows them."""
        gone: set[int] = set()
        instead: dict[int, Step] = {}
        for chain in find_chains(self._reader, self._forms, self._readers + Counter(self.plan.results)):
            gone.update(chain.members)
            last = chain.members[-1]
            instead[last] = self._step([chain.source], [chain.output], StreamRegion(chain.stream))
        kept = [index for index in range(len(self._forms)) if index not in gone or index in instead]
        self.plan.steps[:] = [instead.get(index, self.plan.steps[index]) for index in kept]
        self._forms[:] = [None if index in instead else self._forms[index] for index in kept]
        self._readers = Counter(value for step in self.plan.steps for value in step.read())

    def regions(self) -> None:
        """Grow regions and put them in place of their members."""
        start = 0
        while start < len(self._forms):
            if isinstance(self._forms[start], Convolution):
                growth = grow(self._reader, self._forms, start, self._readers)
                if growth is not None and _pays(growth):
                    self._replace(growth)
                    continue
            start += 1

    def _replace(self, growth: Growth) -> None:
        """Put a region, with what has to run before and after it, where its members were."""
        members = set(growth.members)
        window = range(growth.members[0], growth.members[-1] + 1)
        others = [index for index in window if index not in members]
        behind = [index for index in others if growth.tainted.intersection(self.plan.steps[index].made())]
        before = [index for index in others if index not in behind]
        new = self._new_steps(growth)
        for index in members:
            self._readers.subtract(self.plan.steps[index].read())
        for step in new:
            self._readers.update(step.read())
        steps, forms = self.plan.steps, self._forms
        place = slice(window.start, window.stop)
        steps[place], forms[place] = (
            [*(steps[index] for index in before), *new, *(steps[index] for index in behind)],
            [*(forms[index] for index in before), *(None for _ in new), *(forms[index] for index in behind)],
        )

    def _new_steps(self, growth: Growth) -> list[Step]:
        """The region, and the Concats of its values that somebody outside reads."""
        inside = Counter(value for index in growth.members for value in self.plan.steps[index].read())
        wanted = [value for value in growth.parts if value in self.plan.results or self._readers[value] > inside[value]]
        joins = [value for value in wanted if len(growth.parts[value]) > 1]
        values = {growth.parts[value][0]: value for value in wanted if value not in joins}
        for name in (name for join in joins for name in growth.parts[join]):
            if name not in values and name not in growth.sources.values():
                values[name] = self._value_of(name, growth)
        program = growth.program(list(values))
        inputs = [value for value, name in growth.sources.items() if name in program.inputs]
        steps = [self._step(inputs, list(values.values()), self._region(program))]
        values |= {name: value for value, name in growth.sources.items()}
        return steps + [self._join_step(join, [values[name] for name in growth.parts[join]]) for join in joins]

    def _region(self, program: Program) -> Region | StreamRegion:
        """A region; a stream where it is a single convolution, which needs less memory."""
        step = program.steps[0]
        alone = len(program.steps) == len(program.inputs) == 1 and not list(step.operands())
        if alone and list(program.outputs) == list(step.made())[-1:]:
            return StreamRegion(Stream(middle=step))
        return Region(program, self._keep_filters)

    def _value_of(self, name: str, growth: Growth) -> int:
        """The plan's value for a name of a region; a new one for the tail of a fused join."""
        if name.isdigit():
            return int(name)
        batch, height, width = growth.size
        channels = growth.program(()).channels()[name]
        return self.plan.add(name, TensorSpec((batch, channels, height, width), np.dtype(np.float32)))

    def _step(self, inputs: list[int], outputs: list[int], region: Region | StreamRegion) -> Step:
        size = self._reader.picture(inputs[0])
        assert size is not None, "regions and streams read pictures"
        kernel = _kernel(tuple(self._spec(value) for value in outputs), region.bind(*size))
        read, made = (tuple(self.plan.values[value].name for value in values) for values in (inputs, outputs))
        node = Node("Region", "ngine_ref", made[-1], read, made, {}, {}, 1)
        return Step(node, tuple(inputs), tuple(outputs), kernel)

    def _join_step(self, output: int, parts: list[int]) -> Step:
        name = self.plan.values[output].name
        names = tuple(self.plan.values[part].name for part in parts)
        node = Node("Concat", "", name, names, (name,), {"axis": 1}, {}, NEWEST_OPSET)
        operator = kernel_operator(node)
        assert operator is not None, "the engine has a Concat"
        kernel = bind(node, operator, [self._spec(part) for part in parts])
        return Step(node, tuple(parts), (output,), kernel, join_axis=1)

    def _spec(self, value: int) -> TensorSpec:
        spec = self.plan.values[value].spec
        assert spec is not None, "only values of known shape are in a region"
        return spec


def _kernel(outputs: tuple[TensorSpec, ...], bound: BoundRegion | BoundStream) -> Kernel:
    def compute(inputs: Sequence[Array | None], results: Sequence[Array], workspace: Workspace) -> None:
        workspace.own_bytes = bound.run([array for array in inputs if array is not None], results, workspace.pool)

    return Kernel(outputs, compute, strided=True)
