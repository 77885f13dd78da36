"""Kernels of operators that only give their input another shape."""

from __future__ import annotations

import numpy as np

from ngine_ref.numerics.signature import Inputs, Outputs, present
from ngine_ref.registry import Array, Kernel, TensorSpec, Workspace


def view_kernel(x: TensorSpec, shape: tuple[int, ...]) -> Kernel:
    """Output 0 is input 0 as it stands, read in row-major order as `shape`."""

    def view(array: Array) -> Array:
        return array.reshape(shape)

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        np.copyto(outputs[0], view(present(inputs, 0)))

    return Kernel((TensorSpec(shape, x.dtype),), compute, view=view, strided=True)
