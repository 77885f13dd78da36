"""Whole fusions: the figures of the known topologies, every opset, determinism, and every place a graph can be."""

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.command_line import environment
from support.text_models import LEVELS, assert_same_numbers, feeds, fused, model, nodes, random_array, run

import graphopt
from graphopt import demo_models
from graphopt.proof.certificate import certify

# The demo models: counts and node totals, as published for their topologies.

FIGURES = {
    ("realesrgan-x4plus", True): ({"ConvLeakyRelu": 279, "MulAdd": 92, "ConcatFusedTail": 276}, 1093, 446, 207),
    ("realesrgan-x4plus", False): ({"ConvLeakyRelu": 279, "MulAdd": 92, "ConcatFusedTail": 69}, 1093, 653, 0),
    ("realesr-general-x4v3", True): ({"ConvPRelu": 33}, 70, 37, 0),
    ("realesr-general-x4v3", False): ({"ConvPRelu": 33}, 70, 37, 0),
    ("span-x4", True): ({}, 74, 74, 0),
    ("span-x4", False): ({}, 74, 74, 0),
}
ALL = ("ConvLeakyRelu", "ConvPRelu", "ConcatFusedTail", "MulAdd")


@pytest.fixture(scope="module")
def full_size() -> dict[str, ModelProto]:
    return {name: demo_models.build(name) for name in demo_models.DEMO_MODELS}


@pytest.mark.parametrize(("name", "share_prefix"), FIGURES)
def test_figures_of_the_demo_models(full_size: dict[str, ModelProto], name: str, share_prefix: bool):
    counts, before, after, shared = FIGURES[name, share_prefix]
    result = graphopt.fuse(full_size[name], share_prefix=share_prefix)
    report = result.report
    assert report.counts == {**dict.fromkeys(ALL, 0), **counts}
    assert (report.nodes_before, report.nodes_after, report.shared_prefixes) == (before, after, shared)
    assert len(result.model.graph.node) == after
    assert report.certificate.ok
    assert report.certificate.outputs == 1


def test_operators_of_the_largest_demo_model_after_fusing(full_size: dict[str, ModelProto]):
    result = graphopt.fuse(full_size["realesrgan-x4plus"])
    assert Counter(node.op_type for node in result.model.graph.node) == {
        "ConcatFusedTail": 276,
        "MulAdd": 92,
        "Conv": 72,
        "ConvLeakyRelu": 3,
        "Resize": 2,
        "Add": 1,
    }
    tails = [node for node in result.model.graph.node if node.op_type == "ConcatFusedTail"]
    given = [{a.name: helper.get_attribute_value(a) for a in node.attribute} for node in tails]
    assert all(a["prefix_count"] == 1 and a["axis"] == 1 for a in given)
    assert {a["producer_op"] for a in given} == {b"ConvLeakyRelu"}
    assert result.report.refusals == []  # the Add behind conv_body reads no product: it is no candidate


def test_span_looks_like_five_products_and_is_none(full_size: dict[str, ModelProto]):
    report = graphopt.fuse(full_size["span-x4"]).report
    by_rule = Counter((refusal.rule, refusal.condition, refusal.name) for refusal in report.refusals)
    assert by_rule == {("MulAdd", 1, "sole reader"): 5, ("ConcatFusedTail", 3, "convolution tail"): 1}


SMALL = {
    "realesrgan": lambda: demo_models.rrdbnet(features=8, growth=4, blocks=2),
    "realesr-general": lambda: demo_models.srvgg(features=8, convolutions=3),
    "span": lambda: demo_models.span(features=8, blocks=2),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("batch", [1, 2])
def test_small_demo_models_compute_the_same_bits(name: str, batch: int):
    source = SMALL[name]()
    given = {"input": np.random.default_rng(1).random((batch, 3, 7, 9), np.float32)}
    for options in ({}, {"share_prefix": False}):
        assert_same_numbers(source, fused(source, **options), given)


# Every opset that both onnx and onnxruntime know.

EVERY_RULE = """
    c1 = Conv (x, w, b)
    t1 = LeakyRelu <alpha: float = 0.25> (c1)
    a = Concat <axis: int = 1> (x, t1)
    c2 = Conv (a, w8)
    t2 = PRelu (c2, slope)
    m = Mul (t2, scale)
    e = Add (m, x)
    t3 = Conv (e, w, b)
    y = Concat <axis: int = 1> (e, t2, t3)
"""


def newest_opset() -> int:
    """The newest opset of both packages; onnxruntime says which it knows by refusing a model."""
    for opset in range(onnx.defs.onnx_opset_version(), 6, -1):
        source = model("y = Relu (x)", opset=opset)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            continue
        return opset
    raise AssertionError("onnxruntime knows no opset")


@pytest.mark.parametrize("opset", range(7, newest_opset() + 1))
def test_every_opset(opset: int):
    source = model(EVERY_RULE, opset=opset)
    result = graphopt.fuse(source)
    assert result.report.counts == {"ConvLeakyRelu": 1, "ConvPRelu": 1, "MulAdd": 1, "ConcatFusedTail": 2}
    onnx.checker.check_model(result.model, full_check=True)
    assert_same_numbers(source, result.model)


# The same again: nothing to do, and the same bytes.


@pytest.mark.parametrize("functions", [True, False])
@pytest.mark.parametrize("name", [*SMALL, "every rule"])
def test_fusing_a_fused_model_changes_nothing(name: str, functions: bool):
    source = model(EVERY_RULE) if name == "every rule" else SMALL[name]()
    once = graphopt.fuse(source, functions=functions)
    twice = graphopt.fuse(once.model, functions=functions)
    assert twice.model.SerializeToString() == once.model.SerializeToString()
    assert sum(twice.report.counts.values()) == 0
    assert twice.report.nodes_before == twice.report.nodes_after == once.report.nodes_after


def test_fusing_in_two_steps_is_fusing_at_once():
    """Operators that an earlier run made are what later rules build on."""
    source = model(EVERY_RULE)
    first = graphopt.fuse(source, skip_rules=["ConcatFusedTail"])
    assert first.report.counts == {"ConvLeakyRelu": 1, "ConvPRelu": 1, "MulAdd": 1}
    second = graphopt.fuse(first.model)
    assert second.report.counts == {"ConvLeakyRelu": 0, "ConvPRelu": 0, "MulAdd": 0, "ConcatFusedTail": 2}
    assert Counter(n.op_type for n in second.model.graph.node) == Counter(n.op_type for n in fused(source).graph.node)
    assert certify(source, second.model).ok
    assert_same_numbers(source, second.model)
    assert sorted(nodes(graphopt.unfuse(second.model))) == sorted(nodes(source))


def test_the_same_bytes_in_processes_with_other_hash_seeds():
    script = (
        "import hashlib, sys, graphopt\n"
        "from graphopt import demo_models\n"
        "from graphopt.report import to_json\n"
        "result = graphopt.fuse(demo_models.rrdbnet(features=4, growth=2, blocks=2))\n"
        "text = result.model.SerializeToString() + to_json(result.report).encode()\n"
        "print(hashlib.sha256(text).hexdigest())"
    )
    command = [sys.executable, "-c", script]
    found = [
        subprocess.run(command, env=environment(PYTHONHASHSEED=seed), capture_output=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(found[0].strip()) == 2 * hashlib.sha256().digest_size


# A real network from the onnx package: IR 3, opset 9, initializers among the inputs.

DENSENET = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_densenet121.onnx"


def with_random_weights(source: ModelProto) -> ModelProto:
    """The light models have a node that makes each weight, all of one number; with those, little could go wrong."""
    result = ModelProto()
    result.CopyFrom(source)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in source.graph.initializer}
    del result.graph.node[:]
    for node in source.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(shapes[node.input[0]].tolist())
            array = random_array(node.output[0], shape)
            # Variances must be positive; the others keep the size of what goes through them.
            array = np.abs(array) + 0.5 if len(shape) == 1 else array * (3 / np.prod(shape[1:])) ** 0.5
            result.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), node.output[0]))
            result.graph.input.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape))
        else:
            result.graph.node.append(node)
    return result


def test_densenet_121():
    source = onnx.load(DENSENET)
    counts = {"ConvLeakyRelu": 0, "ConvPRelu": 0, "ConcatFusedTail": 58, "MulAdd": 121}
    result = graphopt.fuse(source)
    assert result.report.counts == counts
    assert (source.ir_version, result.model.ir_version) == (3, 8)
    onnx.checker.check_model(result.model)
    hard = with_random_weights(source)
    result = graphopt.fuse(hard)
    assert result.report.counts == counts
    assert [value.name for value in result.model.graph.input] == ["data_0"]
    (numbers,) = assert_same_numbers(hard, result.model).values()
    assert np.isfinite(numbers).all()
    assert np.ptp(numbers) > 0.1


# What comes in.


def test_a_file_as_text_and_as_a_path(tmp_path: Path):
    source = model(EVERY_RULE)
    onnx.save(source, tmp_path / "m.onnx")
    results = [graphopt.fuse(place).model for place in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), source)]
    assert results[0] == results[1] == results[2]


def test_a_file_that_stands_upside_down():
    source = model(EVERY_RULE)
    made = list(source.graph.node)[::-1]
    del source.graph.node[:]
    source.graph.node.extend(made)
    result = graphopt.fuse(source)
    assert sum(result.report.counts.values()) == 5
    onnx.checker.check_model(result.model)
    expected = run(model(EVERY_RULE), feeds(source), LEVELS[0])
    np.testing.assert_array_equal(run(result.model, feeds(source))["y"], expected["y"])


def test_nodes_without_any_name_and_nodes_of_one_name():
    for name in ("", "same"):
        source = model(EVERY_RULE)
        for node in source.graph.node:
            node.name = name
        result = graphopt.fuse(source)
        assert sum(result.report.counts.values()) == 5
        assert [node.name for node in result.model.graph.node] == [name] * 4
        assert graphopt.unfuse(result.model) == source


def test_half_precision():
    shapes = {"w": (4, 4, 1, 1), "w8": (4, 8, 1, 1), "b": (4,), "slope": (4, 1, 1), "scale": (1, 4, 1, 1)}
    half = {name: random_array(name, shape, np.float16) for name, shape in shapes.items()}
    source = model(EVERY_RULE, inputs="float16[n,4,h,w] x", outputs="float16[n,12,h,w] y", constants=half)
    result = graphopt.fuse(source)
    assert sum(result.report.counts.values()) == 5
    assert_same_numbers(source, result.model)
