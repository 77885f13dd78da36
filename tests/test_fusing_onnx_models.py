"""Every model that the onnx package ships, through every shipped rule set: nothing fails, and outputs stay equal."""

from __future__ import annotations

import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph, NotImplemented
from support.soundness import assert_same_bits, check_fusing, random_feeds, session

import graphopt

LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
SETS = ("ngine", "extended")
LEAST_CASES = 1700
"""Every onnx this project allows has more cases of one operator."""


@cache
def node_cases() -> tuple[Any, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases' own arithmetic overflows on purpose
        return tuple(case for case in collect_testcases(None) if case.model is not None)


@pytest.mark.parametrize("rules", SETS)
def test_every_case_of_one_operator(rules: str) -> None:
    chosen = graphopt.load_rules(rules)
    applied: Counter[str] = Counter()
    compared = 0
    for case in node_cases():
        result = graphopt.fuse(case.model, rules=chosen)  # with the set's own cleanups, where it has any
        if any(result.report.counts.values()):
            applied.update(result.report.counts)
            check_fusing(case.model, rules=chosen, cleanups=())
            compared += compare(case, result.model)
    assert len(node_cases()) > LEAST_CASES
    assert applied["MulAdd"] > 50
    assert compared > 50


def compare(case: Any, fused: onnx.ModelProto) -> bool:
    """Run a case and its fused model in onnxruntime; False where onnxruntime cannot run the case itself."""
    inputs, _ = case.data_sets[0]
    feeds = {value.name: array(given) for value, given in zip(case.model.graph.input, inputs, strict=True)}
    try:
        expected = session(case.model).run(None, feeds)
    except (Fail, InvalidArgument, InvalidGraph, NotImplemented):
        return False
    assert_same_bits(session(fused).run(None, feeds), expected)
    return True


def array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return value if isinstance(value, list) else np.asarray(value)


FOUND = {
    "light_densenet121": {"MulAdd": 121, "ConcatFusedTail": 58},
    "light_inception_v2": {"MulAdd": 69},
}


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_models(path: Path) -> None:
    model = onnx.load(path)
    result = graphopt.fuse(model)
    assert {name: count for name, count in result.report.counts.items() if count} == FOUND.get(path.stem, {})
    if path.stem in FOUND:
        check_fusing(model, random_feeds(model))


ONLY_BEHIND_NORMALIZATION = {"light_resnet50", "light_shufflenet"}
"""Models whose activations all follow a BatchNormalization, which these rules leave where it is."""


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_models_with_every_rule(path: Path) -> None:
    model = onnx.load(path)
    feeds = random_feeds(model)
    result = check_fusing(model, feeds, rules="extended", cleanups=())
    assert any(result.report.counts.values()) is (path.stem not in ONLY_BEHIND_NORMALIZATION)
