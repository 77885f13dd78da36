"""The plan: which steps compute the requested values, for inputs of given shapes.

A plan is made once for each combination of input shapes and requested values:

1. `draft` walks the sorted nodes that the requested values need. What is known of each value (shape, element type,
   sometimes the content) flows along. A node whose inputs are all known contents is computed now. A node whose input
   shapes are known is bound to its kernel. Any other node becomes a step that is bound while running, as does
   whatever hangs on it.
2. The passes rewrite the draft's steps. **This is the place for faster algorithms**: a pass is a function
   `(Draft) -> Draft`, called before anything is decided about memory. It may replace any steps by others, typically
   a connected run of bound steps by a single `Step` whose kernel reads the run's outer inputs, fills its outer
   outputs, and asks for scratch memory (`Kernel.scratch_bytes`) for all that lies between. It must keep an order in
   which values are made before they are read, and keep making every value that is read outside the run or listed in
   `Draft.results`. Values are indices into `Draft.values`; `Draft.values[i].spec.value` holds the content of weights.
   New values are appended with `Draft.add`.
3. `layout.py` gives every value its place in memory, and `execution.py` runs the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngine_ref.loading.graph import Node
from ngine_ref.loading.ordering import captured_by
from ngine_ref.nodes.evaluation import bind, evaluate, kernel_operator, output_count
from ngine_ref.registry import Array, Kernel, TensorSpec

_RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_FOLDED_BYTES = 1 << 20
"""Constants up to this size are computed once whatever they are made of; larger ones unless they grow fourfold."""


@dataclass(slots=True)
class PlannedValue:
    """A value of a plan."""

    name: str
    spec: TensorSpec | None
    """Shape and element type, with the content of a constant; None: known only while running."""

    @property
    def constant(self) -> Array | None:
        """The content, if it is known before the run."""
        return None if self.spec is None else self.spec.value


@dataclass(slots=True)
class Step:
    """Something to do, in the order of the plan."""

    node: Node
    """The node it computes; of a step made by a pass, one of the nodes it replaces, for messages."""
    inputs: tuple[int | None, ...]
    """Value by input slot; None where an optional input is absent."""
    outputs: tuple[int | None, ...]
    kernel: Kernel | None = None
    """None: bound while running, on the heap."""
    captures: tuple[tuple[str, int], ...] = ()
    """What the bodies of If, Loop or Scan read from outside, by name."""
    join_axis: int | None = None
    """Set on a `Concat`: its output is its inputs side by side along this axis, so they may be made in place."""

    def read(self) -> list[int]:
        """The values this step depends on."""
        return [value for value in self.inputs if value is not None] + [value for _, value in self.captures]

    def made(self) -> list[int]:
        """The values this step makes."""
        return [value for value in self.outputs if value is not None]


@dataclass(slots=True)
class Draft:
    """A plan before its layout in memory."""

    values: list[PlannedValue] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    """The values that are fed, by name."""
    results: list[int] = field(default_factory=list)
    """The values that were asked for, in that order; one may be there twice."""

    def add(self, name: str, spec: TensorSpec | None) -> int:
        """Add a value and return its index."""
        self.values.append(PlannedValue(name, spec))
        return len(self.values) - 1


Pass = Callable[[Draft], Draft]


def draft(
    nodes: Sequence[Node],
    initializers: Mapping[str, Array],
    fed: Mapping[str, TensorSpec | None],
    requested: Sequence[str],
    folded: dict[str, Array],
) -> Draft:
    """The steps that compute the requested values.

    Args:
        nodes: sorted, and only those that are needed.
        initializers: the weights that are not fed.
        fed: what is known of each fed value; None for anything that is no tensor.
        requested: names of values.
        folded: constants that follow from initializers alone, by name; shared between the plans of a graph, added to.

    Raises:
        OperatorError: a node's inputs do not fit.
    """
    return _Drafter(initializers, fed, folded).draft(nodes, requested)


class _Drafter:
    def __init__(
        self, initializers: Mapping[str, Array], fed: Mapping[str, TensorSpec | None], folded: dict[str, Array]
    ) -> None:
        self._initializers = initializers
        self._folded = folded
        self._permanent: set[int] = set()
        """Constants that do not depend on the fed shapes."""
        self._index: dict[str, int] = {}
        self.result = Draft()
        for name, spec in fed.items():
            self._index[name] = self.result.inputs[name] = self.result.add(name, spec)

    def draft(self, nodes: Sequence[Node], requested: Sequence[str]) -> Draft:
        for node in nodes:
            self._plan(node)
        self.result.results = [self._value(name) for name in requested]
        return self.result

    def _value(self, name: str) -> int:
        if name not in self._index:
            self._add_constant(name, self._initializers[name], permanent=True)
        return self._index[name]

    def _add_constant(self, name: str, array: Array, *, permanent: bool) -> None:
        self._index[name] = self.result.add(name, TensorSpec(array.shape, array.dtype, array))
        if permanent:
            self._permanent.add(self._index[name])

    def _plan(self, node: Node) -> None:
        if node.op_type == "Identity" and not node.domain and node.inputs[0]:
            self._index[node.outputs[0]] = self._value(node.inputs[0])
            return
        inputs = tuple(self._value(name) if name else None for name in node.inputs)
        captured = tuple((name, self._value(name)) for name in captured_by(node))
        specs = [None if value is None else self.result.values[value].spec for value in inputs]
        known = all(spec is not None for value, spec in zip(inputs, specs, strict=True) if value is not None)
        if known and not captured and self._fold(node, inputs, specs):
            return
        kernel = self._kernel(node, specs) if known else None
        outputs: list[int | None] = []
        for slot, name in enumerate(node.outputs):
            if name:
                self._index[name] = self.result.add(name, None if kernel is None else kernel.outputs[slot])
            outputs.append(self._index[name] if name else None)
        self.result.steps.append(Step(node, inputs, tuple(outputs), kernel, captured, _join_axis(node, kernel)))

    def _kernel(self, node: Node, specs: Sequence[TensorSpec | None]) -> Kernel | None:
        operator = kernel_operator(node)
        if operator is None:
            return None
        for slot in operator.shape_inputs:
            spec = specs[slot] if slot < len(specs) else None
            if spec is not None and spec.value is None:
                return None
        return bind(node, operator, specs)

    def _fold(self, node: Node, inputs: Sequence[int | None], specs: Sequence[TensorSpec | None]) -> bool:
        """Make the node's outputs constants, if they are known already; says whether they are."""
        present = [value for value in inputs if value is not None]
        permanent = all(value in self._permanent for value in present)
        if permanent and all(name in self._folded for name in node.outputs if name):
            results = [self._folded[name] if name else None for name in node.outputs]
        else:
            known = self._known_outputs(node, specs)
            if known is None:
                return False
            results = known
        for name, array in zip(node.outputs, results, strict=False):
            if name and array is not None:
                array.flags.writeable = False
                self._add_constant(name, array, permanent=permanent)
                if permanent:
                    self._folded[name] = array
        return True

    def _known_outputs(self, node: Node, specs: Sequence[TensorSpec | None]) -> list[Array | None] | None:
        if not node.domain and node.op_type == "Constant":
            return [_constant(node.attributes)]
        if not node.domain and node.op_type in ("Shape", "Size") and specs[0] is not None:
            return [_shape_or_size(node, specs[0])]
        values = [None if spec is None else spec.value for spec in specs]
        if any(value is None and spec is not None for value, spec in zip(values, specs, strict=True)):
            return None
        if node.op_type in _RANDOM or next(node.bodies(), None) is not None:
            return None
        limit = max(_FOLDED_BYTES, 4 * sum(value.nbytes for value in values if value is not None))
        kernel = self._kernel(node, specs)
        if kernel is not None and _bytes(kernel.outputs) > limit:
            return None
        if kernel is not None and kernel.view is not None and values[0] is not None and output_count(node) == 1:
            return [kernel.view(values[0])]  # a weight in another shape is still the same memory
        results = evaluate(node, values)
        arrays = [result for result in results if isinstance(result, np.ndarray)]
        if len(arrays) != sum(map(bool, node.outputs)) or sum(array.nbytes for array in arrays) > limit:
            return None
        return [result if isinstance(result, np.ndarray) else None for result in results]


def _bytes(specs: Sequence[TensorSpec]) -> int:
    return sum(int(np.prod(spec.shape, dtype=np.int64)) * spec.dtype.itemsize for spec in specs)


def _join_axis(node: Node, kernel: Kernel | None) -> int | None:
    if kernel is None or node.op_type != "Concat" or node.domain:
        return None
    axis: int = node.attributes["axis"]
    return axis % len(kernel.outputs[0].shape)


def _shape_or_size(node: Node, spec: TensorSpec) -> Array:
    """Shape (with the slice of opset 15) and Size need no data."""
    if node.op_type == "Size":
        return np.array(np.prod(spec.shape, dtype=np.int64))
    return np.array(spec.shape[node.attributes.get("start", 0) : node.attributes.get("end")], np.int64)


def _constant(attributes: Mapping[str, Any]) -> Array:
    """The content of a `Constant` node in any of its forms."""
    ((form, value),) = attributes.items()
    if isinstance(value, np.ndarray):
        return value  # as it stands: it may be a weight, and weights exist once
    dtypes: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32}
    dtypes |= {"value_int": np.int64, "value_ints": np.int64, "value_string": object, "value_strings": object}
    return np.array(value, dtypes.get(form))
