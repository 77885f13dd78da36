"""Real models through both rule sets and through folding: every one certified, and equal in onnxruntime and ngine_ref.

The topologies of the onnx package are fused in the ordinary run. What is downloaded or takes minutes to compute has the
marker `real`: `pytest -m real`. Without network, the tests of what is not yet in the cache skip, and say why.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper
from support.real_models import LIGHT, PACKAGED, RealModel, UnavailableError
from support.text_models import LEVELS, run

import graphopt
from graphopt.fusion_result import FusionResult
from graphopt.model_files.model_io import LoadedModel
from graphopt.verifying.feeds import make_feeds
from graphopt.verifying.verification_report import VerificationReport

BY_NAME = {item.name: item for item in (*LIGHT, *PACKAGED)}

# What the extended set and folding make of each model: applications by operator, zeros left out.
EXTENDED = {
    "light_bvlc_alexnet": {"ConvRelu": 5, "GemmRelu": 2},
    "light_densenet121": {"ConcatFusedTail": 58, "MulAdd": 121},
    "light_inception_v1": {"ConvRelu": 57, "ConcatFusedTail": 9},
    "light_inception_v2": {"MulAdd": 69},
    "light_resnet50": {},
    "light_shufflenet": {},
    "light_squeezenet": {"ConvRelu": 26, "ConcatFusedTail": 8},
    "light_vgg19": {"ConvRelu": 16, "GemmRelu": 2},
    "light_zfnet512": {"ConvRelu": 5, "GemmRelu": 2},
    "PP-OCRv4 det": {"ConvMulAdd": 28, "ConvHardSigmoid": 10, "ConvRelu": 10, "MulAdd": 32},
    "PP-OCRv4 rec": {"ConvMulAdd": 28, "ConvHardSigmoid": 2, "ConvRelu": 2, "MatMulAdd": 9, "MulAdd": 33},
    "PP-OCRv2 cls": {"ConvAddRelu": 9, "ConvAdd": 9, "MatMulAdd": 1},
    "PP-OCRv6 det": {"ConvAddRelu": 19, "ConvAdd": 56, "MulAdd": 8},
    "PP-OCRv6 rec": {"ConvAddRelu": 10, "ConvAdd": 44, "MatMulAdd": 9, "MulAdd": 9},
    "silero-vad": {"ConvRelu": 8, "ConvSigmoid": 2},
    "silero-vad 16k": {"ConvRelu": 4, "ConvSigmoid": 1, "MulSub": 1},
    "silero-vad sequence": {"ConvRelu": 4, "ConvSigmoid": 1},
    "silero-vad half": {"ConvRelu": 4, "ConvSigmoid": 1},
    "silero-vad ifless": {"ConvRelu": 8, "ConvSigmoid": 2, "MulAdd": 2},
    "silero-vad openvino": {"ConvRelu": 4, "ConvSigmoid": 1},
    "magika": {"MatMulAdd": 2, "MulAdd": 4, "MulSub": 2},
}
FOLDED = {
    "PP-OCRv4 det": {**EXTENDED["PP-OCRv4 det"], "ConvRelu": 11, "FoldBatchNormalization": 2},
    "PP-OCRv4 rec": {
        **EXTENDED["PP-OCRv4 rec"],
        "ConvSiLU": 5,
        "ConcatFusedTail": 1,
        "FoldBatchNormalization": 6,
    },
    "PP-OCRv2 cls": {
        "ConvHardSwish": 18,
        "ConvAddRelu": 9,
        "ConvAdd": 16,
        "ConvRelu": 6,
        "MatMulAdd": 1,
        "FoldBatchNormalization": 35,
    },
    "PP-OCRv6 rec": {
        **EXTENDED["PP-OCRv6 rec"],
        "ConvSiLU": 3,
        "MulAdd": 7,
        "FoldBatchNormalization": 3,
    },
}


def load(item: RealModel) -> ModelProto:
    try:
        return onnx.load(item.path())
    except UnavailableError as reason:
        pytest.skip(str(reason))


def applied(result: FusionResult) -> dict[str, int]:
    return {name: count for name, count in result.report.counts.items() if count}


def verified(
    item: RealModel, original: ModelProto | LoadedModel, fused: ModelProto | LoadedModel
) -> VerificationReport:
    return graphopt.verify(original, fused, shapes=item.shapes, inputs=item.inputs)


def assert_same_bits(item: RealModel, original: ModelProto, fused: ModelProto) -> None:
    """onnxruntime, optimisations off, gives the same bits for both."""
    feeds = make_feeds(original, shapes=item.shapes, arrays=item.inputs).arrays
    found = run(fused, feeds, LEVELS[0])
    for name, array in run(original, feeds, LEVELS[0]).items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("name", "counts", "after"),
    [
        (
            "realesrgan-x4plus",
            {"ConvLeakyRelu": 279, "ConvMulAdd": 69, "MulAdd": 23, "ConcatFusedTail": 276, "ConvAdd": 1},
            376,
        ),
        ("span-x4", {"ConvSiLU": 12}, 50),
        ("realesr-general-x4v3", {"ConvPRelu": 33}, 37),
    ],
)
def test_figures_of_the_extended_set(name: str, counts: dict[str, int], after: int) -> None:
    result = graphopt.fuse(f"demo:{name}", rules="extended")
    assert applied(result) == counts
    assert result.report.nodes_after == after
    assert result.report.certificate.ok


@pytest.mark.parametrize("name", [item.name for item in LIGHT])
def test_topologies_of_the_onnx_package(name: str) -> None:
    result = graphopt.fuse(BY_NAME[name].path(), rules="extended")
    assert applied(result) == EXTENDED[name]
    assert result.report.certificate.ok


@pytest.mark.parametrize("name", ["light_squeezenet", "light_inception_v1"])
def test_every_relu_and_every_tail(name: str) -> None:
    """Each Relu stands behind a convolution, and each Concat ends in one of them: none may be left."""
    result = graphopt.fuse(BY_NAME[name].path(), rules="extended")
    assert not {"Relu", "Concat"}.intersection(node.op_type for node in result.model.graph.node)
    tails = [node for node in result.model.graph.node if node.op_type == "ConcatFusedTail"]
    assert {a.s for node in tails for a in node.attribute if a.name == "producer_op"} == {b"ConvRelu"}
    assert not result.report.refusals


def test_a_topology_runs_the_same() -> None:
    item = BY_NAME["light_squeezenet"]
    original = load(item)
    fused = graphopt.fuse(original, rules="extended").model
    assert_same_bits(item, original, fused)
    assert verified(item, original, fused).ok


@pytest.mark.real
@pytest.mark.parametrize("rules", ["ngine", "extended"])
@pytest.mark.parametrize("name", BY_NAME)
def test_certified_and_the_same_numbers(name: str, rules: str) -> None:
    item = BY_NAME[name]
    original = load(item)
    result = graphopt.fuse(original, rules=rules)
    assert result.report.certificate.ok
    if rules == "extended":
        assert applied(result) == EXTENDED[name]
    assert_same_bits(item, original, result.model)
    report = verified(item, original, result.model)
    assert report.ok, report.first_mismatch
    assert report.onnxruntime_runs_fused


@pytest.mark.real
@pytest.mark.parametrize("name", [item.name for item in PACKAGED])
def test_folded_within_tolerance(name: str) -> None:
    item = BY_NAME[name]

    def verifier(original: LoadedModel, fused: LoadedModel) -> VerificationReport:
        return verified(item, original, fused)

    result = graphopt.fuse(load(item), rules="extended", fold_batchnorm=True, verifier=verifier)
    assert applied(result) == FOLDED.get(name, EXTENDED[name])
    assert result.report.certificate.ok
    assert result.report.changes_values == (name in FOLDED)
    assert (result.verification is not None) == (name in FOLDED)


def with_real_weights(item: RealModel) -> ModelProto:
    """A topology of the onnx package whose ConstantOfShape nodes are random initializers instead."""
    source = load(item)
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in source.graph.initializer}
    variances = {node.input[4] for node in source.graph.node if node.op_type == "BatchNormalization"}
    random = np.random.default_rng(0)
    kept = []
    for node in source.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = known[node.input[0]]
        spread = 1 / np.sqrt(max(1, np.prod(shape[1:])))  # so that values neither grow nor vanish on their way
        array = random.uniform(0.5, 1.5, shape) if node.output[0] in variances else random.normal(0, spread, shape)
        source.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), node.output[0]))
    del source.graph.node[:]
    source.graph.node.extend(kept)
    inputs = [value for value in source.graph.input if value.name not in known]
    del source.graph.input[:]
    source.graph.input.extend(inputs)
    source.ir_version = 4  # from which on an initializer among the inputs would be what a caller may set
    return source


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("light_shufflenet", {"FoldBatchNormalization": 49, "ConvRelu": 17}),
        ("light_resnet50", {"FoldBatchNormalization": 53, "ConvRelu": 33}),
    ],
)
def test_whole_topologies_fold(name: str, counts: dict[str, int]) -> None:
    source = with_real_weights(BY_NAME[name])
    result = graphopt.fuse(source, rules="extended", fold_batchnorm=True)
    assert applied(result) == counts
    assert "BatchNormalization" not in result.report.ops_after
    assert result.verification is not None
    assert result.verification.ok
    assert np.ptp(run(result.model, make_feeds(source).arrays)[source.graph.output[0].name]) > 1e-4
