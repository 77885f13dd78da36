"""Verification finds wrong kernels and wrong models, names the node, and keeps to its memory budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import graphopt
from graphopt import demo_models
from graphopt.errors import ModelError, UsageError
from graphopt.graph.value_sizes import value_sizes
from graphopt.verifying import verification
from graphopt.verifying.comparison import compare, compare_values
from graphopt.verifying.feeds import make_feeds
from ngine_ref import registry
from ngine_ref.registry import Array, Call, Kernel, Workspace


@pytest.fixture(scope="module")
def network() -> ModelProto:
    """Two dense blocks' worth of Real-ESRGAN, small."""
    return demo_models.rrdbnet(features=8, growth=4, blocks=1, seed=1)


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Breaks a kernel: `breaks(op_type, change)` lets `change` alter the inputs before the kernel computes."""

    def install(op_type: str, change: Callable[[list[Array | None]], None]) -> None:
        operator = registry.find(op_type, "ai.ngine")
        assert operator is not None

        def changed(arrays: Sequence[Array | None]) -> list[Array | None]:
            copy = list(arrays)
            change(copy)
            return copy

        for since, binder in list(operator.versions.items()):

            def broken(call: Call, binder: Callable[[Call], Kernel] = binder) -> Kernel:
                values = changed([None if spec is None else spec.value for spec in call.inputs])
                specs = [spec and replace(spec, value=value) for spec, value in zip(call.inputs, values, strict=True)]
                kernel = binder(replace(call, inputs=specs))

                def compute(inputs: Sequence[Array | None], outputs: Sequence[Array], workspace: Workspace) -> None:
                    kernel.compute(changed(inputs), outputs, workspace)

                return replace(kernel, compute=compute)

            monkeypatch.setitem(operator.versions, since, broken)

    return install


def test_a_right_model_is_verified(network: ModelProto) -> None:
    report = graphopt.verify(network, graphopt.fuse(network).model)
    assert report.ok
    assert report.onnxruntime_runs_fused is True
    kept = {name for node in graphopt.fuse(network).model.graph.node for name in node.output}
    assert {value.name for value in report.values} == kept
    assert report.max_abs_error > 0, "two executors that agree to the last bit everywhere are one executor"
    assert report.assumed == {"input": (1, 3, 32, 32)}


def test_one_wrong_tap_is_found_and_named(network: ModelProto, breaks: Callable[..., None]) -> None:
    def one_tap(inputs: list[Array | None]) -> None:
        if inputs[1] is not None:
            inputs[1] = inputs[1].copy()
            inputs[1][0, 0, 0, 0] += 0.5

    fused = graphopt.fuse(network).model
    breaks("ConvLeakyRelu", one_tap)  # it is what makes the tails, too
    report = graphopt.verify(network, fused)
    first = next(node for node in fused.graph.node if node.op_type == "ConcatFusedTail")
    assert not report.ok
    assert report.first_mismatch is not None
    assert report.first_mismatch.made_by == f"ConcatFusedTail {first.name!r}"
    assert report.first_mismatch.difference.at[1] == 8, "the first channel of the tail"


def test_a_skipped_bias_is_found_and_named(network: ModelProto, breaks: Callable[..., None]) -> None:
    def no_bias(inputs: list[Array | None]) -> None:
        if inputs[2] is not None:
            inputs[2] = np.zeros_like(inputs[2])

    fused = graphopt.fuse(network).model
    breaks("ConvLeakyRelu", no_bias)
    report = graphopt.verify(network, fused)
    assert report.first_mismatch is not None
    first = next(node for node in fused.graph.node if node.op_type == "ConcatFusedTail")
    assert report.first_mismatch.made_by == f"ConcatFusedTail {first.name!r}"


def test_a_wrong_alpha_is_found_and_named(network: ModelProto) -> None:
    fused = graphopt.fuse(network).model
    node = [node for node in fused.graph.node if node.op_type == "ConcatFusedTail"][5]
    for attribute in node.attribute:
        if attribute.name == "alpha":
            attribute.f = 0.21
    report = graphopt.verify(network, fused)
    assert not report.ok
    assert report.onnxruntime_runs_fused is False
    assert report.first_mismatch is not None
    assert report.first_mismatch.made_by == f"ConcatFusedTail {node.name!r}"


def test_rounding_that_grew_on_the_way_is_told_from_a_wrong_node() -> None:
    # The sigmoid of a sum of large numbers that cancel shows their last digits; one sum is large, and so the tolerance
    # of all of them.
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,64,8,8] x) => (float[1,1,1,1] y) {'
        " c = Conv (x, w) s = Sigmoid (c) y = GlobalAveragePool (s) }"
    )
    random = np.random.default_rng(0)
    weight = (random.standard_normal((1, 64, 1, 1)) * 3e4).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    feed = random.standard_normal((1, 64, 8, 8))
    feed[..., 1:] -= (feed * weight).sum(1, keepdims=True)[..., 1:] * weight / (weight.astype(np.float64) ** 2).sum()
    report = graphopt.verify(model, model, inputs={"x": feed.astype(np.float32)}, atol=1e-4)
    by_name = {value.name: value for value in report.values}
    assert by_name["c"].difference.ok
    assert not by_name["s"].difference.ok
    assert by_name["s"].inherited


def test_values_are_fetched_within_the_budget(network: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = graphopt.fuse(network).model
    sizes = value_sizes(network, {"input": (1, 3, 32, 32)})
    batches: list[list[str]] = []
    original = verification._run_reference

    def watched(session: object, loaded: object, names: list[str], feeds: object) -> list[object]:
        batches.append(list(names))
        return original(session, loaded, names, feeds)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(verification, "_run_reference", watched)
    budget = 300_000
    report = graphopt.verify(network, fused, memory_budget=budget)
    assert report.ok
    assert len(batches) > 3
    for batch in batches:
        assert len(batch) == 1 or sum(sizes[name] for name in batch) <= budget
    assert sorted(name for batch in batches for name in batch) == sorted(value.name for value in report.values)


def test_every_value_has_a_size(network: ModelProto) -> None:
    sizes = value_sizes(network, {"input": (1, 3, 16, 20)})
    assert {name for node in network.graph.node for name in node.output} <= set(sizes)
    assert sizes["output"] == 4 * 3 * 64 * 80


def test_a_model_that_onnxruntime_cannot_run_is_one_sentence() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "nobody" : 1]>'
        " g (float[1] x) => (float[1] y) { y = nobody.Nothing (x) }"
    )
    with pytest.raises(ModelError, match=r"onnxruntime cannot run it: .*Nothing"):
        graphopt.verify(model, model)


class TestFeeds:
    def model(self, *inputs: onnx.ValueInfoProto) -> ModelProto:
        return helper.make_model(helper.make_graph([], "g", list(inputs), []))

    def test_floats_hold_negative_numbers_and_follow_the_seed(self) -> None:
        model = self.model(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"]))
        feeds = make_feeds(model, seed=3)
        assert feeds.arrays["x"].shape == (1, 3, 32, 32)
        assert (feeds.arrays["x"] < 0).mean() > 0.4
        assert feeds.assumed == {"x": (1, 3, 32, 32)}
        assert np.array_equal(feeds.arrays["x"], make_feeds(model, seed=3).arrays["x"])
        assert not np.array_equal(feeds.arrays["x"], make_feeds(model, seed=4).arrays["x"])

    def test_named_dimensions_agree_between_inputs(self) -> None:
        a = helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", "k"])
        b = helper.make_tensor_value_info("b", TensorProto.FLOAT, ["k", "m"])
        feeds = make_feeds(self.model(a, b), shapes={"b": (5, 2)})
        assert feeds.arrays["a"].shape == (1, 5)

    def test_integers_stay_in_range_of_any_index(self) -> None:
        value = helper.make_tensor_value_info("i", TensorProto.INT64, [100])
        assert set(make_feeds(self.model(value)).arrays["i"].tolist()) == {0, 1}

    def test_wrong_names_and_shapes_are_refused(self) -> None:
        model = self.model(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]))
        with pytest.raises(UsageError, match="no input 'y'; its inputs are x"):
            make_feeds(model, shapes={"y": (1,)})
        with pytest.raises(UsageError, match=r"shape .'n', 3. in the model, and was given .1, 4."):
            make_feeds(model, shapes={"x": (1, 4)})
        with pytest.raises(UsageError, match="has rank 2"):
            make_feeds(model, shapes={"x": (1, 3, 4)})


class TestComparison:
    def test_float32_is_judged_by_both_parts_of_its_tolerance(self) -> None:
        expected = np.array([0.0, 100.0], np.float32)
        assert compare(np.array([9e-4, 100.0], np.float32), expected).ok
        assert not compare(np.array([1.1e-3, 100.0], np.float32), expected).ok
        assert compare(np.array([0.0, 100.01], np.float32), expected).ok
        assert not compare(np.array([0.0, 100.02], np.float32), expected).ok

    def test_where_and_how_far(self) -> None:
        expected = np.ones((2, 3), np.float32)
        actual = expected.copy()
        actual[1, 2] = 1.5
        found = compare(actual, expected)
        assert (found.ok, found.max_abs_error, found.at) == (False, 0.5, (1, 2))

    def test_nan_and_infinity_agree_with_themselves_only(self) -> None:
        odd = np.array([np.nan, np.inf, -np.inf], np.float32)
        assert compare(odd, odd).ok
        assert not compare(np.array([0.0, np.inf, -np.inf], np.float32), odd).ok
        assert not compare(np.array([np.nan, -np.inf, -np.inf], np.float32), odd).ok

    def test_integers_shapes_and_types_are_exact(self) -> None:
        assert not compare(np.array([1, 2]), np.array([1, 3])).ok
        assert compare(np.array([1, 2]), np.array([1, 2])).ok
        assert "shape [2, 1], not [2]" in compare(np.zeros((2, 1)), np.zeros(2)).reason
        assert "element type float64" in compare(np.zeros(2), np.zeros(2, np.float32)).reason

    def test_sequences_are_compared_part_by_part(self) -> None:
        assert compare_values([np.ones(2)], [np.ones(2)]).ok
        assert not compare_values([np.ones(2)], [np.zeros(2)]).ok
        assert not compare_values([np.ones(2)], [np.ones(2), np.ones(2)]).ok


def test_external_weights_are_found_by_both(network: ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    copy = ModelProto()
    copy.CopyFrom(network)
    onnx.save(copy, path, save_as_external_data=True, location="net.bin", size_threshold=0)
    result = graphopt.fuse(path)
    onnx.save(result.model, tmp_path / "net.fused.onnx")
    assert graphopt.verify(path, tmp_path / "net.fused.onnx").ok
