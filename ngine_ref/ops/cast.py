"""Cast: every element type into every other."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx

from ngine_ref.errors import OperatorError
from ngine_ref.numerics.dtypes import DType, dtype_of, is_floating, is_narrow_float, is_text, largest, type_name, wide
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.numerics.views import view_kernel
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, operator

_SATURATING = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -127, 127

Number = TypeVar("Number", int, float)
Conversion = Callable[[Array, Array], None]


@operator("Cast")
def bind_cast(call: Call) -> Kernel:
    """Cast-1 to -28: the input's elements as the element type `to`; the shape stays.

    From and to every number type that NumPy or ml_dtypes hold, bool and string. Integers wrap into narrower ones;
    floats are rounded to nearest even and overflow to infinity; floats become integers by truncation (undefined in
    ONNX where out of range, and then whatever NumPy gives); everything but 0 is true, and true is 1.

    To the four float8 types of the E4M3 and E5M2 families, `saturate=1` (the default) turns infinity and what rounds
    beyond the largest finite number into that number, and `saturate=0` into NaN (into infinity in E5M2). To
    float8e8m0, which holds only powers of two, `round_mode` is `up` (the default), `down` or `nearest` (ties go up),
    and what is outside 2^-127 to 2^127 becomes the nearer end, or NaN with `saturate=0`; signs are dropped.

    Strings hold decimal numbers, `INF`, `-INF` or `NaN` in any case. Numbers become the shortest decimals that read
    back as the same number, bool `1` and `0`.

    Raises:
        OperatorError: an unknown element type or rounding mode; at run time, a string that is no number.
    """
    check_signature(call)
    x = operand(call, 0)
    dtype = _target(call)
    if dtype == x.dtype and dtype != _E8M0:
        return view_kernel(x, x.shape)
    convert = _conversion(x.dtype, dtype, bool(int_attribute(call, "saturate", 1)), _round_mode(call))

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        convert(present(inputs, 0), outputs[0])

    return Kernel((TensorSpec(x.shape, dtype),), compute, strided=True)


def _target(call: Call) -> DType:
    """The attribute `to`, which was the element type's name in Cast-1."""
    to = call.attributes["to"]
    if isinstance(to, str):
        names = dict(onnx.TensorProto.DataType.items())
        if to not in names:
            raise OperatorError(f"Cast cannot make {to!r}, which is no element type of ONNX.")
        to = names[to]
    return dtype_of(int(to))


def _round_mode(call: Call) -> str:
    mode = str(call.attributes.get("round_mode", "up"))
    if mode not in ("up", "down", "nearest"):
        raise OperatorError(f"Cast needs round_mode up, down or nearest, got {mode!r}.")
    return mode


def _conversion(source: DType, target: DType, saturate: bool, round_mode: str) -> Conversion:
    if is_text(target):
        return _copy if is_text(source) else _print
    if target == _E8M0:
        convert: Conversion = partial(_to_power_of_two, saturate=saturate, round_mode=round_mode)
    elif saturate and type_name(target) in _SATURATING:
        convert = _saturate
    else:
        convert = _copy
    read = _reader(source, target)
    return lambda x, out: convert(read(x), out)


def _reader(source: DType, target: DType) -> Callable[[Array], Array]:
    """What to make of the input first, so that NumPy and ml_dtypes convert it and round only once."""
    if is_text(source):
        return _parse_float if is_floating(target) or target == np.bool_ else _parse_integer
    if is_floating(source) and source.itemsize == 1:
        return lambda x: x.astype(np.float32)
    if source.itemsize == 1 and source.kind == "V":  # the 2- and 4-bit integers
        return lambda x: x.astype(np.int8)
    if source.itemsize > 2 and source != np.float32 and is_narrow_float(target) and target != np.float16:
        return lambda x: _round_to_odd(x.astype(np.float64))
    return lambda x: x


def _round_to_odd(x: Array) -> Array:
    # ml_dtypes takes a float64 through float32, which would round twice. Of the two float32 neighbours of an inexact
    # number, the odd one is never a tie of a narrower type, and so rounding it gives what rounding `x` gives.
    y = x.astype(np.float32)
    towards = np.where(x > y, np.float32(np.inf), np.float32(-np.inf))
    even = (y.view(np.uint32) & 1) == 0
    return np.where(even & (y.astype(np.float64) != x) & ~np.isnan(x), np.nextafter(y, towards), y)


def _copy(x: Array, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")


def _saturate(x: Array, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")
    beyond = ~np.isfinite(out) & ~np.isnan(x)
    limit = np.float32(largest(out.dtype))
    out[beyond] = np.where(np.signbit(x[beyond]), -limit, limit).astype(out.dtype)


def _to_power_of_two(x: Array, out: Array, saturate: bool, round_mode: str) -> None:
    magnitude = np.abs(x.astype(np.float64))
    mantissa, exponent = np.frexp(magnitude)  # magnitude = mantissa * 2**exponent, 0.5 <= mantissa < 1
    threshold = {"up": np.nextafter(0.5, 1), "nearest": 0.75, "down": 1.0}[round_mode]
    exponent = exponent - 1 + (mantissa >= threshold)
    exponent = np.where(magnitude == 0, _LOWEST_EXPONENT, np.where(np.isinf(magnitude), _HIGHEST_EXPONENT, exponent))
    code = np.clip(exponent, _LOWEST_EXPONENT, _HIGHEST_EXPONENT) - _LOWEST_EXPONENT
    lost = np.isnan(magnitude)
    if not saturate:
        lost |= (magnitude < 2.0**_LOWEST_EXPONENT) | (magnitude > 2.0**_HIGHEST_EXPONENT)
    np.copyto(out, np.where(lost, 255, code).astype(np.uint8).view(_E8M0))


def _print(x: Array, out: Array) -> None:
    if x.dtype == np.bool_:
        x = x.astype(np.uint8)
    values = x.astype(wide(x.dtype)).reshape(-1) if is_floating(x.dtype) else x.reshape(-1)
    text = _float_text if is_floating(x.dtype) else str
    out[...] = np.array([text(value) for value in values], object).reshape(x.shape)


def _float_text(value: np.floating[Any]) -> str:
    if math.isfinite(value):
        return str(value).removesuffix(".0")
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"


def _parse_float(x: Array) -> Array:
    return np.array([_number(text, float) for text in x.reshape(-1)], np.float64).reshape(x.shape)


def _parse_integer(x: Array) -> Array:
    # Modulo 2**64, so that narrowing afterwards wraps as it does for any other integer.
    wrapped = [_number(text, _integer) % 2**64 for text in x.reshape(-1)]
    return np.array(wrapped, np.uint64).reshape(x.shape)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _number(text: str | bytes, read: Callable[[str], Number]) -> Number:
    plain = text.decode() if isinstance(text, bytes) else str(text)
    try:
        return read(plain)
    except (ValueError, OverflowError) as error:
        raise OperatorError(f"Cast cannot read {plain!r} as a number of the type asked for.") from error
