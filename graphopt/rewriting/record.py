"""What a fused model remembers of the original, in `metadata_props`: enough to undo everything by name.

A fused node remembers each standard node it stands for; the model remembers which rules made it, and what had to
change at its top.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring as _quoted
from types import MappingProxyType
from typing import Any, NamedTuple

from onnx import ModelProto, NodeProto

REPLACES = "graphopt.replaces"
"""On a fused node: the names of the nodes it replaced, for people and other tools."""
NODES = "graphopt.nodes"
"""On a fused node: JSON, an object for each replaced node, see `Replaced`."""
ORIGINAL_INPUTS = "graphopt.original_inputs"
"""On a Concat that shares a prefix: JSON, the inputs it had."""
RULES = "graphopt.rules"
"""On the model: the digest of the rules that made it."""
IR_VERSION = "graphopt.ir_version"
"""On the model: the IR version it had, where it was raised."""
INPUTS = "graphopt.inputs"
"""On the model: JSON, the graph's inputs in order, where initializers were dropped from them."""


NO_METADATA: Mapping[str, str] = MappingProxyType({})
"""What nearly every node has."""


class Replaced(NamedTuple):
    """A standard node that a fused node stands for, and whatever inlining the fused node would not give back."""

    op_type: str
    name: str
    outputs: tuple[str, ...]
    """Its output names in the original model."""
    inputs: tuple[str, ...] | None = None
    """Its inputs, where a rewrite before the fusion changed them."""
    swapped: bool = False
    """Its two operands stood in the other order."""
    arity: int | None = None
    """How many inputs it listed, where it named absent ones at the end."""
    axis: int | None = None
    """Its axis, where the fused node states it otherwise."""
    domain: str = ""
    """Its domain as spelled."""
    doc_string: str = ""
    metadata: Mapping[str, str] = NO_METADATA
    empty: tuple[str, ...] = ()
    """Its fields of text that were written, though they are empty."""
    attributes: tuple[str, ...] | None = None
    """Its attributes in their order, where inlining gives them in another, or more of them."""
    passed_on: str = ""
    """Of an Identity between two of the others, which has no part in the fused node's body: what it read."""

    @property
    def label(self) -> str:
        """The node's name, or that of its first output where it had none."""
        return self.name or next(filter(None, self.outputs), "")


_FIRST_UNUSUAL = Replaced._fields.index("swapped")
_USUAL = Replaced("", "", ())[_FIRST_UNUSUAL:]


def add_empty_record(node: NodeProto) -> None:
    """Give a fused node the entries of its metadata that `fill_record` fills; it has none yet."""
    node.metadata_props.add(key=REPLACES)
    node.metadata_props.add(key=NODES)


def fill_record(node: NodeProto, replaced: Sequence[Replaced]) -> None:
    """Store the replaced nodes in the entries that `add_empty_record` made."""
    names, nodes = node.metadata_props
    names.value = ", ".join([item.name or item.label for item in replaced])
    nodes.value = f"[{','.join(map(_row_text, replaced))}]"


def _row_text(item: Replaced) -> str:
    """A replaced node as JSON. One like any other is put together here: that takes a quarter of the encoder's time,
    and it is done for nearly every node of a model."""
    if not item.name or item[_FIRST_UNUSUAL:] != _USUAL:
        return _encode(_row(item))
    text = f'{{"op":{_quoted(item.op_type)},"outputs":{_list(item.outputs)},"name":{_quoted(item.name)}'
    return text + "}" if item.inputs is None else f'{text},"inputs":{_list(item.inputs)}}}'


def _list(names: Iterable[str]) -> str:
    return f"[{','.join(map(_quoted, names))}]"


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Made once: `json.dumps` makes an encoder for each call that wants other separators."""


def _row(item: Replaced) -> dict[str, Any]:
    """A replaced node as JSON: what is as usual is left out."""
    row: dict[str, Any] = {"op": item.op_type, "outputs": item.outputs}
    if item.name:
        row["name"] = item.name
    for key in ("arity", "inputs", "axis", "attributes"):
        if getattr(item, key) is not None:
            row[key] = getattr(item, key)
    for key in ("swapped", "domain", "doc_string", "empty", "passed_on"):
        if getattr(item, key):
            row[key] = getattr(item, key)
    if item.metadata:
        row["metadata"] = dict(item.metadata)
    return row


def read_record(node: NodeProto) -> tuple[Replaced, ...] | None:
    """The nodes that a fused node replaced; None where it does not say, or says it in no form of ours.

    A stranger's record, or a damaged one, is as none: names are then made up.
    """
    rows = _json(metadata(node).get(NODES))
    if not isinstance(rows, list):
        return None
    replaced = [_replaced(row) for row in rows]
    return None if None in replaced else tuple(item for item in replaced if item is not None)


def _replaced(row: object) -> Replaced | None:
    if not isinstance(row, dict) or not _is_text([row.get("op")]):
        return None
    outputs, inputs, attributes = (row.get(key) for key in ("outputs", "inputs", "attributes"))
    arity, axis, given = row.get("arity"), row.get("axis"), row.get("metadata", {})
    texts = [row.get(key, "") for key in ("name", "domain", "doc_string", "passed_on")]
    lists = [outputs, row.get("empty", []), *(names for names in (inputs, attributes) if names is not None)]
    if not _is_text(texts) or not all(isinstance(names, list) and _is_text(names) for names in lists):
        return None
    if not isinstance(given, dict) or not _is_text(given.values()):
        return None
    if texts[3] and len(row["outputs"]) != 1:
        return None
    if not (arity is None or (isinstance(arity, int) and 0 <= arity <= _MOST_INPUTS)):
        return None
    if not (axis is None or (isinstance(axis, int) and -_MOST_INPUTS <= axis < 0)):
        return None
    return Replaced(
        row["op"],
        texts[0],
        tuple(row["outputs"]),
        swapped=row.get("swapped") is True,
        arity=arity,
        inputs=None if inputs is None else tuple(inputs),
        axis=axis,
        domain=texts[1],
        doc_string=texts[2],
        metadata=given,
        empty=tuple(row.get("empty", [])),
        attributes=None if attributes is None else tuple(attributes),
        passed_on=texts[3],
    )


_MOST_INPUTS = 2**16
"""A record that speaks of more inputs than this, or of a larger axis, is damaged."""


def names_in(text: str | None) -> tuple[str, ...] | None:
    """The names in an entry of the metadata that holds a list of them as JSON; None where it holds anything else."""
    names = _json(text)
    return tuple(names) if isinstance(names, list) and _is_text(names) else None


def _is_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _json(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):  # not JSON, or nested without end
        return None


def metadata(proto: ModelProto | NodeProto) -> dict[str, str]:
    """The metadata of a model or a node, as a dictionary."""
    return {entry.key: entry.value for entry in proto.metadata_props}


def set_metadata(proto: ModelProto | NodeProto, key: str, value: str) -> None:
    """Set one entry of a model's or a node's metadata."""
    for entry in proto.metadata_props:
        if entry.key == key:
            entry.value = value
            return
    proto.metadata_props.add(key=key, value=value)


def drop_metadata(proto: ModelProto | NodeProto, *keys: str) -> None:
    """Remove entries of a model's or a node's metadata."""
    for place in reversed(range(len(proto.metadata_props))):
        if proto.metadata_props[place].key in keys:
            del proto.metadata_props[place]
