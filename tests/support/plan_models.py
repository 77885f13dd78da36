"""Random small models that are hard on a plan's memory: values that share, die, live on, are sliced and reshaped."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

Shape = tuple[int, ...]


@dataclass
class PlanModel:
    """Nodes over one input `x` of shape [batch, 2, 4]; numbers stay small integers or halves, so sums are exact."""

    batch: int
    nodes: list[NodeProto] = field(default_factory=list)
    plain: list[NodeProto] = field(default_factory=list)
    """The same without fused operators."""
    shapes: dict[str, Shape] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def add(self, op_type: str, inputs: list[str], shape: Shape, **attributes: object) -> str:
        """A standard node; returns its output."""
        output = f"v{len(self.shapes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        self.plain.append(self.nodes[-1])
        self.shapes[output] = shape
        return output

    def add_fused_tail(self, prefix: list[str], source: str) -> None:
        """A `ConcatFusedTail` of a 1x1 convolution; in the plain model, its parts."""
        output = f"v{len(self.shapes)}"
        attributes = {"axis": 1, "prefix_count": len(prefix), "producer_op": "Conv"}
        self.nodes.append(
            helper.make_node("ConcatFusedTail", [*prefix, source, "w"], [output], domain="ai.ngine", **attributes)
        )
        self.plain.append(helper.make_node("Conv", [source, "w"], [f"{output}/tail"]))
        self.plain.append(helper.make_node("Concat", [*prefix, f"{output}/tail"], [output], axis=1))
        self.shapes[output] = (self.batch, sum(self.shapes[name][1] for name in prefix) + 2, 4)

    def model(self, *, plain: bool = False) -> onnx.ModelProto:
        """The model, with its fused operators or without."""
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in self.outputs]
        graph = helper.make_graph(
            self.plain if plain else self.nodes,
            "plan",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shapes["x"])],
            values,
            [
                helper.make_tensor("rows", TensorProto.INT64, [3], [self.batch, -1, 4]),
                helper.make_tensor("flat", TensorProto.INT64, [2], [self.batch, -1]),
                helper.make_tensor("half", TensorProto.FLOAT, [1], [0.5]),
                helper.make_tensor("w", TensorProto.FLOAT, [2, 2, 1], [1, 2, 0, -1]),
                helper.make_tensor("narrow", TensorProto.FLOAT, [1, 2, 1], [1, 1]),
            ],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.ngine", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def random_plan_model(seed: int) -> PlanModel:
    """A model of up to twenty nodes."""
    rng = np.random.default_rng(seed)
    made = PlanModel(int(rng.integers(1, 4)))
    made.shapes["x"] = (made.batch, 2, 4)
    for _ in range(int(rng.integers(3, 20))):
        _add_random_node(made, rng)
    names = [name for name in made.shapes if name != "x"]
    if not names:
        names = [made.add("Relu", ["x"], made.shapes["x"])]
    made.outputs = [str(name) for name in rng.choice(names, min(len(names), int(rng.integers(1, 4))), replace=False)]
    return made


def _add_random_node(made: PlanModel, rng: np.random.Generator) -> None:
    names = list(made.shapes)
    source = names[-min(len(names), int(rng.geometric(0.35)))]
    shape = made.shapes[source]
    alike = [name for name in names if made.shapes[name] == shape]
    other = str(rng.choice([*alike, "half"]))
    channels = int(np.prod(shape[1:])) // 4
    beside = [name for name in names if len(made.shapes[name]) == len(shape)]
    parts = [source, *map(str, rng.choice(beside, int(rng.integers(1, 3))))]
    joint = sum(made.shapes[name][1] for name in parts)
    match rng.integers(11):
        case 0:
            made.add(str(rng.choice(["Relu", "Neg", "Identity", "Sign"])), [source], shape)
        case 1 | 2:
            operands = [source, other] if rng.random() < 0.5 else [other, source]
            made.add(str(rng.choice(["Add", "Sub"])), operands, shape)
        case 3 | 4 if joint <= 64:
            made.add("Concat", parts, (made.batch, joint, *shape[2:]), axis=1)
        case 5:
            made.add("Reshape", [source, "rows"], (made.batch, channels, 4))
        case 6:
            made.add("Reshape", [source, "flat"], (made.batch, channels * 4))
        case 7 if shape == (made.batch, 2, 4):
            made.add("Conv", [source, "w"], shape)
        case 9 if len(shape) == 3 and shape[1] == 2:
            made.add("Conv", [source, "narrow"], (made.batch, 1, 4))
        case 10:
            narrow = [name for name in names if made.shapes[name] == (made.batch, 1, 4)]
            if len(shape) == 3 and narrow:
                made.add("Sub", [source, str(rng.choice(narrow))], shape)
        case 8 if len(shape) == 3 and joint <= 64:
            convolved = [name for name in names if made.shapes[name] == (made.batch, 2, 4)]
            made.add_fused_tail(parts[: int(rng.integers(1, 3))], str(rng.choice(convolved)))
