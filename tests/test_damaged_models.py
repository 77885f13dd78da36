"""Models with absurd numbers in them: a run ends in a sentence of ours or in a result, never in another error."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, helper, numpy_helper
from support.node_cases import NodeCase, node_cases

from ngine_ref import InferenceSession, NgineError
from ngine_ref.numerics.dtypes import element_type_of
from ngine_ref.registry import Array, operators

INTEGERS = [0, 1, -1, 2, 3, 5, -2, 1 << 45, 1 << 62, (1 << 63) - 1, -(1 << 63), -(1 << 31)]
"""Small ones and absurd ones; nothing between, which would be a large but honest request."""
FLOATS = [0.0, -1.0, float("nan"), float("inf"), -float("inf"), 3e38, 1e-45, 1e18]
TEXTS = [b"", b"VALID", b"SAME_UPPER", b"linear", b"cubic", b"nearest", b"tf_crop_and_resize", b"\xff", b"else"]


@cache
def seeds() -> list[NodeCase]:
    """Small cases of every operator that has a kernel."""
    cases = [case for domain, op_type in operators() if not domain for case in node_cases(op_type)]
    return [case for case in cases if sum(array.nbytes for array in case.inputs if array is not None) < 20_000]


def model_of(case: NodeCase, rng: random.Random) -> tuple[ModelProto, dict[str, Array]]:
    """The case as a model that knows most of its inputs; and what has to be fed."""
    names = [name for name in case.node.input if name]
    rng.shuffle(names)
    values = dict(zip(case.node.input, case.inputs, strict=True))
    known = {name for name in names[1:] if rng.random() < 0.8}
    fed = {name: values[name] for name in names if name not in known}
    inputs = [helper.make_tensor_value_info(name, element_type_of(array.dtype), None) for name, array in fed.items()]
    weights = [numpy_helper.from_array(values[name], name) for name in sorted(known)]
    outputs = [onnx.ValueInfoProto(name=name) for name in case.node.output if name]
    graph = helper.make_graph([case.node], "g", inputs, outputs, weights)
    opset = helper.make_opsetid("", case.opset)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10), fed


def change_attribute(model: ModelProto, rng: random.Random) -> None:
    attributes = model.graph.node[0].attribute
    if not attributes:
        return
    one = rng.choice(attributes)
    if one.type == AttributeProto.INT:
        one.i = rng.choice(INTEGERS)
    elif one.type == AttributeProto.FLOAT:
        one.f = rng.choice(FLOATS)
    elif one.type == AttributeProto.STRING:
        one.s = rng.choice(TEXTS)
    elif one.type == AttributeProto.INTS:
        numbers = [*one.ints, rng.choice(INTEGERS)]
        if rng.random() < 0.7:
            numbers[rng.randrange(len(numbers))] = numbers.pop()
        one.ints[:] = numbers[: len(numbers) - (rng.random() < 0.2)]


def change_weight(model: ModelProto, rng: random.Random) -> None:
    weights = model.graph.initializer
    if not weights:
        return
    one = rng.choice(weights)
    array = numpy_helper.to_array(one).copy()
    if rng.random() < 0.3:
        array = array.reshape(-1) if rng.random() < 0.5 else array[..., None]
    elif array.size and array.dtype.kind in "if":
        choices = INTEGERS if array.dtype.kind == "i" else FLOATS
        with np.errstate(all="ignore"):
            array.reshape(-1)[rng.randrange(array.size)] = np.asarray(rng.choice(choices)).astype(array.dtype)
    one.CopyFrom(numpy_helper.from_array(array, one.name))


def change_signature(model: ModelProto, rng: random.Random) -> None:
    node = model.graph.node[0]
    match rng.randrange(4):
        case 0:
            model.opset_import[0].version = rng.randrange(1, onnx.defs.onnx_opset_version() + 1)
        case 1:
            node.input[rng.randrange(len(node.input))] = ""
        case 2:
            node.input.pop()
        case 3 if node.attribute:
            node.attribute.remove(rng.choice(node.attribute))


CHANGES: list[Callable[[ModelProto, random.Random], None]] = [change_attribute, change_weight, change_signature]


def check(rng: random.Random) -> bool:
    """Run a model with one to three changes, or a few bytes of it changed; whether it gives a result."""
    model, feeds = model_of(rng.choice(seeds()), rng)
    if rng.random() < 0.8:
        for _ in range(rng.choice([1, 1, 2, 3])):
            if model.graph.node[0].input:
                rng.choice(CHANGES)(model, rng)
        data = model.SerializeToString()
    else:
        content = bytearray(model.SerializeToString())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        data = bytes(content)
    try:
        session = InferenceSession(data)
        session.run(None, {one.name: feeds.get(one.name) for one in session.get_inputs()})
    except NgineError as error:
        sentence = str(error)
    else:
        return True
    assert "\n" not in sentence
    return False


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("part", range(3))
def test_absurd_numbers(part: int) -> None:
    rng = random.Random(part)
    results = [check(rng) for _ in range(300)]
    assert any(results)
    assert not all(results)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_many_absurd_numbers() -> None:
    rng = random.Random(2024)
    assert sum(check(rng) for _ in range(20_000)) > 0
