"""Where the windows of convolution and pooling lie: strides, dilations, padding, output sizes, and their content.

Everything here is per spatial axis and holds for any number of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.limits import MOST_BYTES, check_size
from ngine_ref.registry import Array, Call


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one operator: one entry a spatial axis in every field."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    output: tuple[int, ...]
    """How many windows there are along each axis."""

    @property
    def is_pointwise(self) -> bool:
        """Whether window i is exactly cell i of the input."""
        ones = (1,) * len(self.kernel)
        return self.kernel == ones and self.strides == ones and not any(self.pads_begin) and not any(self.pads_end)

    def taps(self, axis: int, size: int) -> Iterator[tuple[slice, slice]]:
        """For each tap along an axis that meets some of its `size` cells: in which windows, and which cells."""
        count, stride, dilation = self.output[axis], self.strides[axis], self.dilations[axis]
        reach = (count - 1) * stride
        # A tap counts if it meets a cell in some window; there may be far more taps than cells.
        some, none = places_inside(self.kernel[axis], size + reach, reach - self.pads_begin[axis], dilation)
        for tap in range(some, none):
            start = tap * dilation - self.pads_begin[axis]
            first, last = places_inside(count, size, start, stride)
            if first < last:
                yield slice(first, last), slice(start + first * stride, start + last * stride, stride)


def place_windows(
    call: Call, spatial: Sequence[int], kernel: Sequence[int], *, ceil_mode: bool = False, same_may_crop: bool = False
) -> Windows:
    """The windows that the attributes `auto_pad`, `dilations`, `pads` and `strides` of a call describe.

    Source: ONNX Conv (opsets 1, 11, 22) and AveragePool (opsets 1 to 22). Explicit `pads` count only where `auto_pad`
    is NOTSET. With `ceil_mode` a window may reach beyond the padded input, but it starts within the input or the
    padding before it. A kernel that does not fit has no windows.

    Args:
        call: the use of the operator.
        spatial: the input's sizes along its spatial axes.
        kernel: the sizes of a window, one for each of them.
        ceil_mode: round the number of windows up.
        same_may_crop: where a stride steps over more cells than a window has, SAME padding by ONNX's formula for
            pooling is negative, halves rounded towards zero, and windows begin within the input (onnxruntime agrees).
            For Conv there is no such formula, and padding is never negative.

    Raises:
        ShapeError: an attribute has the wrong length, or the kernel is far larger than the input.
        OperatorError: an attribute has a value that ONNX forbids.
    """
    rank = len(spatial)
    strides = _per_axis(call, "strides", rank, least=1, default=1)
    dilations = _per_axis(call, "dilations", rank, least=1, default=1)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if max(extents, default=0) > MOST_BYTES:
        raise ShapeError(
            f"{call.op_type}: a kernel of {list(kernel)} with dilations {list(dilations)} is larger than any input."
        )
    auto_pad = call.attributes.get("auto_pad", "NOTSET") or "NOTSET"
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output = [-(-size // stride) for size, stride in zip(spatial, strides, strict=True)]
        totals = [
            (count - 1) * stride + extent - size
            for count, stride, extent, size in zip(output, strides, extents, spatial, strict=True)
        ]
        if not same_may_crop:
            totals = [max(0, total) for total in totals]
        begin = [int((total + (auto_pad == "SAME_LOWER")) / 2) for total in totals]
        end = [total - before for total, before in zip(totals, begin, strict=True)]
        return Windows(tuple(kernel), strides, dilations, tuple(begin), tuple(end), tuple(output))
    if auto_pad == "NOTSET":
        pads = _per_axis(call, "pads", 2 * rank, least=0, default=0)
    elif auto_pad == "VALID":
        pads = (0,) * (2 * rank)
    else:
        raise OperatorError(
            f"{call.op_type}: auto_pad is {auto_pad!r}, it must be NOTSET, SAME_UPPER, SAME_LOWER or VALID."
        )
    counts = []
    for axis in range(rank):
        size, before, after = spatial[axis], pads[axis], pads[axis + rank]
        room = size + before + after - extents[axis]
        count = (-(-room // strides[axis]) if ceil_mode else room // strides[axis]) + 1
        if ceil_mode and (count - 1) * strides[axis] >= size + before:
            count -= 1
        if count < 0:
            raise ShapeError(
                f"{call.op_type}: a kernel of {list(kernel)} with dilations {list(dilations)} does not fit into an "
                f"input of {list(spatial)} with pads {list(pads)}."
            )
        counts.append(count)
    check_size(call.op_type, counts)
    return Windows(tuple(kernel), strides, dilations, pads[:rank], pads[rank:], tuple(counts))


def _per_axis(call: Call, name: str, length: int, *, least: int, default: int) -> tuple[int, ...]:
    """An attribute that holds one integer an axis; absent or empty, the default for each."""
    values = tuple(int(value) for value in call.attributes.get(name) or (default,) * length)
    if len(values) != length:
        raise ShapeError(f"{call.op_type}: {name} is {list(values)}, but the input's rank asks for {length} numbers.")
    if any(value < least for value in values):
        raise OperatorError(f"{call.op_type}: {name} is {list(values)}, every number must be at least {least}.")
    return values


def copy_cells(destination: Array, source: Array, starts: Sequence[int], steps: Sequence[int]) -> None:
    """Fill `destination[..., i, j, ...]` with `source[..., starts[0] + i * steps[0], starts[1] + j * steps[1], ...]`.

    Both arrays have the same leading axes; the last `len(starts)` axes are the spatial ones. Cells outside the source
    are zero: this is the only place where padding comes into being. Element types may differ, the copy converts.
    """
    rank = len(starts)
    inside: list[slice] = []
    wanted: list[slice] = []
    for axis, (start, step) in enumerate(zip(starts, steps, strict=True)):
        count, size = destination.shape[axis - rank], source.shape[axis - rank]
        first, last = places_inside(count, size, start, step)
        if first > 0:
            spatial_view(destination, [*inside, slice(0, first)], rank)[...] = 0
        if last < count:
            spatial_view(destination, [*inside, slice(last, count)], rank)[...] = 0
        inside.append(slice(first, last))
        wanted.append(slice(start + first * step, start + last * step, step) if first < last else slice(0, 0))
    spatial_view(destination, inside, rank)[...] = spatial_view(source, wanted, rank)


def places_inside(count: int, size: int, start: int, step: int) -> tuple[int, int]:
    """The range of `i` below `count` for which `start + i * step` is an index of an axis of that size."""
    first = min(count, max(0, -(start // step)))
    return first, max(first, min(count, -((start - size) // step)))


def spatial_view(array: Array, region: Sequence[slice], rank: int) -> Array:
    """A region of the last `rank` axes, from their first on; leading axes and those behind the region stay whole."""
    return array[(*[slice(None)] * (array.ndim - rank), *region)]
