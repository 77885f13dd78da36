"""`InferenceSession`: a model, loaded and ready to run, with the face of onnxruntime's."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import ModelProto

from ngine_ref.blas import one_thread_each
from ngine_ref.errors import FeedError
from ngine_ref.execution import Environment, Executable, Meter
from ngine_ref.loading.graph import Value, ValueType
from ngine_ref.loading.model import load
from ngine_ref.loading.tensors import element_dtype
from ngine_ref.options import SessionOptions
from ngine_ref.worker_pool import WorkerPool, core_count


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output of a model."""

    name: str
    type: str
    """As onnxruntime writes it, for example `tensor(float)`."""
    shape: list[int | str | None]
    """Fixed sizes as int, named ones as str, unknown ones as None; empty also if not even the rank is known."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run needed."""

    peak_bytes: int
    """The most memory that values, scratch, and the buffers and filters of fast regions took at one time. Feeds and
    weights are not counted, nor is the packed form in which a kernel has them."""
    bytes_moved: int
    """Bytes that the steps read and wrote."""
    bytes_copied: int
    """Bytes that were only copied: parts of Concats that could not be made in place, results, feeds in pieces."""
    steps: int
    """How many steps were run, those in bodies counted each time."""


class InferenceSession:
    """Runs a model.

    May be used from several threads at once; each run has memory of its own.

    Args:
        model: the path of an ONNX file, its content, or a `ModelProto` (which is not changed).
        options: how to run.
        folder: where external data are looked for; by default beside the file.

    Raises:
        ModelError: the model cannot be loaded, or is not a valid model.

    Example:
        >>> session = InferenceSession("model.onnx")                            # doctest: +SKIP
        >>> [y] = session.run(None, {"x": np.zeros((1, 3, 64, 64), np.float32)})  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | ModelProto,
        options: SessionOptions | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        loaded = load(model, folder)
        self._options = options or SessionOptions()
        graph = self._graph = loaded.graph
        self._executable = Executable(graph, Environment(loaded.functions, self._options))
        self._helpers = (core_count() if self._options.threads is None else self._options.threads) - 1
        self._required = [value for value in graph.inputs if value.name not in graph.initializers]
        self._declared = {value.name: value.type for value in graph.inputs}
        self._local = threading.local()

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed."""
        return [_node_arg(value.name, value.type) for value in self._required]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that are inputs too, so that a run may feed other values for them."""
        values = [value for value in self._graph.inputs if value.name in self._graph.initializers]
        return [_node_arg(value.name, value.type) for value in values]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return [_node_arg(value.name, value.type) for value in self._graph.outputs]

    @property
    def last_run(self) -> RunReport | None:
        """What the last run of the calling thread needed; None before its first."""
        report: RunReport | None = getattr(self._local, "report", None)
        return report

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Compute values for the given inputs.

        Args:
            output_names: which values; any of the main graph may be named, not only outputs. None: all outputs.
            feeds: the inputs by name: arrays; lists for sequences, dicts for maps, None for an empty optional.

        Returns:
            one value a name; arrays that share no memory with anything else.

        Raises:
            FeedError: an input is missing, unknown, or of the wrong element type or shape; a name is not a value.
            OperatorError: an operator refuses its inputs; the sentence names the node.
            UnknownOperatorError: nothing computes an operator.
        """
        if isinstance(output_names, str):
            raise FeedError(f"The values to return are a list of names; write [{output_names!r}].")
        names = [value.name for value in self._graph.outputs] if output_names is None else list(output_names)
        for name in names:
            if not isinstance(name, str) or name not in self._executable.values:
                raise FeedError(f"The model has no value {name!r} to return.")
        checked = self._checked(feeds)
        meter = Meter()
        # BLAS with threads of its own rounds differently with every number of them, and takes cores that are not in
        # the budget. So it stays on the threads that call it: this one, and the helpers that kernels share work with.
        with WorkerPool(self._helpers) as pool, one_thread_each():
            results = self._executable.run(checked, names, meter, pool)
        self._local.report = RunReport(meter.peak, meter.moved, meter.copied, meter.steps)
        return results

    def _checked(self, feeds: Mapping[str, Any]) -> dict[str, Value]:
        if not isinstance(feeds, Mapping):
            raise FeedError(f"The feeds are inputs by name, a dict, but got a {type(feeds).__name__}.")
        for name in feeds:
            if name not in self._declared:
                known = ", ".join(value.name for value in self._required)
                raise FeedError(f"The model has no input {name!r}; its inputs are: {known}.")
        missing = [value.name for value in self._required if value.name not in feeds]
        if missing:
            raise FeedError(f"The input {missing[0]!r} is missing from the feeds.")
        return {name: _checked(name, feeds[name], kind) for name, kind in self._declared.items() if name in feeds}


def _node_arg(name: str, kind: ValueType) -> NodeArg:
    return NodeArg(name, kind.text, list(kind.shape or ()))


def _checked(name: str, value: Any, kind: ValueType) -> Value:
    """The value as the executor takes it, if it is of the declared type."""
    if not kind.is_tensor:
        return _no_tensor(name, value, kind)
    if not isinstance(value, np.ndarray | np.generic):
        raise FeedError(f"The input {name!r} is a {kind.text}, but was fed a {type(value).__name__} and no array.")
    array = np.asarray(value)
    if kind.element_type:
        array = _of_type(name, array, kind)
    if kind.shape is not None:
        if array.ndim != len(kind.shape):
            raise FeedError(
                f"The input {name!r} has rank {len(kind.shape)}, but was fed an array of rank {array.ndim} "
                f"with shape {list(array.shape)}."
            )
        for axis, (size, declared) in enumerate(zip(array.shape, kind.shape, strict=True)):
            if isinstance(declared, int) and declared != size:
                raise FeedError(
                    f"The input {name!r} has size {declared} along axis {axis}, but was fed shape {list(array.shape)}."
                )
    return array


def _no_tensor(name: str, value: Any, kind: ValueType) -> Value:
    """A sequence with items of its element type, in any shape; an optional with one or None; anything else as it is."""
    if kind.item is not None and kind.text.startswith("optional"):
        return None if value is None else _checked(name, value, kind.item)
    if kind.item is not None and isinstance(value, list):
        return [_checked(name, item, replace(kind.item, shape=None)) for item in value]
    if kind.item is None and (isinstance(value, np.ndarray | list | dict) or value is None):
        return value
    raise FeedError(f"The input {name!r} is a {kind.text}, but was fed a {type(value).__name__}.")


def _of_type(name: str, array: np.ndarray[Any, Any], kind: ValueType) -> np.ndarray[Any, Any]:
    expected = element_dtype(kind.element_type)
    if expected.hasobject and array.dtype.kind in "OUS":
        return array.astype(object)
    if array.dtype != expected:
        raise FeedError(f"The input {name!r} is a {kind.text}, but was fed an array of {array.dtype}.")
    return array
