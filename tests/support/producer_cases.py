"""Random convolutions with an activation behind them, as fused operators and as their parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from onnx import helper

from ngine_ref.registry import Array, get
from support.convolution_strategies import ConvolutionCase, convolutions
from support.strategies import arrays

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)

producers = st.sampled_from(["Conv", "ConvLeakyRelu", "ConvPRelu"])
alphas = st.sampled_from([0.2, 0.01, 1.0, 0.0, -0.5, 3.0])


@dataclass
class ProducerCase:
    """A producer with its inputs and attributes, and the standard operator that follows its convolution."""

    op_type: str
    convolution: ConvolutionCase
    attributes: dict[str, Any] = field(default_factory=dict)
    slope: list[Array] = field(default_factory=list)

    @property
    def inputs(self) -> list[Array | None]:
        given_inputs = self.convolution.inputs
        return [*given_inputs, *[None] * (3 - len(given_inputs)), *self.slope] if self.slope else given_inputs

    @property
    def all_attributes(self) -> dict[str, Any]:
        return self.convolution.attributes | self.attributes

    @property
    def rounding(self) -> float:
        """What the activation makes of the convolution's rounding."""
        factors = [1.0, *np.abs(list(self.attributes.values())), *(np.abs(slope).max() for slope in self.slope)]
        return float(self.convolution.rounding * max(factors))

    def composition(self) -> Array:
        """The producer's parts, one kernel after the other."""
        (y,) = get("Conv")(self.convolution.inputs, self.convolution.attributes)
        if self.op_type == "ConvLeakyRelu":
            (y,) = get("LeakyRelu")([y], self.attributes)
        elif self.op_type == "ConvPRelu":
            (y,) = get("PRelu")([y, *self.slope])
        return y

    def nodes(self) -> list[Any]:
        """The parts as ONNX nodes from x0, x1, ... to y."""
        names = [f"x{slot}" for slot in range(len(self.convolution.inputs))]
        nodes = [helper.make_node("Conv", names, ["c"], **self.convolution.attributes)]
        if self.op_type == "ConvPRelu":
            nodes.append(helper.make_node("PRelu", ["c", "slope"], ["y"]))
        else:
            following = "LeakyRelu" if self.op_type == "ConvLeakyRelu" else "Identity"
            nodes.append(helper.make_node(following, ["c"], ["y"], **self.attributes))
        return nodes

    def feeds(self) -> dict[str, Array]:
        named = {f"x{slot}": array for slot, array in enumerate(self.convolution.inputs) if array is not None}
        return named | dict(zip(["slope"], self.slope, strict=False))


@st.composite
def producer_cases(draw: st.DrawFn, dtype: Any = np.float32, op_type: str | None = None) -> ProducerCase:
    case = draw(convolutions(dtype=dtype))
    kind = op_type or draw(producers)
    if kind == "ConvLeakyRelu":
        return ProducerCase(kind, case, {"alpha": draw(alphas)})
    if kind == "ConvPRelu":
        ones = [1] * (case.inputs[0].ndim - 2)
        filters = case.inputs[1].shape[0]
        shape = draw(st.sampled_from([[], [1], [filters, *ones], [1, filters, *ones]]))
        slope = draw(arrays(tuple(shape), np.float32, special=False)).astype(dtype)
        return ProducerCase(kind, case, slope=[slope])
    return ProducerCase(kind, case)


def onnxruntime_can(case: ConvolutionCase) -> bool:
    """It refuses SAME padding with dilations."""
    dilated = any(number > 1 for number in case.attributes.get("dilations", []))
    return not (dilated and case.attributes.get("auto_pad", "NOTSET").startswith("SAME"))
