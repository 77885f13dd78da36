"""Running a graph: plans by input shapes, and the loop over a plan's steps."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ngine_ref.errors import ModelError, OperatorError
from ngine_ref.loading.graph import Graph, Value
from ngine_ref.loading.ordering import captures, needed, topological_order
from ngine_ref.nodes.control_flow import CONTROL_FLOW
from ngine_ref.nodes.evaluation import compute, evaluate
from ngine_ref.nodes.functions import Functions, expand
from ngine_ref.nodes.values import copied, detached, size_of, spec_of
from ngine_ref.options import SessionOptions
from ngine_ref.passes import passes
from ngine_ref.planning.arena import Block, BlockPool
from ngine_ref.planning.layout import Action, Layout, array_in, lay_out
from ngine_ref.planning.plan import draft
from ngine_ref.registry import Array, TensorSpec, Workspace
from ngine_ref.worker_pool import WorkerPool

_PlanKey = tuple[tuple[str, ...], tuple[tuple[str, tuple[int, ...] | None, str], ...]]


@dataclass(slots=True)
class Meter:
    """Counts what a run needs."""

    live: int = 0
    peak: int = 0
    moved: int = 0
    copied: int = 0
    steps: int = 0

    def hold(self, count: int) -> None:
        """Count bytes that are taken now."""
        self.live += count
        self.peak = max(self.peak, self.live)

    def drop(self, count: int) -> None:
        """Count bytes that are free again."""
        self.live -= count


@dataclass(frozen=True, slots=True)
class Environment:
    """What the graphs of a session share."""

    functions: Functions
    options: SessionOptions
    blocks: BlockPool = field(default_factory=BlockPool)


@dataclass(slots=True)
class _Frame:
    """A layout's arrays in one block."""

    arrays: list[Value]
    temporary: list[list[Array]]
    """By step: scratch memory, then outputs that nobody wants."""


class Executable:
    """A graph, ready to run: the model's own, or the body of a control-flow node.

    Safe to run from several threads at once.

    Raises:
        ModelError: its nodes form a cycle, read what nothing makes, or make a value twice; an output is never made.
    """

    def __init__(self, graph: Graph, environment: Environment, *, captured: Sequence[str] = ()) -> None:
        self.graph = graph
        self.captured = tuple(captured)
        self._environment = environment
        given = {value.name for value in graph.inputs} | set(graph.initializers) | set(captured)
        self._nodes = topological_order(expand(graph.nodes, environment.functions), given)
        self.values = given | {name for node in self._nodes for name in node.outputs if name}
        for value in graph.outputs:
            if value.name not in self.values:
                raise ModelError(f"The output {value.name!r} of the graph is made by no node.")
        self._lock = threading.Lock()
        self._folded: dict[str, Array] = {}
        self._plans: OrderedDict[_PlanKey, Layout] = OrderedDict()
        self._bodies: dict[int, Executable] = {}

    def run(
        self, feeds: Mapping[str, Value], requested: Sequence[str], meter: Meter, pool: WorkerPool | None
    ) -> list[Value]:
        """The requested values, which share memory with nothing else.

        Args:
            feeds: values of inputs, captured values, and initializers to override.
            requested: names out of `values`.
            meter: where to count.
            pool: helper threads.
        """
        feeds = {name: _prepared(value, meter) for name, value in feeds.items()}
        layout = self.layout(feeds, tuple(requested))
        block = self._block(layout.arena_bytes)
        meter.hold(layout.arena_bytes)
        try:
            return self._run(layout, block, feeds, meter, pool)
        finally:
            meter.drop(layout.arena_bytes)
            self._environment.blocks.give_back(block)

    def _block(self, size: int) -> Block:
        try:
            return self._environment.blocks.take(size)
        except MemoryError as error:
            raise OperatorError(f"The graph {self.graph.name!r} needs {size} bytes at once: {error}") from error

    def layout(self, feeds: Mapping[str, Value], requested: tuple[str, ...]) -> Layout:
        """The plan for feeds of these shapes, with its memory; made if it is not among those kept."""
        specs = {name: spec_of(value) for name, value in feeds.items()}
        key = _plan_key(requested, specs)
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
            weights = {name: array for name, array in self.graph.initializers.items() if name not in feeds}
            plan = draft(needed(self._nodes, requested), weights, specs, requested, self._folded)
            for rewrite in passes(self._environment.options):
                plan = rewrite(plan)
            layout = lay_out(plan)
            self._plans[key] = layout
            while len(self._plans) > self._environment.options.cached_plans:
                self._plans.popitem(last=False)
            return layout

    def _run(
        self, layout: Layout, block: Block, feeds: Mapping[str, Value], meter: Meter, pool: WorkerPool | None
    ) -> list[Value]:
        frame = block.views.get(layout)
        if frame is None:
            frame = block.views[layout] = _frame(layout, block.memory)
        arrays = list(frame.arrays)
        for name, value in layout.inputs.items():
            arrays[value] = feeds[name]
            _derive(layout, value, arrays)
        meter.moved += layout.moved_bytes
        meter.copied += layout.copied_bytes
        meter.steps += len(layout.actions)
        held = 0
        for index, action in enumerate(layout.actions):
            for root in action.allocate:
                arrays[root] = _allocate(layout, root)
                _derive(layout, root, arrays)
                meter.hold(size_of(arrays[root]))
                held += size_of(arrays[root])
            if action.copies is not None:
                _join(action, arrays)
            elif action.step.kernel is None:
                held += self._run_unbound(layout, action, arrays, block, meter, pool)
            elif not action.is_view:
                own_bytes = _compute(action, arrays, frame, index, pool)
                meter.hold(own_bytes)  # to the end of the run: they stay
                held += own_bytes
            for value in action.release:
                if layout.values[value].spec is None or value in layout.derived:
                    held -= size_of(arrays[value])
                    meter.drop(size_of(arrays[value]))
                arrays[value] = None
        results = _results(layout, arrays, meter)
        meter.drop(held)
        return results

    def _run_unbound(
        self,
        layout: Layout,
        action: Action,
        arrays: list[Value],
        block: Block,
        meter: Meter,
        pool: WorkerPool | None,
    ) -> int:
        """Run a step that could not be bound before; returns the bytes its outputs take."""
        step = action.step
        inputs = [None if value is None else arrays[value] for value in step.inputs]
        if step.node.op_type in CONTROL_FLOW and not step.node.domain:
            scope = {name: arrays[value] for name, value in step.captures}

            def run_body(body: Graph, values: Sequence[Value]) -> list[Value]:
                executable = self._body(body)
                feeds = {info.name: value for info, value in zip(body.inputs, values, strict=True)}
                feeds |= {name: scope[name] for name in executable.captured}
                return executable.run(feeds, [info.name for info in body.outputs], meter, pool)

            outputs = CONTROL_FLOW[step.node.op_type](step.node, inputs, run_body)
        else:
            outputs = evaluate(step.node, inputs, pool)
        sources = [arrays[value] for value in step.read() if layout.values[value].spec is not None]
        total = 0
        for value, output in zip(step.outputs, outputs, strict=False):
            if value is not None:
                # What lies in the arena is overwritten by later steps, but this output may live longer.
                arrays[value] = detached(output, [*sources, block.memory])
                total += size_of(arrays[value])
        meter.hold(total)
        meter.moved += total + sum(map(size_of, inputs))
        return total

    def _body(self, body: Graph) -> Executable:
        with self._lock:
            if id(body) not in self._bodies:
                self._bodies[id(body)] = Executable(body, self._environment, captured=captures(body))
            return self._bodies[id(body)]


def _plan_key(requested: tuple[str, ...], specs: Mapping[str, TensorSpec | None]) -> _PlanKey:
    described = (
        (name, None, "") if spec is None else (name, spec.shape, str(spec.dtype)) for name, spec in specs.items()
    )
    return requested, tuple(described)


def _frame(layout: Layout, memory: Array) -> _Frame:
    arrays: list[Value] = [value.constant for value in layout.values]
    for root, offset in layout.roots:
        spec = layout.values[root].spec
        assert spec is not None
        arrays[root] = array_in(memory, offset, spec)
    for root in layout.derived:
        if arrays[root] is not None:
            _derive(layout, root, arrays)
    temporary = [[array_in(memory, offset, spec) for offset, spec in action.temporary] for action in layout.actions]
    return _Frame(arrays, temporary)


def _derive(layout: Layout, root: int, arrays: list[Value]) -> None:
    for value, source, derive in layout.derived.get(root, ()):
        array = arrays[source]
        assert isinstance(array, np.ndarray)
        arrays[value] = derive(array)


def _allocate(layout: Layout, root: int) -> Array:
    spec = layout.values[root].spec
    assert spec is not None
    try:
        return np.empty(spec.shape, spec.dtype)
    except MemoryError as error:
        raise OperatorError(f"There is no memory for the value {layout.values[root].name!r}: {error}") from error


def _compute(action: Action, arrays: list[Value], frame: _Frame, index: int, pool: WorkerPool | None) -> int:
    """Run a bound step; returns the bytes of buffers that its kernel has for itself."""
    step, kernel = action.step, action.step.kernel
    assert kernel is not None
    inputs = [None if value is None else arrays[value] for value in step.inputs]
    scratch, *unnamed = frame.temporary[index]
    spares = iter(unnamed)
    slots = [*step.outputs, *(None,) * (len(kernel.outputs) - len(step.outputs))]
    outputs = [next(spares) if value is None else arrays[value] for value in slots]
    workspace = Workspace(scratch, pool)
    # A kernel has arrays alone; sequences and optionals belong to nodes that run without one.
    compute(step.node, kernel, inputs, outputs, workspace)  # type: ignore[arg-type]
    return workspace.own_bytes


def _join(action: Action, arrays: list[Value]) -> None:
    output = arrays[action.step.made()[0]]
    assert isinstance(output, np.ndarray)
    for value, where in action.copies or ():
        np.copyto(output[where], arrays[value])  # type: ignore[arg-type]  # the parts of a Concat are arrays


def _results(layout: Layout, arrays: list[Value], meter: Meter) -> list[Value]:
    """The requested values; copies, save for buffers that nobody else has."""
    results: list[Value] = []
    handed_out: set[int] = set()
    for value in layout.results:
        result = arrays[value]
        if layout.values[value].spec is None and isinstance(result, np.ndarray):
            # Feeds and constants are read-only; an array of that kind was not made in this run.
            sole = sum(array is result for array in arrays) == 1 and id(result) not in handed_out
            owned = sole and result.flags.owndata and result.flags.writeable
        else:
            owned = value in layout.owned_results
        if not owned:
            meter.copied += size_of(result)
            result = copied(result)
        handed_out.add(id(result))
        results.append(result)
    return results


def _prepared(value: Value, meter: Meter) -> Value:
    """A fed value as kernels want it: contiguous, and read-only, so that no mistake can change the caller's array."""
    if isinstance(value, list):
        return [_prepared(item, meter) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    if not value.flags.c_contiguous:
        meter.copied += value.nbytes
        return value.copy(order="C")
    if value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value
