"""When do two nodes name the same operation? By domain, operator, version and attributes, with defaults taken away.

The version is the opset in which the operator last changed (`since_version` of its schema), so one operator under two
imports that mean the same is the same operation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import onnx
from onnx import AttributeProto, TensorProto

from graphopt.graph.conventions import is_fused_domain
from graphopt.proof.attribute_identity import attribute_identity
from graphopt.proof.tensor_identity import Identity, TensorTable

GRAPH_TYPES = frozenset({AttributeProto.GRAPH, AttributeProto.GRAPHS})
Attributes = Mapping[str, Identity]
_AttributeType = onnx.defs.OpSchema.AttrType

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
# Operators of one data input whose output has that input's rank: through them a rank is known at no cost.
# fmt: off
_RANK_KEEPING = frozenset({
    "AveragePool", "BatchNormalization", "Cast", "Clip", "DepthToSpace", "Dropout", "Elu", "Erf", "Gelu", "HardSigmoid",
    "HardSwish", "InstanceNormalization", "LRN", "LeakyRelu", "MaxPool", "Mish", "PRelu", "Relu", "Resize", "Selu",
    "Sigmoid", "Softplus", "Softsign", "Tanh",
})
# fmt: on


class Kind(IntEnum):
    """How the value number of an operation's output is made."""

    PLAIN = 0
    """From the operation and its inputs in order."""
    UNORDERED = 1
    """From the operation and its inputs in any order: Add, Mul."""
    CONV = 2
    """Like PLAIN, but a `kernel_shape` that repeats the weight's dims is no attribute."""
    CONCAT = 3
    """As a left fold of pairs."""
    IDENTITY = 4
    """It is its input's."""
    CONSTANT = 5
    """From the content."""
    OPAQUE = 6
    """From the operation, its inputs and its outputs' names: random, or of unknown meaning, so equal to no other."""
    DROPOUT = 7
    """Like OPAQUE while it trains, else its first output is its input."""
    TRANSPOSE = 8
    """Like PLAIN, but several in a row are one, and one that moves nothing is its input."""
    NO_OPERATION = 9
    """Like PLAIN, but where nothing can change it is its input: Cast, Reshape, Pad."""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operator with one set of attributes; equal operations are one object of an `OperationTable`."""

    number: int
    domain: str
    op_type: str
    version: int | None
    kind: Kind
    outputs: int
    attributes: Attributes
    """Without those that equal their default."""
    rank_input: int
    """The input whose rank the output has, or -1."""


class OperationTable:
    """All operations of the models that are compared."""

    def __init__(self, tensors: TensorTable) -> None:
        self.operations: list[Operation] = []
        self._numbers: dict[Identity, Operation] = {}
        self._tensors = tensors

    def operation(
        self, domain: str, op_type: str, opset: int | None, attributes: Attributes, outputs: int
    ) -> Operation:
        """The operation of that name under that opset import (None: not imported), making `outputs` outputs."""
        schema = _schema(domain, op_type, opset)
        if schema is None:
            version = None if is_fused_domain(domain) else opset
            return self._intern(domain, op_type, version, attributes, outputs, Kind.OPAQUE)
        kept = {
            name: value
            for name, value in attributes.items()
            if name not in schema.defaults or schema.defaults[name] != value
        }
        kind = Kind.PLAIN
        if domain == "":
            kind = _kind(op_type, schema.since, kept)
            if kind is Kind.CONV:
                kept = _without_conv_defaults(kept)
        return self._intern(domain, op_type, schema.since, kept, outputs, kind)

    def call(self, domain: str, op_type: str, attributes: Attributes, outputs: int) -> Operation:
        """A call to a function: what its name may mean elsewhere, and that operator's defaults, do not count."""
        return self._intern(domain, op_type, None, attributes, outputs, Kind.OPAQUE)

    def with_attributes(self, operation: Operation, attributes: Attributes) -> Operation:
        """The same operation with these attributes instead of its own."""
        return self._intern(
            operation.domain, operation.op_type, operation.version, attributes, operation.outputs, operation.kind
        )

    def attributes(
        self, protos: Iterable[AttributeProto], bindings: Attributes | None, name: str
    ) -> dict[str, Identity]:
        """The identities of a node's attributes, save its subgraphs.

        Args:
            protos: the attributes of the node.
            bindings: what a function's call binds the references `@name` to, those it does not name being absent;
                None leaves references as symbols.
            name: the value the node makes, by which its tensors may have been met before.
        """
        found = {}
        for proto in protos:
            reference = proto.ref_attr_name
            if reference and bindings is not None:
                if reference in bindings:
                    found[proto.name] = bindings[reference]
            elif reference:
                found[proto.name] = ("reference", reference)
            elif proto.type not in GRAPH_TYPES:
                found[proto.name] = attribute_identity(proto, self._tensors, name)
        return found

    def defaults(self, protos: Iterable[AttributeProto]) -> dict[str, Identity]:
        """The identities of a function's attribute defaults; subgraphs among them as they are written."""
        return {proto.name: attribute_identity(proto, self._tensors, "") for proto in protos}

    def constant(self, operation: Operation) -> Identity | None:
        """The tensor identity of a Constant's content; None while that is a function's parameter."""
        if len(operation.attributes) != 1:
            return None
        ((kind, value),) = operation.attributes.values()
        table = self._tensors
        match kind:
            case AttributeProto.TENSOR | AttributeProto.SPARSE_TENSOR:
                return value if isinstance(value, tuple) else None
            case AttributeProto.FLOAT:
                return table.identity_of_bytes(TensorProto.FLOAT, (), value)
            case AttributeProto.FLOATS:
                return table.identity_of_bytes(TensorProto.FLOAT, (len(value) // 4,), value)
            case AttributeProto.INT:
                return table.identity_of_bytes(TensorProto.INT64, (), struct.pack("<q", value))
            case AttributeProto.INTS:
                return table.identity_of_bytes(TensorProto.INT64, (len(value),), struct.pack(f"<{len(value)}q", *value))
            case AttributeProto.STRING:
                return ("tensor", TensorProto.STRING, (), (value,))
            case AttributeProto.STRINGS:
                return ("tensor", TensorProto.STRING, (len(value),), value)
        return None

    def _intern(
        self, domain: str, op_type: str, version: int | None, attributes: Attributes, outputs: int, kind: Kind
    ) -> Operation:
        identity = (domain, op_type, version, outputs, tuple(sorted(attributes.items())))
        known = self._numbers.get(identity)
        if known is None:
            rank_input = -1
            if domain == "":
                rank_input = 1 if op_type == "Conv" else 0 if op_type in _RANK_KEEPING else -1
            known = Operation(len(self.operations), domain, op_type, version, kind, outputs, attributes, rank_input)
            self.operations.append(known)
            self._numbers[identity] = known
        return known


@dataclass(frozen=True, slots=True)
class _Schema:
    since: int
    defaults: Attributes


@cache
def _schema(domain: str, op_type: str, opset: int | None) -> _Schema | None:
    """What onnx knows of the operator at that opset, or None."""
    if opset is None:
        return None
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    defaults = {
        name: attribute_identity(attribute.default_value, TensorTable(by_content=True), "")
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != AttributeProto.UNDEFINED
    }
    return _Schema(schema.since_version, defaults)


def is_standard(domain: str, op_type: str, opset: int | None) -> bool:
    """Whether onnx defines the operator at that opset."""
    return _schema(domain, op_type, opset) is not None


@cache
def may_hold_graphs(domain: str, op_type: str, opset: int | None) -> bool:
    """Whether a node of that operator can have subgraphs: its schema says so, or nobody knows."""
    if not is_standard(domain, op_type, opset):
        return True
    attributes = onnx.defs.get_schema(op_type, opset or 1, domain).attributes.values()
    return any(attribute.type in (_AttributeType.GRAPH, _AttributeType.GRAPHS) for attribute in attributes)


def _kind(op_type: str, since: int, attributes: Attributes) -> Kind:
    match op_type:
        case "Add" | "Mul":
            return Kind.UNORDERED
        case "Concat":
            return Kind.CONCAT
        case "Conv":
            return Kind.CONV
        case "Identity":
            return Kind.IDENTITY
        case "Constant":
            return Kind.CONSTANT
        case "Dropout" if since >= 7:
            return Kind.DROPOUT
        case "Dropout":
            kind, tests = attributes.get("is_test", (AttributeProto.INT, 0))
            return Kind.DROPOUT if kind == AttributeProto.INT and tests else Kind.OPAQUE
        case "Transpose":
            return Kind.TRANSPOSE
        case "Cast" | "Reshape" | "Pad":
            return Kind.NO_OPERATION
    return Kind.OPAQUE if op_type in _RANDOM else Kind.PLAIN


def _without_conv_defaults(attributes: dict[str, Identity]) -> dict[str, Identity]:
    """Leaves out strides, dilations and pads that say what their absence says at every rank (Conv, opset 1)."""
    kept = dict(attributes)
    for name in ("strides", "dilations"):
        if name in kept and kept[name][0] == AttributeProto.INTS and set(kept[name][1]) == {1}:
            del kept[name]
    explicit = "auto_pad" not in kept  # NOTSET is the schema's default and already gone
    if explicit and "pads" in kept and kept["pads"][0] == AttributeProto.INTS and set(kept["pads"][1]) == {0}:
        del kept["pads"]
    return kept
