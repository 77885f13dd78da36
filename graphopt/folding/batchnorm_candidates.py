"""Whether a BatchNormalization can be folded into the node before it: the conditions, in the order they are asked.

As of the rules' conditions, each is one function that returns None where it holds, else a sentence and the place at
fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnx import GraphProto, TensorProto

from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.declared_shapes import Dims
from graphopt.graph.scope import Node, Scope
from graphopt.matching.eligibility import Fault, describe_readers
from graphopt.model_files.tensor_reading import TensorReader
from graphopt.wording import listed

PRODUCERS = ("Conv", "ConvTranspose", "Gemm")
"""The operators whose weights can take a factor and a shift for each channel."""
OLDEST_OPSET = 7
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A BatchNormalization, and the node before it."""

    view: DataflowGraph
    anchor: int
    reader: TensorReader

    @property
    def norm(self) -> Node:
        """The BatchNormalization."""
        return self.view.nodes[self.anchor]

    @property
    def place(self) -> int | None:
        """Where the node before it stands; None where the scope makes no such value."""
        return self.view.producer(self.norm.inputs[0])

    @property
    def linear(self) -> Node:
        """The node before it; only where `place` is known."""
        return self.view.nodes[self.anchor if self.place is None else self.place]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of six values: weight, bias ('' where absent), scale, bias, mean and variance."""
        return (*(*self.linear.inputs[1:], "")[:2], *self.norm.inputs[1:5])

    @property
    def group(self) -> int:
        """How many groups the convolution has."""
        return _integer(self.linear, "group", 1)

    @property
    def is_transposed(self) -> bool:
        """Whether the weight of the Gemm is [N, K]."""
        return bool(_integer(self.linear, "transB", 0))

    @property
    def beta(self) -> float:
        """What the Gemm multiplies its addend by."""
        return _number(self.linear, "beta", 1.0)

    @property
    def epsilon(self) -> float:
        """What is added to the variance."""
        return _number(self.norm, "epsilon", 1e-5)

    @property
    def channels(self) -> int | None:
        """How many channels the weight says there are; None where it has no shape that the operator could have."""
        weight = self.dims(self.linear.inputs[1])
        if self.linear.op_type == "Gemm":
            return weight[0 if self.is_transposed else 1] if len(weight) == 2 else None
        if len(weight) < 3 or weight[0] is None or weight[1] is None:
            return None
        if self.linear.op_type == "Conv":
            return weight[0]
        return weight[1] * self.group if self.group > 0 and weight[0] % self.group == 0 else None

    def dims(self, value: str) -> Dims:
        """The shape of a constant."""
        return self.view.dims(value) or ()


def _integer(node: Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.i)


def _number(node: Node, name: str, default: float) -> float:
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.f)


def _weighted_producer(candidate: Candidate) -> Fault | None:
    value = candidate.norm.inputs[0]
    if candidate.place is None:
        return f"{value!r} is made by no node here", value
    node = candidate.linear
    if node.domain == "" and node.op_type in PRODUCERS:
        return None
    return f"{value!r} is made by {node.title}, not by a {listed(PRODUCERS, 'or')}", node.label


def _sole_reader(candidate: Candidate) -> Fault | None:
    value = candidate.norm.inputs[0]
    if candidate.view.read_count(value) == 1:
        return None
    return f"{value!r} is read {describe_readers(candidate.view, value)}", value


def _inference(candidate: Candidate) -> Fault | None:
    norm, opset = candidate.norm, candidate.view.scope.opset
    if opset < OLDEST_OPSET:
        return f"{norm.title} is of opset {opset}; before {OLDEST_OPSET} it was another operator", norm.label
    training = norm.attributes.get("training_mode")
    if training is not None and (training.i or training.ref_attr_name):
        return f"{norm.title} computes its statistics when it runs (training_mode)", norm.label
    further = next(filter(None, norm.outputs[1:]), "")
    if further:
        return f"{norm.title} makes its statistics too, as {further!r}", further
    spatial = norm.attributes.get("spatial")
    if spatial is not None and not spatial.i:
        return f"{norm.title} has parameters for each position (spatial=0), not for each channel", norm.label
    return None


def _constants(candidate: Candidate) -> Fault | None:
    root = _root(candidate.view.scope)
    if not isinstance(root.proto, GraphProto):
        return f"{candidate.norm.title} stands in a function, which holds no weights", candidate.norm.label
    for value in filter(None, candidate.parameters):
        tensor = candidate.view.constant(value)
        if tensor is None:
            overridable = candidate.view.producer(value) is None and value in root.inputs
            why = "is an input of the graph, so a caller may set it" if overridable else "is computed at run time"
            return f"{value!r} {why}", value
        if not candidate.reader.can_read(tensor):
            return f"{value!r} lies in another file, and the model came from memory, not from a folder", value
    return None


def _root(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope


def _shapes(candidate: Candidate) -> Fault | None:
    node, channels = candidate.linear, candidate.channels
    weight, bias, *statistics = candidate.parameters
    if channels is None:
        return f"the weight {weight!r} has shape {list(candidate.dims(weight))}, which {node.title} cannot have", weight
    types = {value: _element_type(candidate, value) for value in filter(None, candidate.parameters)}
    odd = next((value for value, kind in types.items() if kind not in _FLOATS), "")
    if odd:
        return f"{odd!r} is not of a floating-point type that can be folded", odd
    if bias and types[bias] != types[weight]:
        return f"{bias!r} has another element type than the weight {weight!r}", bias
    for value in statistics:
        if candidate.dims(value) != (channels,):
            return (
                f"{value!r} has shape {list(candidate.dims(value))}, not one number for each of {channels} channels",
                value,
            )
    if node.op_type != "Gemm":
        fits = not bias or candidate.dims(bias) == (channels,)
    else:
        dims = candidate.dims(bias) if bias else ()
        fits = len(dims) <= 2 and (not dims or dims[-1] in (1, channels))
        if candidate.beta == 0.0:
            return f"{node.title} multiplies its addend by beta 0, so it can take no shift", node.label
    return (
        None if fits else (f"{bias!r} has shape {list(candidate.dims(bias))}, which fits no {channels} channels", bias)
    )


def _element_type(candidate: Candidate, value: str) -> int:
    tensor = candidate.view.constant(value)
    return TensorProto.UNDEFINED if tensor is None else tensor.data_type


Check = Callable[[Candidate], Fault | None]
CONDITIONS: Sequence[tuple[str, Check]] = (
    ("weighted producer", _weighted_producer),
    ("sole reader", _sole_reader),
    ("inference", _inference),
    ("constants", _constants),
    ("shapes", _shapes),
)
"""Name and function of each; its number is its place, from 1 on."""
FINITE = (len(CONDITIONS) + 1, "finite")
"""Number and name of the last condition, which is about the result."""
