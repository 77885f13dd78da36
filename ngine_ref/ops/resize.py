"""Resize and Upsample: nearest, linear and cubic interpolation along any axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.numerics.dtypes import DType, is_text, wide
from ngine_ref.numerics.resize_coordinates import (
    F32,
    ResizedAxis,
    Taps,
    cubic_kernel,
    linear_kernel,
    nearest_taps,
    original_coordinates,
    weighted_taps,
)
from ngine_ref.numerics.resize_sizes import check_lengths, resized_axes, scaled_lengths
from ngine_ref.numerics.scratch import Request, bytes_needed, carve
from ngine_ref.numerics.signature import (
    Inputs,
    Outputs,
    check_signature,
    float_attribute,
    int_attribute,
    operand,
    present,
)
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, operator

BLOCK = 1 << 17
"""Elements that are resized at a time, so that what lies between two axes stays in the cache."""


@operator("Resize", since=11, shape_inputs=(1, 2, 3))
def bind_resize(call: Call) -> Kernel:
    """Resize-11, -13, -18, -19: every output cell is a weighted mean of the input cells round its place in the input.

    Inputs X of any rank, roi, scales, sizes (one of the last two; an empty tensor is an absent one). `mode` is nearest
    (every element type), linear or cubic (numbers). All coordinate and nearest modes, `antialias`, `exclude_outside`,
    `cubic_coeff_a`, `extrapolation_value`, `axes` and `keep_aspect_ratio_policy`, as far as the opset has them. Narrow
    floats are computed in float32; integers in float64, then cut off towards zero in linear mode (ONNX does not say;
    onnxruntime does so) and rounded for cubic or antialias, within the range of the element type.

    Raises:
        ShapeError: roi, scales or sizes do not fit the input's rank.
        OperatorError: a mode or value is not possible, or the element type cannot be interpolated.
    """
    check_signature(call)
    axes = resized_axes(call)
    transformation = str(call.attributes.get("coordinate_transformation_mode", "half_pixel"))
    mode = str(call.attributes.get("mode", "nearest"))
    nearest_mode = str(call.attributes.get("nearest_mode", "round_prefer_floor"))
    antialias = bool(int_attribute(call, "antialias", 0))
    exclude_outside = bool(int_attribute(call, "exclude_outside", 0))
    cubic = cubic_kernel(float_attribute(call, "cubic_coeff_a", -0.75))

    def taps(at: ResizedAxis) -> Taps:
        x = original_coordinates(at, transformation)
        if mode == "nearest":
            return nearest_taps(at, x, nearest_mode)
        kernel, radius = (cubic, 2) if mode == "cubic" else (linear_kernel, 1)
        return weighted_taps(at, x, kernel, radius, antialias=antialias, exclude_outside=exclude_outside)

    _check_mode(call, mode, ("nearest", "linear", "cubic"))
    extrapolation = float_attribute(call, "extrapolation_value", 0.0)
    return _kernel(
        call,
        axes,
        [taps(at) for at in axes],
        extrapolation=extrapolation if transformation == "tf_crop_and_resize" else None,
        rounds=mode == "cubic" or antialias,
    )


@operator("Resize", since=10, shape_inputs=(1,))
def bind_resize_by_scales(call: Call) -> Kernel:
    """Resize-10: inputs X and scales; `mode` is nearest or linear; the coordinate is `x / scale`.

    Nearest takes the cell at or before the coordinate, and where the axis shrinks the one at or behind it: ONNX does
    not say which, and this is what onnxruntime and ONNX's test cases of that opset have.

    Raises:
        ShapeError: there is not one scale an axis.
        OperatorError: a scale is not positive, or the mode is not possible.
    """
    check_signature(call)
    scales = call.spec(1)
    if scales is None or scales.value is None:
        raise OperatorError(f"{call.op_type} must know its input scales before its output can have a shape.")
    return _asymmetric_kernel(call, scales.value)


operator("Upsample", since=9, shape_inputs=(1,))(bind_resize_by_scales)


@operator("Upsample", since=7)
def bind_upsample_by_attribute(call: Call) -> Kernel:
    """Upsample-7: as Resize-10, with the scales in an attribute (and in an input from Upsample-9 on)."""
    check_signature(call)
    return _asymmetric_kernel(call, np.asarray(call.attributes["scales"]))


def _asymmetric_kernel(call: Call, scales: Array) -> Kernel:
    shape = operand(call, 0).shape
    if scales.shape != (len(shape),):
        raise OperatorError(f"{call.op_type}: scales has shape {scales.shape} for an input of shape {shape}.")
    scales = scales.astype(F32)
    mode = str(call.attributes.get("mode", "nearest"))
    _check_mode(call, mode, ("nearest", "linear"))
    resized = scaled_lengths(shape, scales)
    numbers = zip(range(len(shape)), shape, resized, scales, np.asarray(shape, F32) * scales, strict=True)
    axes = check_lengths([ResizedAxis(*each, F32(0), F32(1)) for each in numbers])

    def taps(at: ResizedAxis) -> Taps:
        x = original_coordinates(at, "asymmetric")
        if mode == "nearest":
            return nearest_taps(at, x, "ceil" if at.scale < 1 else "floor")
        return weighted_taps(at, x, linear_kernel, 1, antialias=False, exclude_outside=False)

    return _kernel(call, axes, [taps(at) for at in axes], extrapolation=None, rounds=False)


def _check_mode(call: Call, mode: str, modes: Sequence[str]) -> None:
    if mode not in modes:
        raise OperatorError(f"{call.op_type}: mode is {mode!r}, it must be one of {', '.join(modes)}.")
    dtype = operand(call, 0).dtype
    if mode != "nearest" and (is_text(dtype) or dtype.kind == "b"):
        raise OperatorError(f"{call.op_type} can interpolate numbers only, and {dtype} by mode nearest only.")


@dataclass(frozen=True, slots=True)
class _Steps:
    """One axis after the other, the ones that shrink first."""

    taps: list[Taps]
    shapes: list[tuple[int, ...]]
    """Of a chunk, before the first step and after each."""
    source: DType
    work: DType
    weighted: bool
    """Whether any step adds up; if none does, the last one writes straight into the output."""

    def requests(self) -> list[Request]:
        """A chunk in the element type of the work, what each step makes of it, and room for a term of a sum."""
        sizes = [math.prod(shape) for shape in self.shapes]
        term = max(sizes[1:]) if self.weighted else 0
        if self.source == self.work:
            sizes[0] = 0
        if not self.weighted:
            sizes[-1] = 0
        return [((size,), self.work) for size in (*sizes, term)]

    def apply(self, source: Array, memory: Array, place: Array) -> Array:
        """The resized chunk in the element type of the work, which is `place` unless there are weights."""
        first, *results, term = carve(memory, *self.requests())
        current = source
        if self.source != self.work:
            current = _head(first, source.shape)
            current[...] = source
        for taps, result in zip(self.taps, results, strict=True):
            shape = list(current.shape)
            shape[taps.axis] = len(taps.indices)
            target = place if taps is self.taps[-1] and not self.weighted else _head(result, shape)
            _apply_taps(current, taps, target, term)
            current = target
        return current


def _head(memory: Array, shape: Sequence[int]) -> Array:
    return memory[: math.prod(shape)].reshape(shape)


def _apply_taps(source: Array, taps: Taps, target: Array, room: Array) -> None:
    if taps.weights is None:
        _select(source, taps, target)
        return
    term = _head(room, target.shape)
    column = [1] * source.ndim
    column[taps.axis] = -1
    for index in range(taps.indices.shape[1]):
        into = term if index else target
        np.take(source, taps.indices[:, index], taps.axis, out=into, mode="clip")
        np.multiply(into, taps.weights[:, index].astype(into.real.dtype).reshape(column), out=into)
        if index:
            np.add(target, term, out=target)


def _select(source: Array, taps: Taps, target: Array) -> None:
    """Nearest cells: whole factors by assignment to every n-th cell, all else by index."""
    indices = taps.indices[:, 0]
    factor = len(indices) // taps.length
    source, target = np.moveaxis(source, taps.axis, 0), np.moveaxis(target, taps.axis, 0)
    if factor and np.array_equal(indices, np.arange(taps.length * factor) // factor):
        for phase in range(factor):
            target[phase::factor] = source
    else:
        target[...] = source[indices]


def _kernel(
    call: Call, axes: list[ResizedAxis], all_taps: list[Taps], *, extrapolation: float | None, rounds: bool
) -> Kernel:
    x = operand(call, 0)
    shape = list(x.shape)
    for at in axes:
        shape[at.axis] = at.resized
    output = TensorSpec(tuple(shape), x.dtype)
    changing = sorted(
        (taps for taps in all_taps if not taps.is_identity),
        key=lambda taps: len(taps.indices) / max(1, x.shape[taps.axis]),
    )
    first = min((taps.axis for taps in changing), default=0)
    steps = _lay_out(changing, x, first)
    finish = _finisher(x.dtype, rounds=rounds)
    outside = [(taps.axis, taps.outside) for taps in all_taps if extrapolation is not None and taps.outside.any()]
    text = is_text(x.dtype)  # Python objects do not fit into scratch memory

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        source, out = present(inputs, 0), outputs[0]
        if out.size == 0:
            return
        if not changing:
            out[...] = source
        elif text:
            out[...] = source[np.ix_(*_all_indices(all_taps, source.shape))]
        else:
            for chunk, place in _chunks(source, out, first, steps.shapes[0][0]):
                result = steps.apply(chunk, workspace.scratch, place)
                if steps.weighted:
                    finish(result, place)
        for axis, cells in outside:
            np.moveaxis(out, axis, 0)[cells] = np.asarray(extrapolation, np.float64).astype(out.dtype)

    scratch_bytes = 0 if text else bytes_needed(*steps.requests())
    return Kernel((output,), compute, scratch_bytes=scratch_bytes, strided=True)


def _lay_out(changing: list[Taps], x: TensorSpec, first: int) -> _Steps:
    """The steps for chunks `[n, *axes from the first that changes on]`, with n so that a chunk is about a block."""
    moved = [replace(t, axis=t.axis - first + 1) for t in changing]
    weighted = any(taps.weights is not None for taps in changing)
    shapes = [[1, *x.shape[first:]]]
    for taps in moved:
        shapes.append([*shapes[-1]])
        shapes[-1][taps.axis] = len(taps.indices)
    most = max(1, max(map(math.prod, shapes)))
    count = max(1, min(BLOCK // most, x.shape[first - 1] if first else 1))
    work = _work_dtype(x.dtype) if weighted else x.dtype
    return _Steps(moved, [(count, *rest) for _, *rest in shapes], x.dtype, work, weighted)


def _chunks(source: Array, out: Array, first: int, count: int) -> Iterator[tuple[Array, Array]]:
    """Matching parts of input and output, at most `count` items of the axis before the first that changes."""
    source, out = source[None], out[None]
    for index in np.ndindex(source.shape[:first]):
        for start in range(0, source.shape[first], count):
            part = slice(start, start + count)
            yield source[index][part], out[index][part]


def _all_indices(all_taps: list[Taps], shape: tuple[int, ...]) -> list[Array]:
    indices = [np.arange(length) for length in shape]
    for taps in all_taps:
        indices[taps.axis] = taps.indices[:, 0]
    return indices


def _work_dtype(dtype: DType) -> DType:
    return np.dtype(np.float64) if dtype.kind in "iu" else wide(dtype)


def _finisher(dtype: DType, *, rounds: bool) -> Callable[[Array, Array], None]:
    """How results are brought to the output's element type."""
    if dtype.kind not in "iu":
        return lambda values, out: np.copyto(out, values, casting="unsafe")
    limits = np.iinfo(dtype)
    low = float(limits.min)
    high = float(limits.max) if limits.bits < 64 else np.nextafter(float(limits.max), 0.0)

    def finish(values: Array, out: Array) -> None:
        if rounds:
            np.add(values, np.copysign(0.5, values), out=values)
        out[...] = np.clip(np.trunc(values, out=values), low, high, out=values)

    return finish
