"""Winograd's F(4x4, 3x3): a 3x3 convolution with a quarter of the multiplications.

The picture is cut into tiles of 4x4 outputs; each needs a window of 6x6 inputs. Three small matrices, made from five
points and infinity (the Toom-Cook construction), turn the convolution of a window into 36 products:

    window d (6x6)  --->  V = B' d B     (36 numbers, a channel)      window            tile
    filter  g (3x3) --->  U = G g G'     (36 numbers, a channel pair)  . . . . . .
    product         --->  M = U . V      (36 GEMMs over the channels)  . o o o o .      o o o o
    tile    y (4x4) <---  y = A' M A                                   . o o o o .  ->  o o o o
                                                                       . o o o o .      o o o o
V does not depend on the filter: convolutions that read the same        . o o o o .      o o o o
channels share it. A bias is added to M at BIAS_PLANE alone, which A'   . . . . . .
and A spread over the whole tile.

A NaN or an infinity spreads over the tiles whose windows it is in, because a window is added up before it is weighted.
The points 0, 1, -1, 1/2, -2 give about half the rounding error of the usual 0, 1, -1, 2, -2 and cost the same.
Sources: Winograd 1980; Lavin and Gray, arXiv:1509.09308; Barabasz et al., arXiv:1803.10986 (choice of points).
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

TILE = 4
TAPS = 3
WINDOW = TILE + TAPS - 1
PLANES = WINDOW * WINDOW
POINTS = (0.0, 1.0, -1.0, 0.5, -2.0)
BIAS_PLANE = POINTS.index(1.0) * (WINDOW + 1)
"""All powers of the point 1 are 1: a product that lives there alone adds the same to all sixteen outputs."""


def toom_cook(points: tuple[float, ...] = POINTS, tile: int = TILE) -> tuple[Float64, Float64, Float64]:
    """The matrices A' [tile, n], G [n, taps] and B' [n, n] for n - 1 points and infinity, n = tile + taps - 1."""
    size = len(points) + 1
    taps = size - tile + 1
    output, filters, window = np.zeros((tile, size)), np.zeros((size, taps)), np.zeros((size, size))
    for row, point in enumerate(points):
        others = [other for other in points if other != point]
        output[:, row] = [point**power for power in range(tile)]
        scale = np.prod([point - other for other in others])
        filters[row] = [point**power / scale for power in range(taps)]
        window[row, : size - 1] = polynomial.polyfromroots(others)
    output[-1, -1] = filters[-1, -1] = 1.0
    window[-1] = polynomial.polyfromroots(points)
    return output, filters, window


_OUTPUT, _FILTER, _WINDOW = toom_cook()
OUTPUT_TRANSFORM: Float32 = _OUTPUT.astype(np.float32)
"""A' [4, 6]: exact in float32."""
WINDOW_TRANSFORM: Float32 = _WINDOW.astype(np.float32)
"""B' [6, 6]: exact in float32."""


FILTER_TRANSFORM: Float64 = np.kron(_FILTER, _FILTER).astype(np.float64)
"""[36, 9]: takes the nine taps of a filter to its 36 numbers."""


def transformed_filters(weight: Float32, scale: float = 1.0) -> Float32:
    """The filter bank U [36, N, C] of weights [N, C, 3, 3], times `scale`, worked out in float64."""
    outputs, channels = weight.shape[:2]
    bank = (scale * FILTER_TRANSFORM) @ weight.reshape(-1, TAPS * TAPS).T.astype(np.float64)
    return bank.astype(np.float32).reshape(PLANES, outputs, channels)
