"""Models with a BatchNormalization to fold, and what is asserted of every fold and every refusal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

import graphopt
from graphopt.folding import batchnorm_folding
from graphopt.ledger import Refusal
from graphopt.verifying.comparison import compare
from support.text_models import Array, feeds, model, nodes, random_array, run

NORM = "BatchNormalization (c, s, o, m, v)"
CONV = f"c = Conv (x, w, b) y = {NORM}"


def statistics(dtype: Any = np.float32, channels: int = 4) -> dict[str, Array]:
    """Scale, offset, mean and variance."""
    arrays = {name: random_array(name, (channels,)) for name in ("s", "o", "m", "v")}
    arrays["v"] = np.abs(arrays["v"]) + np.float32(0.1)
    return {name: array.astype(dtype) for name, array in arrays.items()}


def normed(body: str, constants: Mapping[str, Array] | None = None, **options: Any) -> ModelProto:
    """A model from text, with the usual statistics unless others are given."""
    return model(body, constants={**statistics(), **(constants or {})}, **options)


def weights(source: ModelProto) -> dict[str, Array]:
    """The initializers by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in source.graph.initializer}


def assert_folds(source: ModelProto, *expected: str, rules: str = "extended", cleanups: Any = ()) -> ModelProto:
    """A model becomes these lines, and gives the same numbers in onnxruntime up to rounding."""
    before = source.SerializeToString(deterministic=True)
    result = graphopt.fuse(source, rules=rules, cleanups=cleanups, fold_batchnorm=True)
    assert source.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(result.model, full_check=True)
    assert nodes(result.model) == list(expected)
    assert result.report.changes_values
    assert result.verification is not None
    assert result.verification.ok
    given = feeds(source)
    found = run(result.model, given)
    for name, array in run(source, given).items():
        assert compare(found[name], array).ok, name
    return result.model


def refused(source: ModelProto | Path, **options: Any) -> tuple[int, str, str, str]:
    """Number, name, reason and place of the one refusal of a model in which nothing is folded."""
    result = graphopt.fuse(source, fold_batchnorm=True, **options)
    assert result.report.counts[batchnorm_folding.RULE] == 0
    assert not result.report.changes_values
    assert result.verification is None
    (refusal,) = [one for one in result.report.refusals if one.rule == batchnorm_folding.RULE]
    assert isinstance(refusal, Refusal)
    return refusal.condition, refusal.name, refusal.reason, refusal.at
