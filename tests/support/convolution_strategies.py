"""Random convolutions for hypothesis: every rank, groups, strides, dilations, all ways of padding, zero sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ngine_ref.registry import Array


@dataclass(frozen=True)
class ConvolutionCase:
    """The inputs and attributes of one Conv; shown by hypothesis when a test fails."""

    inputs: list[Array | None]
    attributes: dict[str, Any]

    @property
    def rounding(self) -> float:
        """How far two ways to add up float32 products of numbers near 1 may end apart: 2**-24 times their count in the
        root mean square, as partial sums grow with its root; three times that, and a floor for short sums."""
        return 2e-7 * math.prod(self.inputs[1].shape[1:]) + 2e-6

    def __repr__(self) -> str:
        shapes = ", ".join("absent" if array is None else f"{array.dtype}{array.shape}" for array in self.inputs)
        return f"Conv({shapes}, {self.attributes})"


@st.composite
def convolutions(
    draw: st.DrawFn,
    *,
    ranks: tuple[int, ...] = (1, 2, 2, 3),
    dtype: type[np.generic] = np.float32,
    least_batch: int = 0,
) -> ConvolutionCase:
    """A Conv whose kernel fits; sizes reach both layouts of columns and more than one block."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rank = draw(st.sampled_from(ranks))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    group = draw(st.sampled_from([1, 1, 1, 2, 3]))
    channels, filters = (
        group * draw(st.sampled_from([1, 2, 3, 12, 24])),
        group * draw(st.sampled_from([1, 2, 3, 8, 40])),
    )
    kernel = each(1, 4)
    attributes: dict[str, Any] = {"group": group} if group > 1 or draw(st.booleans()) else {}
    if draw(st.booleans()):
        attributes["strides"] = each(1, 3)
    if draw(st.integers(0, 3)) == 0:
        attributes["dilations"] = each(1, 3)
    if draw(st.booleans()):
        attributes["kernel_shape"] = kernel
    auto_pad = draw(st.sampled_from(["absent", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    pads = [0] * (2 * rank)
    if auto_pad != "absent":
        attributes["auto_pad"] = auto_pad
    if auto_pad in ("absent", "NOTSET") and draw(st.booleans()):
        pads = attributes["pads"] = each(0, 3) + each(0, 3)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, attributes.get("dilations", [1] * rank), strict=True)]
    least = [max(1, e - before - after) for e, before, after in zip(extents, pads[:rank], pads[rank:], strict=True)]
    most = 40 if rank <= 2 else 7
    spatial = [draw(st.integers(size, max(size, most))) for size in least]
    x = rng.standard_normal((draw(st.integers(least_batch, 3)), channels, *spatial)).astype(dtype)
    w = rng.standard_normal((filters, channels // group, *kernel)).astype(dtype)
    bias = [rng.standard_normal(filters).astype(dtype)] if draw(st.booleans()) else []
    return ConvolutionCase([x, w, *bias], attributes)
