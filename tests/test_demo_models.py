"""The demo models have exactly the nodes their topologies have, run, and are the same bytes for the same seed."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

from graphopt import demo_models
from graphopt.errors import UsageError

SMALL = {
    "realesrgan-x4plus": {"features": 8, "growth": 4, "blocks": 2},
    "realesr-general-x4v3": {"features": 8, "convolutions": 3},
    "span-x4": {"features": 8, "blocks": 2},
}


def op_counts(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.fixture(scope="module", params=list(demo_models.DEMO_MODELS))
def full_size(request: pytest.FixtureRequest) -> tuple[str, onnx.ModelProto]:
    return request.param, demo_models.build(request.param)


def run(model: onnx.ModelProto, image: np.ndarray, outputs: list[str]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(outputs, {"input": image})


def test_node_counts_are_the_topologies(full_size: tuple[str, onnx.ModelProto]) -> None:
    name, model = full_size
    assert (
        op_counts(model)
        == {
            "realesrgan-x4plus": {"Conv": 351, "LeakyRelu": 279, "Concat": 276, "Mul": 92, "Add": 93, "Resize": 2},
            "realesr-general-x4v3": {"Conv": 34, "PRelu": 33, "Add": 1, "DepthToSpace": 1, "Resize": 1},
            "span-x4": {"Conv": 22, "Concat": 1, "Mul": 19, "Add": 6, "Sigmoid": 18, "Sub": 7, "DepthToSpace": 1},
        }[name]
    )


def test_models_are_valid_with_dynamic_sizes_by_name(full_size: tuple[str, onnx.ModelProto]) -> None:
    _, model = full_size
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["batch", 3, "height", "width"]


def test_activations_stay_sane_in_every_layer(full_size: tuple[str, onnx.ModelProto]) -> None:
    _, model = full_size
    values = [node.output[0] for node in model.graph.node]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=value) for value in values)
    image = np.random.default_rng(1).random((2, 3, 16, 20), np.float32)
    results = dict(zip(values, run(model, image, values), strict=True))
    assert results["output"].shape == (2, 3, 64, 80)
    for value, array in results.items():
        assert 0.02 < array.std() < 200, value


@pytest.mark.parametrize("name", SMALL)
def test_small_ones_run_at_any_batch_and_size(name: str) -> None:
    model = demo_models.DEMO_MODELS[name](**SMALL[name])
    image = np.random.default_rng(1).random((2, 3, 5, 7), np.float32)
    (both,) = run(model, image, ["output"])
    (second,) = run(model, image[1:], ["output"])
    assert both.shape == (2, 3, 20, 28)
    np.testing.assert_allclose(both[1:], second, rtol=1e-4, atol=1e-4)


def test_nodes_of_an_rrdbnet_grow_by_47_a_block() -> None:
    sizes = [len(demo_models.rrdbnet(1, 1, blocks).graph.node) for blocks in (1, 2, 5)]
    assert sizes == [12 + 47, 12 + 2 * 47, 12 + 5 * 47]


def test_products_that_span_adds_are_read_elsewhere_too() -> None:
    graph = demo_models.span().graph
    reads = Counter(value for node in graph.node for value in node.input)
    products = {node.output[0] for node in graph.node if node.op_type == "Mul"}
    added = [value for node in graph.node if node.op_type == "Add" for value in node.input if value in products]
    assert len(added) == 5
    assert all(reads[value] >= 2 for value in added)


def test_the_seed_decides_every_byte() -> None:
    first, again, other = (demo_models.build("span-x4", seed).SerializeToString() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'esrgan'.*realesrgan-x4plus, realesr-general-x4v3, span-x4"):
        demo_models.build("esrgan")


def test_span_needs_two_blocks() -> None:
    with pytest.raises(UsageError, match="at least 2 blocks, not 1"):
        demo_models.span(blocks=1)
