"""How large a tensor may be.

A damaged model can ask for any number of pixels. Said here, at once, that is one sentence; without it, tables and
loops for them would take days, or NumPy would refuse in words of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ngine_ref.errors import ShapeError

MOST_BYTES = 1 << 40
"""Of one tensor, if the axes of size 0 are left out: NumPy multiplies the others even where there is no element."""
MOST_AXES = 64
"""NumPy's own limit."""


def check_size(op_type: str, shape: Sequence[int], itemsize: int = 1) -> None:
    """Make sure that there can be a tensor of that shape, with elements of so many bytes.

    Raises:
        ShapeError: it would be too large for any machine, or have too many axes.
    """
    size = itemsize * prod(extent for extent in shape if extent)
    if size > MOST_BYTES:
        raise ShapeError(f"{op_type} would make a tensor of shape {tuple(shape)}, which takes {size} bytes.")
    if len(shape) > MOST_AXES:
        raise ShapeError(f"{op_type} would make a tensor of {len(shape)} axes; {MOST_AXES} are possible.")
