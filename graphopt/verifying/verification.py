"""Numbers: onnxruntime on the original against ngine_ref on the fused model, value by value.

onnxruntime runs with its optimisations off, so that it is an oracle. Not only outputs are compared but every value
that both models have, in batches that fit a memory budget, so that the first fused node that diverges has a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import onnxruntime
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, numpy_helper

import ngine_ref
from graphopt.errors import ModelError, VerificationError
from graphopt.graph.conventions import is_fused_domain
from graphopt.graph.model_walk import node_title
from graphopt.graph.value_sizes import SMALL, value_sizes
from graphopt.model_files import model_io
from graphopt.model_files.model_io import LoadedModel, Model
from graphopt.verifying.comparison import compare_values
from graphopt.verifying.feeds import Array, Feeds, make_feeds
from graphopt.verifying.node_check import run_alone, variable_inputs
from graphopt.verifying.verification_report import ValueComparison, VerificationReport
from ngine_ref.loading.tensors import to_array

DEFAULT_BUDGET = 512 * 2**20
"""Bytes of values that are held at a time, of each of the two models."""

Progress = Callable[[int, int], None]
"""Is told how many values were compared, and how many there are."""


def verify(
    original: Model,
    fused: Model,
    *,
    inputs: Mapping[str, Array] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    memory_budget: int = DEFAULT_BUDGET,
    fast: bool = False,
    on_progress: Progress | None = None,
) -> VerificationReport:
    """Run both models on the same inputs and compare every value that both have.

    Args:
        original: run by onnxruntime, optimisations off.
        fused: run by ngine_ref, and by onnxruntime as well where it carries its functions.
        inputs, shapes, seed: what is fed, see `make_feeds`.
        rtol, atol: in place of the element type's own tolerance, see `comparison.TOLERANCES`.
        memory_budget: bytes of values that are held at a time, of each model.
        fast: let ngine_ref use its fast paths; by default the readable kernels judge.
        on_progress: told as values are compared.

    Raises:
        ModelError: a file is no valid model, or onnxruntime cannot run the original.
        UsageError: an input or a shape does not fit the original.
        VerificationError: the fused model cannot be run on what the original accepts.
    """
    before, after = (m if isinstance(m, LoadedModel) else model_io.load(m) for m in (original, fused))
    feeds = make_feeds(before.model, shapes=shapes, arrays=inputs, seed=seed)
    common = _common_values(before.model, after.model)
    makers = _makers(after.model)
    session = _reference_session(after, fast)
    sizes = value_sizes(before.model, {name: array.shape for name, array in feeds.arrays.items()})
    compared: dict[str, ValueComparison] = {}
    for names in _batches(common, sizes, memory_budget):
        expected = _run_onnxruntime(before, names, feeds)
        actual = _run_reference(session, after, names, feeds)
        for name, one, other in zip(names, actual, expected, strict=True):
            difference = compare_values(one, other, relative=rtol, absolute=atol)
            compared[name] = ValueComparison(name, makers.get(name, ""), difference)
        if on_progress is not None:
            on_progress(len(compared), len(common))
    outputs = {value.name for value in before.model.graph.output}
    for name, value in compared.items():
        if not value.difference.ok and name not in outputs:
            inherited = _is_inherited(name, before, after, feeds, rtol, atol)
            compared[name] = replace(value, inherited=inherited)
    values = tuple(compared[name] for name in common)
    runs_fused = _onnxruntime_agrees(before, after, feeds, rtol, atol)
    return VerificationReport(
        ok=all(value.ok for value in values) and runs_fused is not False,
        values=values,
        feeds={name: array.shape for name, array in feeds.arrays.items()},
        assumed=feeds.assumed,
        seed=seed,
        onnxruntime_runs_fused=runs_fused,
    )


def _is_inherited(
    name: str, original: LoadedModel, fused: LoadedModel, feeds: Feeds, rtol: float | None, atol: float | None
) -> bool:
    """Whether the node that makes a value is right when it is given the oracle's inputs."""
    node = next((node for node in fused.model.graph.node if name in node.output), None)
    reads = None if node is None else variable_inputs(node, fused.model)
    known = {output for node in original.model.graph.node for output in node.output}
    if node is None or reads is None or not known.union(feeds.arrays).issuperset(reads):
        return False
    wanted = [name, *(read for read in reads if read not in feeds.arrays)]
    oracle = {**feeds.arrays, **dict(zip(wanted, _run_onnxruntime(original, wanted, feeds), strict=True))}
    expected = oracle[name]
    try:
        actual = run_alone(node, fused, {read: oracle[read] for read in reads})[name]
    except ngine_ref.NgineError:
        return False
    return compare_values(actual, expected, relative=rtol, absolute=atol).ok


def _common_values(original: ModelProto, fused: ModelProto) -> list[str]:
    """The values that nodes of both main graphs make, in the order of the fused model, then what is left of outputs.

    What nobody reads is left out: it may be anything, as the mask of a Dropout at inference is.
    """
    made = {name for node in original.graph.node for name in node.output}
    read = _read_values(original.graph)
    common = [name for node in fused.graph.node for name in node.output if name in made and name in read]
    outputs = [value.name for value in original.graph.output]
    missing = [name for name in outputs if name not in {value.name for value in fused.graph.output}]
    if missing:
        raise VerificationError(f"The fused model lacks the output {missing[0]!r} of the original.")
    return list(dict.fromkeys([*common, *outputs]))


def _read_values(graph: GraphProto) -> set[str]:
    """The names that the nodes of a graph and of the bodies inside it read."""
    read: set[str] = set()
    pending = [graph]
    while pending:
        current = pending.pop()
        read.update(value.name for value in current.output)
        for node in current.node:
            read.update(node.input)
            for attribute in node.attribute:
                pending += [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
    read.discard("")
    return read


def _makers(model: ModelProto) -> dict[str, str]:
    return {name: node_title(node) for node in model.graph.node for name in node.output}


def _batches(names: Sequence[str], sizes: Mapping[str, int], budget: int) -> Iterator[list[str]]:
    """The values in batches that stay within the budget; one of unknown size counts as an eighth of it."""
    batch: list[str] = []
    total = 0
    for name in names:
        size = sizes.get(name, budget // 8)
        if batch and total + size > budget:
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += size
    if batch:
        yield batch


def _run_onnxruntime(loaded: LoadedModel, names: Sequence[str], feeds: Feeds) -> list[Any]:
    """Values of a model by onnxruntime, optimisations off, whether or not they are outputs."""
    model = _with_outputs(loaded, names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    if loaded.path is not None:
        folder = str(loaded.path.resolve().parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results: list[Any] = session.run(list(names), dict(feeds.arrays))
    except _RUNTIME_ERRORS as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ModelError(f"{loaded.name}: onnxruntime cannot run it: {reason}.") from None
    return results


_STATE = onnxruntime.capi.onnxruntime_pybind11_state
_RUNTIME_ERRORS = (
    _STATE.Fail,
    _STATE.InvalidArgument,
    _STATE.InvalidGraph,
    _STATE.InvalidProtobuf,
    _STATE.NotImplemented,
    _STATE.RuntimeException,
    RuntimeError,
    ValueError,
)


def _with_outputs(loaded: LoadedModel, names: Sequence[str]) -> ModelProto:
    """A copy of a model with these values as its outputs.

    Small external weights are taken in: onnxruntime reads no external data where it infers shapes.
    """
    model = loaded.model
    copy = deepcopy(model)
    for tensor in copy.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and math.prod(tensor.dims) <= SMALL:
            array = to_array(tensor, loaded.path.resolve().parent if loaded.path is not None else None)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    known = {value.name: value for value in (*model.graph.output, *model.graph.value_info)}
    del copy.graph.output[:]
    for name in names:
        if name in known and name in {value.name for value in model.graph.output}:
            copy.graph.output.append(known[name])
        else:
            copy.graph.output.add(name=name)
    return copy


def _reference_session(loaded: LoadedModel, fast: bool) -> ngine_ref.InferenceSession:
    folder = loaded.path.resolve().parent if loaded.path is not None else None
    try:
        return ngine_ref.InferenceSession(loaded.model, ngine_ref.SessionOptions(fast_paths=fast), folder=folder)
    except ngine_ref.NgineError as error:
        raise VerificationError(f"{loaded.name}: ngine_ref cannot load it: {error}") from None


def _run_reference(
    session: ngine_ref.InferenceSession, loaded: LoadedModel, names: Sequence[str], feeds: Feeds
) -> list[Any]:
    try:
        return session.run(names, dict(feeds.arrays))
    except ngine_ref.NgineError as error:
        raise VerificationError(f"{loaded.name}: ngine_ref cannot run it: {error}") from None


def _onnxruntime_agrees(
    original: LoadedModel, fused: LoadedModel, feeds: Feeds, rtol: float | None, atol: float | None
) -> bool | None:
    bodies = {(function.domain, function.name) for function in fused.model.functions}
    calls = {(node.domain, node.op_type) for node in fused.model.graph.node if is_fused_domain(node.domain)}
    if not calls <= bodies:
        return None
    names = [value.name for value in original.model.graph.output]
    expected = _run_onnxruntime(original, names, feeds)
    actual = _run_onnxruntime(fused, names, feeds)
    return all(
        compare_values(one, other, relative=rtol, absolute=atol).ok for one, other in zip(actual, expected, strict=True)
    )
