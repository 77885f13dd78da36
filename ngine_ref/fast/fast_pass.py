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

from ngine_ref.evaluation import bind, kernel_operator
from ngine_ref.fast.executor import BoundRegion, Region
from ngine_ref.fast.growing import Growth, grow
from ngine_ref.fast.reading import Convolution, Reader
from ngine_ref.fast.stream import BoundStream, Stream, StreamRegion
from ngine_ref.fast.upscaling import find_chains
from ngine_ref.fast.winograd import TILE
from ngine_ref.graph import Node
from ngine_ref.plan import Draft, Step
from ngine_ref.registry import NEWEST_OPSET, Array, Kernel, TensorSpec, Workspace

LEAST_WORK = 32 * 32
"""Input times output channels from which Winograd gains on a direct convolution."""
LEAST_TILES = 32
"""Tiles below which the transformed weights cost more to read than they save."""
_GAP = Step(Node("", "", "", (), (), {}, {}, 0), (), ())
"""Stands where a step is gone: reads and makes nothing."""


def hand_over_regions(plan: Draft, keep_filters: bool | None = None) -> Draft:
    """The same plan with fast regions as single steps.

    Args:
        plan: a draft; it is not changed.
        keep_filters: whether regions keep their transformed filters; None: unless these are large and the picture is.
    """
    rewriting = _Rewriting(plan, keep_filters)
    rewriting.streams()
    rewriting.regions()
    return rewriting.result()


def _pays(growth: Growth) -> bool:
    batch, height, width = growth.size
    tiles = batch * -(-height // TILE) * -(-width // TILE)
    work = max(step.channels * step.weight.shape[1] for step in growth.steps if not step.pointwise)
    return tiles >= LEAST_TILES and work >= LEAST_WORK


class _Rewriting:
    """A plan while regions take the place of its steps.

    The list of steps keeps its length: steps that are gone leave a gap, so that indices stay what they are.
    """

    def __init__(self, plan: Draft, keep_filters: bool | None) -> None:
        self._keep_filters = keep_filters
        self._plan = Draft(list(plan.values), list(plan.steps), plan.inputs, plan.results)
        self._reader = Reader(self._plan)
        self._forms = [self._reader.read(step) for step in plan.steps]
        self._gone: set[int] = set()
        self._readers = Counter(value for step in plan.steps for value in step.read())

    def streams(self) -> None:
        """Put streams in place of enlargements and what follows them."""
        for chain in list(find_chains(self._reader, self._forms, self._readers + Counter(self._plan.results))):
            last = chain.members[-1]
            region = StreamRegion(chain.stream)
            node = self._plan.steps[last].node
            self._put({last: self._step(node, [chain.source], [chain.output], region)}, chain.members)

    def regions(self) -> None:
        """Grow regions and put them in place of their members."""
        for start in range(len(self._forms)):
            # Where a region was put, a step that had to move behind it may stand at the same place: look again.
            while isinstance(self._forms[start], Convolution):
                growth = grow(self._reader, self._forms, start, self._readers)
                if growth is None or not _pays(growth):
                    break
                self._replace(growth)

    def _replace(self, growth: Growth) -> None:
        members = set(growth.members)
        window = range(growth.members[0], growth.members[-1] + 1)
        others = [index for index in window if index not in members and index not in self._gone]
        tainted = [index for index in others if growth.tainted.intersection(self._plan.steps[index].made())]
        new = self._new_steps(growth)
        before = [(self._plan.steps[index], self._forms[index]) for index in others if index not in tainted]
        behind = [(self._plan.steps[index], self._forms[index]) for index in tainted]
        order = [*before, *((step, None) for step in new), *behind]
        # The new steps are at most as many as the members: a join that is still needed was one.
        self._put({window[0] + number: step for number, (step, _) in enumerate(order)}, window)
        for number, (_, form) in enumerate(order):
            self._forms[window[0] + number] = form

    def _put(self, steps: dict[int, Step], window: Sequence[int]) -> None:
        """Replace the steps of a window."""
        for index in window:
            if index not in self._gone:
                self._readers.subtract(self._plan.steps[index].read())
        self._gone.update(window)
        self._gone.difference_update(steps)
        for index in window:
            self._forms[index] = None
        for index, step in steps.items():
            self._plan.steps[index] = step
            self._readers.update(step.read())
        for index in self._gone.intersection(window):
            self._plan.steps[index] = _GAP

    def _new_steps(self, growth: Growth) -> list[Step]:
        """The region, and the Concats of its values that somebody outside reads."""
        inside = Counter(value for index in growth.members for value in self._plan.steps[index].read())
        wanted = [
            value for value in growth.parts if value in self._plan.results or self._readers[value] > inside[value]
        ]
        joins = [value for value in wanted if len(growth.parts[value]) > 1]
        values = {growth.parts[value][0]: value for value in wanted if value not in joins}
        for name in (name for join in joins for name in growth.parts[join]):
            if name not in values and name not in growth.sources.values():
                values[name] = self._value_of(name, growth)
        node = self._plan.steps[growth.members[-1]].node
        steps = [self._step(node, list(growth.sources), list(values.values()), self._region(growth, list(values)))]
        values |= {name: value for value, name in growth.sources.items()}
        return steps + [self._join_step(join, [values[name] for name in growth.parts[join]]) for join in joins]

    def _region(self, growth: Growth, outputs: list[str]) -> Region | StreamRegion:
        """A region; a stream where it is a single convolution, which needs less memory."""
        program = growth.program(outputs)
        step = program.steps[0]
        alone = len(program.steps) == 1 and list(step.read()) == list(program.inputs)
        if alone and outputs == list(step.made())[-1:]:
            return StreamRegion(Stream(middle=step))
        return Region(program, self._keep_filters)

    def _value_of(self, name: str, growth: Growth) -> int:
        """The plan's value for a name of a region; a new one for the tail of a fused join."""
        if name.isdigit():
            return int(name)
        batch, height, width = growth.size
        channels = growth.program(()).channels()[name]
        return self._plan.add(name, TensorSpec((batch, channels, height, width), np.dtype(np.float32)))

    def _step(self, node: Node, inputs: list[int], outputs: list[int], region: Region | StreamRegion) -> Step:
        size = self._reader.picture(inputs[0])
        assert size is not None, "regions and streams read pictures"
        kernel = _kernel(tuple(self._spec(value) for value in outputs), region.bind(*size))
        return Step(node, tuple(inputs), tuple(outputs), kernel)

    def _join_step(self, output: int, parts: list[int]) -> Step:
        name = self._plan.values[output].name
        names = tuple(self._plan.values[part].name for part in parts)
        node = Node("Concat", "", name, names, (name,), {"axis": 1}, {}, NEWEST_OPSET)
        operator = kernel_operator(node)
        assert operator is not None, "the engine has a Concat"
        kernel = bind(node, operator, [self._spec(part) for part in parts])
        return Step(node, tuple(parts), (output,), kernel, join_axis=1)

    def _spec(self, value: int) -> TensorSpec:
        spec = self._plan.values[value].spec
        assert spec is not None, "only values of known shape are in a region"
        return spec

    def result(self) -> Draft:
        """The plan as it is now."""
        plan = self._plan
        steps = [step for index, step in enumerate(plan.steps) if index not in self._gone]
        return Draft(plan.values, steps, plan.inputs, plan.results)


def _kernel(outputs: tuple[TensorSpec, ...], bound: BoundRegion | BoundStream) -> Kernel:
    def compute(inputs: Sequence[Array | None], results: Sequence[Array], workspace: Workspace) -> None:
        bound.run([array for array in inputs if array is not None], results, workspace.pool)

    return Kernel(outputs, compute, strided=True)
