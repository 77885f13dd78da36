"""Dropout: nothing in inference, seeded noise in training mode."""

from __future__ import annotations

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.numerics.dtypes import wide
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.numerics.views import view_kernel
from ngine_ref.registry import Array, Call, Kernel, TensorSpec, Workspace, operator

_BOOL = np.dtype(np.bool_)


@operator("Dropout", since=12)
def bind_dropout(call: Call) -> Kernel:
    """Dropout-12, -13, -22: the input itself, unless `training_mode` is true.

    Inputs: data of any shape and floating dtype, optional scalars `ratio` (default 0.5) and `training_mode` (default
    false). In training mode each element is kept with probability 1 - ratio and then scaled by 1 / (1 - ratio); the
    attribute `seed` makes that repeatable (NumPy's RandomState, as in ONNX's own test cases). Output 1, if asked for,
    is the bool mask of what was kept.

    Raises:
        OperatorError: the ratio is outside [0, 1).
    """
    check_signature(call)
    x, training = operand(call, 0), call.spec(2)
    if training is None or (training.value is not None and not training.value.any()):
        return _inference_kernel(call, _BOOL)
    # NumPy takes seeds of 32 bits.
    seed = int_attribute(call, "seed", -1) % 2**32 if "seed" in call.attributes else None

    @np.errstate(all="ignore")
    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        data = present(inputs, 0)
        ratio = 0.5 if inputs[1] is None else float(inputs[1].reshape(()))
        if not 0 <= ratio < 1:
            raise OperatorError(f"Dropout needs a ratio of at least 0 and below 1, got {ratio}.")
        if ratio == 0 or not present(inputs, 2).any():
            keep: Array = np.ones(data.shape, _BOOL)
            np.copyto(outputs[0], data)
        else:
            keep = np.asarray(np.random.RandomState(seed).uniform(size=data.shape) >= ratio)
            scaled = data.astype(wide(data.dtype)) * keep * wide(data.dtype).type(1 / (1 - ratio))
            np.copyto(outputs[0], scaled, casting="unsafe")
        for mask in outputs[1:]:
            np.copyto(mask, keep)

    specs = (TensorSpec(x.shape, x.dtype), TensorSpec(x.shape, _BOOL))
    return Kernel(specs[: call.output_count], compute, in_place=(0,), strided=True)


@operator("Dropout", since=10)
def bind_dropout_for_inference(call: Call) -> Kernel:
    """Dropout-10: the input itself; output 1, if asked for, is a bool mask of ones."""
    check_signature(call)
    return _inference_kernel(call, _BOOL)


@operator("Dropout", since=7)
def bind_dropout_with_typed_mask(call: Call) -> Kernel:
    """Dropout-7: the input itself; output 1, if asked for, is a mask of ones in the input's dtype."""
    check_signature(call)
    return _inference_kernel(call, operand(call, 0).dtype)


def _inference_kernel(call: Call, mask_dtype: np.dtype[np.generic]) -> Kernel:
    x = operand(call, 0)
    if call.output_count == 1:
        return view_kernel(x, x.shape)

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        np.copyto(outputs[0], present(inputs, 0))
        outputs[1].fill(1)

    specs = (TensorSpec(x.shape, x.dtype), TensorSpec(x.shape, mask_dtype))
    return Kernel(specs, compute, in_place=(0,), strided=True)
