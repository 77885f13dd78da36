"""Random valid models for the rewriter: made to contain pairs that must fuse, pairs that must not, and much else.

Each model grows node by node from values of a known shape. Some growths are a whole pattern whose fate is decided
before: the generator knows whether a value has a second reader, and remembers each anchor that has to be fused.
Values made for a pattern's inside are kept out of reach of all other growth, so that the knowledge stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
OPSETS = (13, 14, 16, 17, 18, 21)


@dataclass
class RandomModel:
    """A model, and what the generator knows of it."""

    model: ModelProto
    fused: dict[str, str] = field(default_factory=dict)
    """What must be fused: the output of each anchor, and the fused operator."""
    refused: dict[str, str] = field(default_factory=dict)
    """What must not be, likewise."""


@dataclass
class _Scope:
    """A graph that is growing."""

    parent: _Scope | None
    nodes: list[NodeProto] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    """Float values that anything may read."""
    outputs: list[str] = field(default_factory=list)

    def visible(self) -> dict[str, Shape]:
        """Values of this scope and of those around it."""
        return {**(self.parent.visible() if self.parent else {}), **self.shapes}


class _Grower:
    """Draws one model."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        self.initializers: list[TensorProto] = []
        self.known: dict[str, str] = {}
        self.unfit: dict[str, str] = {}
        self.names = 0
        self.style = draw(st.sampled_from(["plain", "like generated", "odd"]))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def pick(self, values: Sequence[str]) -> str:
        return self.draw(st.sampled_from(list(values)))

    def name(self) -> str:
        """A fresh value name; some look like what the rewriter itself makes up."""
        self.names += 1
        if self.style == "like generated":
            return f"{self.pick(['tail', 'tail_c', 'prefix_0', 'prefix', 'y', 'bias', 'm'])}_{self.names}"
        if self.style == "odd":
            return f"{self.pick(['/a b', 'ö', 'x:', '', '%'])}{self.names}"
        return f"v{self.names}"

    def weight(self, shape: Shape) -> str:
        name = self.name()
        values = (self.rng.integers(-8, 9, shape) / 8).astype(np.float32)
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, scope: _Scope, values: np.ndarray) -> str:
        """A constant as an initializer, or as a Constant node in one of its forms, perhaps behind an Identity."""
        name = self.name()
        form = self.pick(["initializer", "value", "float", "identity"])
        if form == "float" and values.ndim == 0:
            scope.nodes.append(helper.make_node("Constant", [], [name], value_float=float(values)))
        elif form == "value":
            scope.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(values)))
        else:
            self.initializers.append(numpy_helper.from_array(values, name))
        if form == "identity":
            return self.node(scope, "Identity", [name])
        return name

    def node(self, scope: _Scope, op_type: str, inputs: Sequence[str], **attributes: object) -> str:
        output = self.name()
        name = output if self.chance(30) else self.pick(["", "node", f"n{self.names}"])
        node = helper.make_node(op_type, inputs, [output], name="" if name == "node" else name, **attributes)
        if scope.parent is None and self.chance(2):  # onnxruntime does not know that spelling in bodies
            node.domain = "ai.onnx"
        scope.nodes.append(node)
        return output

    def keep(self, scope: _Scope, name: str, shape: Shape) -> str:
        scope.shapes[name] = shape
        return name

    # Growth that may be anything.

    def grow(self, scope: _Scope, depth: int) -> None:
        steps: list[Callable[[_Scope], None]] = [
            self.elementwise, self.elementwise, self.binary, self.binary, self.concat, self.convolution,
            self.conv_activation, self.conv_activation, self.mul_add, self.mul_add, self.tail, self.tail,
            self.dense_block, self.reshaping, self.two_outputs,
        ]  # fmt: skip
        if depth < 2:
            steps.append(lambda inner: self.branch(inner, depth))
        self.draw(st.sampled_from(steps))(scope)

    def image(self, scope: _Scope) -> tuple[str, Shape]:
        images = {name: shape for name, shape in scope.visible().items() if len(shape) == 4}
        name = self.pick(sorted(images))
        return name, images[name]

    def anything(self, scope: _Scope) -> tuple[str, Shape]:
        values = scope.visible()
        name = self.pick(sorted(values))
        return name, values[name]

    def elementwise(self, scope: _Scope) -> None:
        x, shape = self.anything(scope)
        op_type = self.pick(["Relu", "Sigmoid", "LeakyRelu", "Identity", "Neg", "Clip", "Dropout"])
        attributes: dict[str, object] = {"alpha": 0.25} if op_type == "LeakyRelu" and self.chance(50) else {}
        self.keep(scope, self.node(scope, op_type, [x], **attributes), shape)

    def binary(self, scope: _Scope) -> None:
        x, shape = self.anything(scope)
        same = sorted(name for name, other in scope.visible().items() if other == shape)
        y = self.pick(same) if self.chance(60) else self.scale(scope, shape)
        operands = [x, y] if self.chance(50) else [y, x]
        self.keep(scope, self.node(scope, self.pick(["Add", "Sub", "Mul"]), operands), shape)

    def scale(self, scope: _Scope, shape: Shape) -> str:
        """A constant that broadcasts to the shape: a scalar, one number a channel, or full."""
        per_channel = (1, shape[1], *[1] * (len(shape) - 2)) if len(shape) > 1 else (1,)
        dims = self.draw(st.sampled_from([(), (1,), per_channel, shape]))
        return self.constant(scope, np.asarray(self.rng.integers(-4, 5, dims) / 4, np.float32))

    def concat(self, scope: _Scope) -> None:
        _, shape = self.image(scope)
        others = sorted(n for n, s in scope.visible().items() if len(s) == 4 and (s[0], s[2:]) == (shape[0], shape[2:]))
        parts = [self.pick(others) for _ in range(self.draw(st.integers(1, 3)))]
        channels = sum(scope.visible()[name][1] for name in parts)
        axis = 1 if self.chance(70) else -3
        self.keep(scope, self.node(scope, "Concat", parts, axis=axis), (shape[0], channels, *shape[2:]))

    def conv(self, scope: _Scope, x: str, shape: Shape, channels: int) -> str:
        """A convolution that keeps the size of the image; its output is nobody's yet."""
        kernel = self.draw(st.sampled_from([1, 3]))
        inputs = [x, self.weight((channels, shape[1], kernel, kernel))]
        if self.chance(60):
            inputs.append(self.weight((channels,)))
        elif self.chance(30):
            inputs.append("")
        attributes: dict[str, object] = {}
        if kernel == 3:
            attributes = {"pads": [1, 1, 1, 1]} if self.chance(60) else {"auto_pad": "SAME_UPPER"}
        if self.chance(30):
            attributes["kernel_shape"] = [kernel, kernel]
        if self.chance(20):
            attributes.update(group=1, strides=[1, 1], dilations=[1, 1])
        return self.node(scope, "Conv", inputs, **attributes)

    def convolution(self, scope: _Scope) -> None:
        x, shape = self.image(scope)
        channels = self.draw(st.integers(1, 4))
        self.keep(scope, self.conv(scope, x, shape, channels), (shape[0], channels, *shape[2:]))

    # Patterns whose fate is known.

    def read_again(self, scope: _Scope, value: str, shape: Shape) -> bool:
        """Perhaps give a value another reader: a node, an output of the graph, or a body."""
        if self.chance(60):
            return False
        how = self.pick(["node", "body"] if scope.parent else ["node", "body", "output"])
        if how == "node":
            self.keep(scope, self.node(scope, "Neg", [value]), shape)
        elif how == "output":
            scope.outputs.append(value)
            scope.shapes[value] = shape
        else:
            then, other = _Scope(scope), _Scope(scope)
            results = [self.node(body, op, [value]) for body, op in ((then, "Neg"), (other, "Abs"))]
            self.keep(scope, self.if_node(scope, [then, other], results, shape), shape)
        return True

    def expect(self, operator: str, anchor: str, *, fused: bool) -> None:
        (self.known if fused else self.unfit)[anchor] = operator

    def activation(self, scope: _Scope, value: str, channels: int) -> tuple[str, str]:
        """LeakyRelu or PRelu with a slope that fits; the fused operator, and the output."""
        if self.chance(60):
            attributes: dict[str, object] = {"alpha": float(self.rng.integers(-4, 5) / 8)} if self.chance(70) else {}
            return "ConvLeakyRelu", self.node(scope, "LeakyRelu", [value], **attributes)
        dims = self.draw(st.sampled_from([(), (1,), (channels, 1, 1), (1, channels, 1, 1)]))
        slope = self.constant(scope, np.asarray(self.rng.integers(-4, 5, dims) / 8, np.float32))
        return "ConvPRelu", self.node(scope, "PRelu", [value, slope])

    def conv_activation(self, scope: _Scope) -> None:
        x, shape = self.image(scope)
        channels = self.draw(st.integers(1, 4))
        result = (shape[0], channels, *shape[2:])
        inner = self.conv(scope, x, shape, channels)
        shared = self.read_again(scope, inner, result)
        operator, output = self.activation(scope, inner, channels)
        self.expect(operator, output, fused=not shared)
        self.keep(scope, output, result)

    def mul_add(self, scope: _Scope) -> None:
        x, shape = self.anything(scope)
        product = (
            self.node(scope, "Mul", [x, factor] if self.chance(50) else [factor, x])
            if (factor := self.scale(scope, shape))
            else ""
        )
        shared = self.read_again(scope, product, shape)
        same = sorted(name for name, other in scope.visible().items() if other == shape and name != product)
        addend = self.pick(same) if same and self.chance(70) else self.scale(scope, shape)
        output = self.node(scope, "Add", [product, addend] if self.chance(50) else [addend, product])
        if not shared:  # where it is, the addend may be a product that can be fused instead
            self.expect("MulAdd", output, fused=True)
        self.keep(scope, output, shape)

    def tail(self, scope: _Scope) -> None:
        x, shape = self.image(scope)
        channels = self.draw(st.integers(1, 4))
        value = self.conv(scope, x, shape, channels)
        result = (shape[0], channels, *shape[2:])
        if self.chance(50):
            operator, output = self.activation(scope, value, channels)
            self.expect(operator, output, fused=True)
            value = output
        shared = self.read_again(scope, value, result)
        visible = scope.visible()
        alike = sorted(name for name, other in visible.items() if other == result and name != value)
        if alike and self.chance(15):
            axis = self.draw(st.sampled_from([2, 3, -1, -2]))
            output = self.node(scope, "Concat", [self.pick(alike), value], axis=axis)
            self.expect("ConcatFusedTail", output, fused=False)
            longer = list(result)
            longer[axis] *= 2
            self.keep(scope, output, tuple(longer))
            return
        fitting = sorted(n for n, s in visible.items() if len(s) == 4 and (s[0], s[2:]) == (shape[0], shape[2:]))
        prefix = [self.pick([n for n in fitting if n != value]) for _ in range(self.draw(st.integers(1, 3)))]
        axis = 1 if self.chance(70) else -3
        output = self.node(scope, "Concat", [*prefix, value], axis=axis)
        self.expect("ConcatFusedTail", output, fused=not shared)
        self.keep(scope, output, (shape[0], sum(visible[n][1] for n in prefix) + channels, *shape[2:]))

    def dense_block(self, scope: _Scope) -> None:
        """Concats that each begin with all features before: fused because they share their prefixes."""
        x, shape = self.image(scope)
        features, joined, channels = [x], x, shape[1]
        for _ in range(self.draw(st.integers(2, 3))):
            value = self.conv(scope, joined, (shape[0], channels, *shape[2:]), 2)
            if self.chance(50):
                operator, value = self.activation(scope, value, 2)
                self.expect(operator, value, fused=True)
            features.append(value)
            joined = self.node(scope, "Concat", features, axis=1)
            channels += 2
            self.expect("ConcatFusedTail", joined, fused=True)
        self.keep(scope, joined, (shape[0], channels, *shape[2:]))

    # What is only there.

    def reshaping(self, scope: _Scope) -> None:
        x, shape = self.anything(scope)
        name = self.name()
        self.initializers.append(numpy_helper.from_array(np.asarray([shape[0], -1], np.int64), name))
        self.keep(scope, self.node(scope, "Reshape", [x, name]), (shape[0], int(np.prod(shape[1:]))))

    def two_outputs(self, scope: _Scope) -> None:
        x, shape = self.anything(scope)
        if shape[1] % 2:
            return
        first, second, sizes = self.name(), self.name(), self.name()
        half = shape[1] // 2
        self.initializers.append(numpy_helper.from_array(np.asarray([half, half], np.int64), sizes))
        scope.nodes.append(helper.make_node("Split", [x, sizes], [first, second], axis=1))
        for name in (first, second):
            self.keep(scope, name, (shape[0], half, *shape[2:]))

    def if_node(self, scope: _Scope, bodies: Sequence[_Scope], results: Sequence[str], shape: Shape) -> str:
        graphs = [
            self.graph(body, [(name, shape)], f"body{self.names}") for body, name in zip(bodies, results, strict=True)
        ]
        return self.node(scope, "If", ["condition"], then_branch=graphs[0], else_branch=graphs[1])

    def branch(self, scope: _Scope, depth: int) -> None:
        """An If whose bodies grow like any graph and read whatever they see."""
        x, shape = self.anything(scope)
        bodies = [_Scope(scope), _Scope(scope)]
        results = []
        for body in bodies:
            for _ in range(self.draw(st.integers(0, 3))):
                self.grow(body, depth + 1)
            own = sorted(name for name, other in body.shapes.items() if other == shape)
            results.append(self.node(body, "Identity", [self.pick(own) if own else x]))
        self.keep(scope, self.if_node(scope, bodies, results, shape), shape)

    def graph(self, scope: _Scope, outputs: Sequence[tuple[str, Shape]], name: str) -> GraphProto:
        values = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape) for output, shape in outputs]
        return helper.make_graph(self.shuffled(scope.nodes), name, [], values)

    def shuffled(self, nodes: list[NodeProto]) -> list[NodeProto]:
        """Another topological order of the nodes, at random."""
        made = {name for node in nodes for name in node.output}
        waiting = [(node, _reads(node) & made) for node in nodes]
        order: list[NodeProto] = []
        done: set[str] = set()
        while waiting:
            ready = [place for place, (_, needs) in enumerate(waiting) if needs <= done]
            place = int(self.rng.choice(ready[:3]))
            node, _ = waiting.pop(place)
            order.append(node)
            done.update(node.output)
        return order


def _reads(node: NodeProto) -> set[str]:
    """What a node reads, its bodies included; too much is no harm."""
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names.update(value.name for value in attribute.g.output)
            for inner in attribute.g.node:
                names |= _reads(inner)
    return names


@st.composite
def random_models(draw: st.DrawFn) -> RandomModel:
    """A valid model of one to fourteen growths, over an image `x` and a condition."""
    grower = _Grower(draw)
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 4)), 3)
    main = _Scope(None, shapes={"x": shape})
    for _ in range(draw(st.integers(1, 14))):
        grower.grow(main, 0)
    made = [name for name in main.shapes if name != "x"]
    last = made[-1:] or [grower.keep(main, grower.node(main, "Identity", ["x"]), shape)]
    also = [name for name in made if name not in last and grower.chance(10) and name not in main.outputs]
    outputs = list(dict.fromkeys([*main.outputs, *also, *last]))
    graph = grower.graph(main, [(name, main.shapes[name]) for name in outputs], "random")
    if grower.chance(5):  # a list that is not sorted
        nodes = list(graph.node)[::-1]
        del graph.node[:]
        graph.node.extend(nodes)
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    graph.input.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
    graph.initializer.extend(grower.initializers)
    opset = draw(st.sampled_from(OPSETS))
    ir_version = draw(st.sampled_from([8, 8, 10, 3 if opset < 14 else 7]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    if ir_version < 4:
        for tensor in graph.initializer:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return RandomModel(onnx.ModelProto.FromString(model.SerializeToString()), grower.known, grower.unfit)
