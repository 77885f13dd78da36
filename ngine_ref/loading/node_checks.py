"""Whether a node has the inputs, outputs and attributes that ONNX's schema of its operator demands."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from onnx import AttributeProto, defs

from ngine_ref.errors import ModelError
from ngine_ref.loading.graph import Node


class _Demands(NamedTuple):
    inputs: range
    outputs: range
    attributes: tuple[str, ...]
    """Those that must be there."""
    types: dict[str, int]
    """`onnx.AttributeProto.AttributeType` of all that there are."""


def check_node(node: Node) -> None:
    """Compare a node with its schema; one whose operator ONNX does not define is left alone.

    Raises:
        ModelError: it has too few or too many inputs or outputs, lacks an attribute, or has one of another type.
    """
    demands = _demands(node.op_type, node.domain, node.opset)
    if demands is None:
        return
    for what, names, allowed in (("inputs", node.inputs, demands.inputs), ("outputs", node.outputs, demands.outputs)):
        if len(names) not in allowed:
            least, most = allowed.start, allowed.stop - 1
            number = f"{least}" if least == most else f"{least} to {most}"
            raise ModelError(f"{node} has {len(names)} {what}, but {node.op_type}-{node.opset} has {number}.")
    for name in demands.attributes:
        if name not in node.attributes:
            raise ModelError(f"{node} lacks the attribute {name!r}, which {node.op_type}-{node.opset} needs.")
    for name, kind in node.attribute_types.items():
        if kind != demands.types.get(name, kind):
            wanted = AttributeProto.AttributeType.Name(demands.types[name])
            raise ModelError(f"{node} must have the attribute {name!r} as {wanted}, {node.op_type}-{node.opset} says.")
    if node.op_type == "Constant" and not node.domain and len(node.attributes) != 1:
        raise ModelError(f"{node} must have exactly one attribute, its value, but has {len(node.attributes)}.")


@cache
def _demands(op_type: str, domain: str, opset: int) -> _Demands | None:
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None
    return _Demands(
        range(schema.min_input, schema.max_input + 1),
        range(schema.min_output, schema.max_output + 1),
        tuple(name for name, attribute in schema.attributes.items() if attribute.required),
        # An enum with the same numbers as AttributeProto's, which onnx's stubs do not tell.
        {name: attribute.type.value for name, attribute in schema.attributes.items()},  # type: ignore[attr-defined]
    )
