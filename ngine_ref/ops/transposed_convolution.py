"""ConvTranspose: every input cell spreads a scaled filter over the output. (onnx's own fails for most groups.)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.dtypes import wide
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.numerics.sliding_windows import places_inside, spatial_view
from ngine_ref.registry import Call, Kernel, TensorSpec, Workspace, operator


@operator("ConvTranspose")
def bind_conv_transpose(call: Call) -> Kernel:
    """ConvTranspose-1, -11, -22: the transpose of a convolution, plus a bias per output channel.

    Inputs X `[N, C, *spatial]` with one spatial axis or more, W `[C, M / group, *kernel]`, optional B `[M]`, all of one
    dtype: float16, bfloat16 (both summed up in float32), float32 or float64. Output Y `[N, M, *output]`. Attributes
    `auto_pad`, `dilations`, `group`, `kernel_shape`, `output_padding`, `output_shape`, `pads`, `strides`.

    Raises:
        ShapeError: channels, kernel, bias or attributes do not fit each other.
    """
    check_signature(call)
    x, w, bias = operand(call, 0), operand(call, 1), call.spec(2)
    group = int_attribute(call, "group", 1)
    if len(x.shape) < 3 or len(w.shape) != len(x.shape):
        raise ShapeError(
            f"ConvTranspose needs X [N, C, spatial...] and W [C, M / group, kernel...], got {x.shape} and {w.shape}."
        )
    if group < 1 or x.shape[1] != w.shape[0] or w.shape[0] % group:
        raise ShapeError(f"ConvTranspose: X of shape {x.shape} and W of {w.shape} do not fit in {group} groups.")
    made = w.shape[1] * group
    if bias is not None and bias.shape != (made,):
        raise ShapeError(f"ConvTranspose: the bias has shape {bias.shape}, but there are {made} output channels.")
    if tuple(call.attributes.get("kernel_shape") or w.shape[2:]) != w.shape[2:]:
        raise ShapeError(f"ConvTranspose: kernel_shape does not fit weights of shape {w.shape}.")
    spread = _spread(call, x.shape[2:], w.shape[2:])
    output = TensorSpec((x.shape[0], made, *spread.output), x.dtype)
    working = wide(x.dtype)

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        data = present(inputs, 0).astype(working, copy=False).reshape(x.shape[0], group, -1, math.prod(x.shape[2:]))
        filters = present(inputs, 1).astype(working, copy=False).reshape(group, -1, *w.shape[1:])
        total = np.zeros((x.shape[0], group, w.shape[1], *spread.output), working)
        for tap in product(*map(range, w.shape[2:])):
            source, target = spread.places(tap, x.shape[2:])
            one = filters.reshape(*filters.shape[:3], -1)[..., np.ravel_multi_index(tap, w.shape[2:])]
            scaled = np.matmul(one.transpose(0, 2, 1), data).reshape(*total.shape[:3], *x.shape[2:])
            spatial_view(total, target, len(target))[...] += spatial_view(scaled, source, len(source))
        result = total.reshape(output.shape)
        if bias is not None:
            result += present(inputs, 2).astype(working, copy=False).reshape(-1, *(1 for _ in spread.output))
        np.copyto(outputs[0], result, casting="unsafe")

    return Kernel((output,), compute, strided=True)


@dataclass(frozen=True, slots=True)
class _Spread:
    """Where the cells of an input go, axis by axis."""

    output: tuple[int, ...]
    begin: tuple[int, ...]
    """The padding before the output, which cuts so many cells off."""
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    def places(self, tap: Sequence[int], sizes: Sequence[int]) -> tuple[list[slice], list[slice]]:
        """The input cells whose product with a filter's tap lies in the output, and where it lies there."""
        sources, targets = [], []
        for axis, size in enumerate(sizes):
            start, stride = tap[axis] * self.dilations[axis] - self.begin[axis], self.strides[axis]
            first, last = places_inside(size, self.output[axis], start, stride)
            sources.append(slice(first, last))
            low = start + first * stride
            targets.append(slice(low, low + (last - first - 1) * stride + 1, stride) if first < last else slice(0, 0))
        return sources, targets


def _spread(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> _Spread:
    rank = len(sizes)
    strides, dilations = (tuple(call.attributes.get(name) or [1] * rank) for name in ("strides", "dilations"))
    more = tuple(call.attributes.get("output_padding") or [0] * rank)
    pads = list(call.attributes.get("pads") or [0] * 2 * rank)
    wanted = list(call.attributes.get("output_shape") or [])[-rank:]  # some list batch and channels too
    auto_pad = call.attributes.get("auto_pad") or "NOTSET"
    if auto_pad not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        raise OperatorError(f"ConvTranspose has no auto_pad {auto_pad!r}.")
    if not len(strides) == len(dilations) == len(more) == rank or len(pads) != 2 * rank or len(wanted) not in (0, rank):
        raise ShapeError(f"ConvTranspose: an attribute does not fit the {rank} spatial axes of the input.")
    full = [
        s * (n - 1) + o + (k - 1) * d + 1 for n, k, s, d, o in zip(sizes, kernel, strides, dilations, more, strict=True)
    ]
    if auto_pad.startswith("SAME") and not wanted:
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if wanted:
        surplus = [have - want for have, want in zip(full, wanted, strict=True)]
        begin = tuple(cut // 2 if auto_pad == "SAME_UPPER" else cut - cut // 2 for cut in surplus)
        return _Spread(tuple(wanted), begin, strides, dilations)
    if auto_pad == "VALID":
        pads = [0] * 2 * rank
    output = tuple(have - pads[axis] - pads[axis + rank] for axis, have in enumerate(full))
    if min(output) < 0:
        raise ShapeError(f"ConvTranspose: pads {pads} cut off more than the output of {full} has.")
    return _Spread(output, tuple(pads[:rank]), strides, dilations)
