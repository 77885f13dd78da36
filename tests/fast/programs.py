"""Random region programs."""

from __future__ import annotations

import numpy as np

from ngine_ref.fast.program import Elementwise, Program, Step


class Weights:
    """Seeded weights that keep activations near one."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def filters(self, outputs: int, inputs: int, taps: int = 3) -> np.ndarray:
        values = self.random.standard_normal((outputs, inputs, taps, taps)) / (inputs * taps * taps) ** 0.5
        return values.astype(np.float32)

    def vector(self, count: int, spread: float = 0.5) -> np.ndarray:
        return (spread * self.random.standard_normal(count)).astype(np.float32)


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def dense_block(features: int, growth: int, seed: int) -> Program:
    """Two growing convolutions, a third with a residual, then a chain, a join read again, and a 1x1 convolution."""
    make = Weights(seed)
    slope = number(0.2)
    steps = (
        Step(("x",), make.filters(growth, features), make.vector(growth), "c1", _leaky("c1", slope, "x1")),
        Step(("x", "x1"), make.filters(growth, features + growth), None, "c2", _leaky("c2", slope, "x2")),
        Step(
            ("x", "x1", "x2"),
            make.filters(features, features + 2 * growth),
            make.vector(features),
            "c3",
            (Elementwise("Mul", ("c3", slope), "m"), Elementwise("Add", ("m", "x"), "y")),
        ),
        Step(
            ("y",),
            make.filters(features, features),
            make.vector(features),
            "c4",
            (Elementwise("PRelu", ("c4", make.vector(features, 2.0)), "p"), Elementwise("Sub", ("p", "x"), "z")),
        ),
        Step(("z", "y"), make.filters(growth, 2 * features), None, "c5", (Elementwise("Relu", ("c5",), "r"),)),
        Step(
            ("z", "r", "x"),
            make.filters(features, 2 * features + growth, 1),
            make.vector(features),
            "c6",
            (Elementwise("Sigmoid", ("c6",), "s"), Elementwise("Mul", ("c6", "s"), "o")),
        ),
    )
    return Program({"x": features}, steps, ("o", "z", "x2"))


def _leaky(source: str, slope: np.ndarray, result: str) -> tuple[Elementwise, ...]:
    return (Elementwise("PRelu", (source, slope), result),)
