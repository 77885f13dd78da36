"""Nearest x2 enlargement and the 3x3 convolution after it, without the enlarged picture.

In the enlarged picture each pixel is there twice, so three taps see only two different pixels. Along one axis, with
d[s] = x[s] - x[s-1] and S = w0 + w1 + w2, the two outputs of pixel s are

    output 2s      w0 x[s-1] + w1 x[s] + w2 x[s]     =  S x[s] - w0 d[s]
    output 2s + 1  w0 x[s]   + w1 x[s] + w2 x[s+1]   =  S x[s] + w2 d[s+1]

so three products a pixel (S, -w0, w2) serve two outputs, and 3 x 3 = 9 products a pixel serve the four outputs of two
axes, where the enlarged picture needs 36:

    G0 = SS x        Gh = [S -w0; S w2] dh        Gv = [-w0 S; w2 S] dv        Gd = [four corners] dhv

    y[row parity a, column parity c] = G0 + Gh[c] shifted by c + Gv[a] shifted by a rows + Gd[a, c] shifted by both

Rows are padded by one pixel at either end and lie one after another, so every shift is a slice of one long row. The
picture's zero padding is that of the enlarged picture too: there x[-1] = 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ngine_ref.fast.winograd import Float32


class EnlargedConvolution:
    """The weights of a 3x3 convolution after a nearest x2 enlargement, ready for GEMM."""

    def __init__(self, weight: Float32, bias: Float32 | None) -> None:
        self.channels = int(weight.shape[0])
        taps = weight.astype(np.float64)
        rows = np.stack([taps.sum(2), -taps[:, :, 0], taps[:, :, 2]])
        # nine[v][h]: [N, C] for v, h in (S, -w0, w2)
        nine = [[np.float32(part) for part in (row.sum(2), -row[:, :, 0], row[:, :, 2])] for row in rows]
        self._plain = nine[0][0]
        self._across = np.concatenate([nine[0][1], nine[0][2]])
        self._down = np.concatenate([nine[1][0], nine[2][0]])
        self._corners = np.concatenate([nine[1][1], nine[1][2], nine[2][1], nine[2][2]])
        self._bias = np.zeros((self.channels, 1), np.float32) if bias is None else bias[:, None].astype(np.float32)

    def rows(self, padded: Float32) -> Iterator[tuple[int, int, Float32]]:
        """The outputs of some rows of a picture.

        Args:
            padded: [C, rows + 2, width + 2], contiguous: the rows, with the one above, the one below (zero outside
                the picture) and a zero at either end.

        Yields:
            row parity, column parity, and the outputs [N, rows, width] at those parities, which may be overwritten.
        """
        channels, padded_rows, pitch = padded.shape
        rows, count = padded_rows - 2, self.channels
        x = padded.reshape(channels, padded_rows * pitch)
        length = rows * pitch
        centre = x[:, pitch : pitch + length]
        down = x[:, pitch:] - x[:, :-pitch]
        plain = self._plain @ centre
        plain += self._bias
        across = self._across @ _to_the_left(centre)
        below = self._down @ down
        corners = self._corners @ _to_the_left(down)
        for a in (0, 1):
            base = plain + below[count * a : count * (a + 1), a * pitch : a * pitch + length]
            for c in (0, 1):
                outputs = np.empty((count, length), np.float32)
                corner = (2 * a + c) * count
                first = a * pitch + c
                np.add(
                    base[:, : length - 1],
                    across[c * count : (c + 1) * count, c : c + length - 1],
                    outputs[:, : length - 1],
                )
                outputs[:, : length - 1] += corners[corner : corner + count, first : first + length - 1]
                yield a, c, outputs.reshape(count, rows, pitch)[:, :, 1:-1]


def _to_the_left(rows: Float32) -> Float32:
    """Each number less the one before it."""
    differences = np.empty_like(rows, order="C")
    differences[:, 0] = 0.0
    np.subtract(rows[:, 1:], rows[:, :-1], differences[:, 1:])
    return differences
