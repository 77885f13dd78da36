"""What the fast paths are tested against: plain loops over NumPy's own arithmetic, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngine_ref.fast.program import Elementwise, Program


def convolve(images: Any, weight: Any, bias: Any) -> Any:
    """A stride-1 convolution that keeps the size, tap by tap."""
    taps = weight.shape[2]
    pad = taps // 2
    height, width = images.shape[2:]
    padded = np.pad(images.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    result = np.zeros((len(images), len(weight), height, width))
    for row in range(taps):
        for column in range(taps):
            window = padded[:, :, row : row + height, column : column + width]
            result += np.einsum("oc,nchw->nohw", weight[:, :, row, column].astype(np.float64), window)
    return result if bias is None else result + bias[:, None, None]


def arithmetic(operation: Elementwise, values: dict[str, Any]) -> Any:
    """One elementwise operator."""
    operands = []
    for operand in operation.inputs:
        value = values[operand] if isinstance(operand, str) else np.asarray(operand, np.float64)
        operands.append(value[:, None, None] if value.ndim == 1 else value)
    match operation.op_type:
        case "Add":
            return operands[0] + operands[1]
        case "Sub":
            return operands[0] - operands[1]
        case "Mul":
            return operands[0] * operands[1]
        case "LeakyRelu" | "PRelu":
            return np.where(operands[0] > 0, operands[0], operands[0] * operands[1])
        case "Relu":
            return np.maximum(operands[0], 0)
        case "Sigmoid":
            return 1 / (1 + np.exp(-operands[0]))
    raise AssertionError(operation.op_type)


def evaluate(program: Program, inputs: list[Any]) -> list[Any]:
    """The outputs of a program."""
    values = {name: images.astype(np.float64) for name, images in zip(program.inputs, inputs, strict=True)}
    for step in program.steps:
        joined = np.concatenate([values[name] for name in step.inputs], axis=1)
        values[step.output] = convolve(joined, step.weight, step.bias)
        for operation in step.after:
            values[operation.output] = arithmetic(operation, values)
    return [values[name] for name in program.outputs]


def assert_close(found: Any, expected: Any, convolutions: int = 3) -> None:
    """Within what float32 Winograd leaves after so many convolutions in a row: 5e-6 of the largest value (or of 1)
    after three, and more after more, since each adds its own.

    A wrong pixel, tap or slope is off by ten thousand times as much.
    """
    tolerance = 5e-6 * max(3, convolutions) / 3
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))
