"""What a call may look like at all, by ONNX's own schemas: how many inputs, which element types and attributes.

A binder begins with `check_signature(call)`. The answer depends on a handful of values and is remembered, so that
binding thousands of nodes asks the schemas only a few times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
import onnx
from onnx.defs import OpSchema

from ngine_ref.errors import OperatorError
from ngine_ref.numerics.dtypes import DType, type_name
from ngine_ref.registry import Array, Call, TensorSpec

Inputs = Sequence[Array | None]
Outputs = Sequence[Array]


def check_signature(call: Call) -> None:
    """Compare a call of a standard operator with its schema.

    The number of inputs and the attributes' names are those of the call's opset. Element types are those of the
    newest schema: what a later opset added is accepted in an earlier one, for it can mean only one thing.

    Raises:
        OperatorError: an input is missing or one too many, an element type or an attribute is not the operator's.
    """
    dtypes = tuple(None if spec is None else spec.dtype for spec in call.inputs)
    complaint = _complaint(call.op_type, call.opset, dtypes, frozenset(call.attributes))
    if complaint:
        raise OperatorError(complaint)
    for name, kind in _listed_attributes(call.op_type, call.opset).items():
        value = call.attributes.get(name, ())
        if not isinstance(value, Sequence | np.ndarray) or not all(isinstance(item, kind) for item in value):
            raise OperatorError(f"{call.op_type}: {name} is {value!r}, it must be a list of numbers.")


def operand(call: Call, slot: int) -> TensorSpec:
    """The input of that slot, which must be there."""
    spec = call.spec(slot)
    if spec is None:
        raise OperatorError(f"{call.op_type} needs its input {slot}, which is absent.")
    return spec


def present(inputs: Inputs, slot: int) -> Array:
    """The array of an input that the binder saw present."""
    array = inputs[slot]
    if array is None:
        raise OperatorError(f"Input {slot} was present when the operator was bound and is absent now.")
    return array


def int_attribute(call: Call, name: str, default: int) -> int:
    """An attribute of type INT.

    Raises:
        OperatorError: it is something else.
    """
    value = call.attributes.get(name, default)
    if not isinstance(value, int | np.integer):
        raise OperatorError(f"{call.op_type}: {name} is {value!r}, it must be an integer.")
    return int(value)


def float_attribute(call: Call, name: str, default: float) -> float:
    """An attribute of type FLOAT, rounded to float32 as a model stores it, also when it was given directly.

    Raises:
        OperatorError: it is something else.
    """
    value = call.attributes.get(name, default)
    if not isinstance(value, int | float | np.integer | np.floating):
        raise OperatorError(f"{call.op_type}: {name} is {value!r}, it must be a number.")
    with np.errstate(over="ignore"):
        return float(np.float32(value))


@cache
def _listed_attributes(op_type: str, opset: int) -> dict[str, tuple[type, ...]]:
    """The attributes that hold a list of numbers, with the types these may have."""
    schema = onnx.defs.get_schema(op_type, min(opset, onnx.defs.onnx_opset_version()))
    kinds = {OpSchema.AttrType.INTS: (int, np.integer), OpSchema.AttrType.FLOATS: (int, float, np.number)}
    return {name: kinds[each.type] for name, each in schema.attributes.items() if each.type in kinds}


@lru_cache(maxsize=4096)
def _complaint(op_type: str, opset: int, dtypes: tuple[DType | None, ...], attributes: frozenset[str]) -> str | None:
    newest = onnx.defs.onnx_opset_version()
    schema = onnx.defs.get_schema(op_type, min(opset, newest))
    return (
        _wrong_inputs(schema, dtypes)
        or _wrong_types(onnx.defs.get_schema(op_type, newest), dtypes)
        or _wrong_attributes(schema, attributes)
    )


def _wrong_inputs(schema: OpSchema, dtypes: tuple[DType | None, ...]) -> str | None:
    if len(dtypes) > schema.max_input:
        return f"{schema.name}-{schema.since_version} takes at most {schema.max_input} inputs, got {len(dtypes)}."
    missing = max(0, schema.min_input - len(dtypes))
    for formal, dtype in zip(schema.inputs, dtypes + (None,) * missing, strict=False):
        if dtype is None and formal.option != OpSchema.FormalParameterOption.Optional:
            return f"{schema.name}-{schema.since_version} needs its input {formal.name!r}, which is absent."
    return None


def _wrong_types(schema: OpSchema, dtypes: tuple[DType | None, ...]) -> str | None:
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    bound: dict[str, str] = {}
    for slot, dtype in enumerate(dtypes):
        if dtype is None:
            continue
        formal = schema.inputs[min(slot, len(schema.inputs) - 1)]
        got = type_name(dtype)
        choices = allowed.get(formal.type_str, [formal.type_str])
        if f"tensor({got})" not in choices:
            names = ", ".join(choice[len("tensor(") : -1] for choice in choices if choice.startswith("tensor("))
            return f"{schema.name} takes no {got} as its input {formal.name!r}; it takes {names}."
        if bound.setdefault(formal.type_str, got) != got:
            return f"{schema.name} needs inputs of one element type, got {bound[formal.type_str]} and {got}."
    return None


def _wrong_attributes(schema: OpSchema, attributes: frozenset[str]) -> str | None:
    unknown = sorted(attributes - set(schema.attributes))
    if unknown:
        return f"{schema.name}-{schema.since_version} has no attribute {unknown[0]!r}."
    missing = sorted(name for name, a in schema.attributes.items() if a.required and name not in attributes)
    if missing:
        return f"{schema.name}-{schema.since_version} needs its attribute {missing[0]!r}, which is absent."
    return None
