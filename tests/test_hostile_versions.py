"""Every opset and IR version, and operators, imports and spellings of other domains."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper
from support.image_models import FUSED, LEAKY, TOLERANCE, counts, image, plain
from support.soundness import check_fusing, random_feeds

import graphopt

# Domains, opsets, IR versions.


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_every_opset(opset: int) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("LeakyRelu", ["c"], ["l"], alpha=0.5),
        helper.make_node("Mul", ["l", "l"], ["m"]),
        helper.make_node("Add", ["x", "m"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["t"]),
        helper.make_node("Concat", ["a", "t"], ["y"], axis=1),
    ]
    model = plain(nodes, opset=opset)
    feeds = [random_feeds(model)] if opset <= NEWEST_IN_ONNXRUNTIME else []
    wanted = {"ConvLeakyRelu": 1, "MulAdd": 1, "ConcatFusedTail": 1}
    assert counts(check_fusing(model, *feeds, tolerance=TOLERANCE)) == wanted


NEWEST_IN_ONNXRUNTIME = 23
"""The newest opset that every onnxruntime this project allows knows."""


def test_an_opset_from_the_future_is_refused() -> None:
    with pytest.raises(graphopt.ModelError, match=r"the model has opset 999, and onnx .* install a newer onnx"):
        graphopt.fuse(image(FUSED, opset=999))


@pytest.mark.parametrize("ir", range(3, onnx.IR_VERSION + 1))
def test_every_ir_version(ir: int) -> None:
    model = image(FUSED, ir=ir)
    if ir == 3:
        for tensor in model.graph.initializer:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    feeds = [random_feeds(model)] if ir <= 10 else []
    result = check_fusing(model, *feeds, tolerance=TOLERANCE)
    assert counts(result) == LEAKY
    assert result.model.ir_version == max(ir, 8)
    assert [value.name for value in result.model.graph.input] == ["x"]


@pytest.mark.parametrize(("conv", "leaky"), [("other", ""), ("", "other"), ("com.microsoft", "")])
def test_operators_of_the_same_name_in_other_domains(conv: str, leaky: str) -> None:
    model = image(FUSED)
    model.graph.node[0].domain, model.graph.node[1].domain = conv, leaky
    assert counts(check_fusing(model)) == {}


def test_the_other_spelling_of_the_default_domain() -> None:
    model = image(FUSED)
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert counts(check_fusing(model, random_feeds(model), tolerance=TOLERANCE)) == LEAKY
    model.opset_import[0].domain = "ai.onnx"
    assert counts(check_fusing(model)) == LEAKY


def test_imports_are_kept_and_none_is_doubled() -> None:
    model = image(FUSED)
    for domain, version in (("ai.onnx.ml", 3), ("com.microsoft", 1), ("ai.ngine", 1)):
        model.opset_import.add(domain=domain, version=version)
    result = check_fusing(model, random_feeds(model), tolerance=TOLERANCE)
    assert list(result.model.opset_import) == list(model.opset_import)
