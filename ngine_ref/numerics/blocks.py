"""Large arrays in blocks that stay in the cache while several ufuncs go over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ngine_ref.numerics.dtypes import is_narrow_float
from ngine_ref.registry import Array

BLOCK = 16_384
"""Elements in a block: 64 KiB of float32, so that a block and its temporaries stay in a core's own cache."""


def blocks(out: Array, *operands: Array) -> Iterator[tuple[Array, ...]]:
    """Matching views of `out` and of operands that broadcast to it, of about `BLOCK` elements each.

    Together they cover `out` once. Contiguous arrays are cut as one long row, others along their leading axes.
    """
    if out.size <= BLOCK:
        yield (out, *operands)
        return
    whole = [operand.reshape(()) if operand.size == 1 else np.broadcast_to(operand, out.shape) for operand in operands]
    if out.flags.c_contiguous and all(array.flags.c_contiguous for array in whole):
        rows = [array.reshape(-1) if array.ndim else array for array in whole]
        yield from _cut(out.reshape(-1), rows, BLOCK)
    else:
        yield from _split(out, whole)


@np.errstate(all="ignore")
def apply_in_blocks(function: Callable[[Array], Array], x: Array, out: Array) -> None:
    """Fill `out` with `function(x)`, an elementwise function of floating-point numbers; `out` may be `x` itself.

    Floats of fewer than 32 bits are widened to float32 for the function and rounded once, at its end.
    """
    narrow = is_narrow_float(x.dtype)
    for target, block in blocks(out, x):
        target[...] = function(block.astype(np.float32) if narrow else block)


def _split(out: Array, operands: list[Array]) -> Iterator[tuple[Array, ...]]:
    rows = BLOCK * len(out) // out.size
    if rows:
        yield from _cut(out, operands, rows)
        return
    for index in range(len(out)):
        yield from _split(out[index], [array[index] if array.ndim else array for array in operands])


def _cut(out: Array, operands: list[Array], step: int) -> Iterator[tuple[Array, ...]]:
    for first in range(0, len(out), step):
        part = slice(first, first + step)
        yield (out[part], *(array[part] if array.ndim else array for array in operands))
