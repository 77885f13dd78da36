"""Conv written down from the specification: padded input, every window of it, one sum a window, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ngine_ref.registry import Array


def padding(size: int, kernel: int, stride: int, dilation: int, auto_pad: str) -> tuple[int, int]:
    """The cells before and after an axis that SAME padding adds."""
    if auto_pad == "VALID":
        return 0, 0
    total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return (total // 2, total - total // 2) if auto_pad == "SAME_UPPER" else (total - total // 2, total // 2)


def convolution(x: Array, w: Array, bias: Array | None, attributes: dict[str, Any]) -> Array:
    """Conv of float64 numbers."""
    rank = x.ndim - 2
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * (2 * rank))
    group = attributes.get("group", 1)
    around = list(zip(pads[:rank], pads[rank:], strict=True))
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        sizes = zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
        around = [padding(*numbers, attributes["auto_pad"]) for numbers in sizes]
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *around])
    extents = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    windows = sliding_window_view(padded, extents, tuple(range(2, 2 + rank)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
    windows = windows[(..., *(slice(None, None, d) for d in dilations))]
    parts = []
    for images, filters in zip(np.split(windows, group, 1), np.split(w.astype(np.float64), group, 0), strict=True):
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        parts.append(np.moveaxis(np.tensordot(images, filters, (axes, range(1, 2 + rank))), -1, 1))
    result = np.concatenate(parts, 1)
    return result if bias is None else result + bias.astype(np.float64).reshape(-1, *[1] * rank)
