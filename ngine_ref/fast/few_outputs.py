"""A 3x3 convolution to few channels: one GEMM and nine shifted additions.

With three outputs a GEMM over windows would copy nine times the picture to multiply little. The other way round:
multiply every pixel with all nine taps, then add up what belongs together.

    pixels [C, P] --GEMM with [9 N, C]--> products [9 N, rows, width]       y = sum over taps of product[tap]
                                           tap 0 | tap 1 | ... | tap 8          shifted by where the tap looks
"""

from __future__ import annotations

import numpy as np

from ngine_ref.fast.winograd import TAPS, TILE, Float32


class FewOutputs:
    """The weights of such a convolution, [N, C, 3, 3], ready for GEMM."""

    def __init__(self, weight: Float32, bias: Float32 | None) -> None:
        self.outputs, self.channels = int(weight.shape[0]), int(weight.shape[1])
        self.products = TAPS * TAPS * self.outputs
        """How many products a pixel has."""
        self._weight = np.ascontiguousarray(weight.transpose(2, 3, 0, 1).reshape(self.products, self.channels))
        self._bias = np.zeros(self.outputs, np.float32) if bias is None else bias.astype(np.float32)

    def multiply(self, tile_row: Float32, lanes: int) -> Float32:
        """The products [4 rows, 4 phases, 9 N, lanes] of a register [4, 4, channels and lanes]."""
        products: Float32 = np.matmul(self._weight, tile_row.reshape(TILE, TILE, self.channels, lanes))
        return products

    def add_up(self, products: Float32, rows: int) -> Float32:
        """The result [N, rows, width].

        Args:
            products: [9 N, at least rows + 2, width + 2], zero outside the picture.
            rows: how many rows; the first one's upper taps are in row 0 of `products`.
        """
        width = products.shape[2] - 2
        result = np.empty((self.outputs, rows, width), np.float32)
        result[:] = self._bias[:, None, None]
        for tap in range(TAPS * TAPS):
            down, right = divmod(tap, TAPS)
            share = products[tap * self.outputs : (tap + 1) * self.outputs]
            result += share[:, down : down + rows, right : right + width]
        return result
