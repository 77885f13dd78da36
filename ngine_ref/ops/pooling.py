"""AveragePool: means over sliding windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from ngine_ref.dtypes import wide
from ngine_ref.errors import ShapeError
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, operator
from ngine_ref.scratch import Request, bytes_needed, carve
from ngine_ref.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.sliding_windows import Windows, place_windows, places_inside

BLOCK = 1 << 17
"""Elements of input that are pooled at a time, so that the sums in between stay in the cache."""


@operator("AveragePool")
def bind_average_pool(call: Call) -> Kernel:
    """AveragePool-1, -7, -10, -11, -19, -22: the mean of each window of each channel.

    Input X `[N, C, *spatial]` with one spatial axis or more, of float16, bfloat16 (both summed up in float32), float32
    or float64; output Y `[N, C, *windows]`. Attributes `kernel_shape`, `strides`, `pads`, `auto_pad`, `ceil_mode`,
    `dilations`. A mean is over the cells of X, with `count_include_pad` also over the zeros of the padding, and never
    over what lies beyond the padding, where `ceil_mode` lets a window reach; over nothing it is 0.

    Raises:
        ShapeError: the kernel or an attribute does not fit the input's rank or size.
    """
    check_signature(call)
    x = operand(call, 0)
    kernel = tuple(call.attributes["kernel_shape"])
    if len(x.shape) < 3 or len(kernel) != len(x.shape) - 2 or min(kernel) < 1:
        raise ShapeError(f"AveragePool cannot move a kernel of shape {list(kernel)} over an input of shape {x.shape}.")
    ceil_mode = bool(int_attribute(call, "ceil_mode", 0))
    windows = place_windows(call, x.shape[2:], kernel, ceil_mode=ceil_mode, same_may_crop=True)
    output = TensorSpec((*x.shape[:2], *windows.output), x.dtype)
    counts = _counts(x.shape[2:], windows, include_padding=bool(int_attribute(call, "count_include_pad", 0)))
    divisor = np.maximum(counts, 1).astype(wide(x.dtype))  # a window that sees no cell has the mean 0
    channels = max(1, min(x.shape[1], BLOCK // max(1, math.prod(x.shape[2:]))))

    def requests(channels: int) -> list[Request]:
        # One axis after the other shrinks from the input's size to the number of windows.
        shapes = [(*windows.output[: axis + 1], *x.shape[3 + axis :]) for axis in range(len(kernel))]
        return [((channels, *shape), wide(x.dtype)) for shape in shapes]

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        images = present(inputs, 0)
        for n in range(x.shape[0]):
            for start in range(0, x.shape[1], channels):
                sums = images[n, start : start + channels]
                for axis, target in enumerate(carve(workspace.scratch, *requests(len(sums)))):
                    _add_up(sums, target, axis, windows)
                    sums = target
                np.divide(sums, divisor, out=outputs[0][n, start : start + channels], casting="unsafe")

    return Kernel((output,), compute, scratch_bytes=bytes_needed(*requests(channels)), strided=True)


def _add_up(source: Array, target: Array, axis: int, windows: Windows) -> None:
    """Sums over the windows along one spatial axis; axis 0 of the arrays are the channels."""
    source, target = np.moveaxis(source, axis + 1, 0), np.moveaxis(target, axis + 1, 0)
    target[...] = 0
    stride = windows.strides[axis]
    for tap in range(windows.kernel[axis]):
        start = tap * windows.dilations[axis] - windows.pads_begin[axis]
        first, last = places_inside(len(target), len(source), start, stride)
        if first < last:
            target[first:last] += source[start + first * stride : start + last * stride : stride]


def _counts(spatial: Sequence[int], windows: Windows, *, include_padding: bool) -> Array:
    """How many cells the mean of each window is over, `[*windows]`."""
    per_axis = []
    for axis, size in enumerate(spatial):
        low = -windows.pads_begin[axis] if include_padding else 0
        high = size + windows.pads_end[axis] if include_padding else size
        starts = np.arange(windows.output[axis]) * windows.strides[axis] - windows.pads_begin[axis]
        cells = starts[:, None] + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        per_axis.append(((cells >= low) & (cells < high)).sum(1))
    return reduce(np.multiply.outer, per_axis)
