"""Dropout in inference and in training mode."""

import ml_dtypes
import numpy as np
import pytest
from support.node_cases import assert_same

from ngine_ref.errors import OperatorError
from ngine_ref.registry import Call, TensorSpec, find, get

X = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
TRUE, FALSE, HALF = np.array(True), np.array(False), np.float32(0.5)


@pytest.mark.parametrize(("opset", "mask_dtype"), [(7, np.float32), (10, np.bool_), (12, np.bool_), (22, np.bool_)])
def test_inference_keeps_everything(opset: int, mask_dtype: type[np.generic]):
    y, mask = get("Dropout")([X], opset=opset, output_count=2)
    assert_same(y, X)
    assert_same(mask, np.ones(X.shape, mask_dtype))


def test_training_mode_off_or_ratio_0_keeps_everything():
    assert_same(get("Dropout")([X, HALF, FALSE])[0], X)
    assert_same(get("Dropout")([X, np.float32(0), TRUE])[0], X)
    assert_same(get("Dropout")([X, None, FALSE])[0], X)


def test_training_drops_and_scales():
    y, mask = get("Dropout")([X, np.float32(0.75), TRUE], {"seed": 3}, output_count=2)
    assert 0.2 < mask.mean() < 0.3
    assert_same(y, X * mask * np.float32(4))
    again = get("Dropout")([X, np.float32(0.75), TRUE], {"seed": 3})[0]
    assert_same(again, y)
    default = get("Dropout")([X, None, TRUE], {"seed": 3}, output_count=2)[1]
    assert 0.45 < default.mean() < 0.55


def test_narrow_floats_are_scaled_in_float32():
    x = X.astype(ml_dtypes.bfloat16)
    y, mask = get("Dropout")([x, np.float32(0.25), TRUE], {"seed": 1}, output_count=2)
    assert_same(y, (x.astype(np.float32) * mask * np.float32(1 / 0.75)).astype(ml_dtypes.bfloat16))


def test_the_mode_may_be_known_only_at_run_time():
    operator = find("Dropout")
    assert operator is not None
    data, mode = TensorSpec((2,), np.dtype(np.float32)), TensorSpec((), np.dtype(np.bool_))
    assert operator.bind(Call("Dropout", [data, None, mode], {})).view is None
    off = TensorSpec((), np.dtype(np.bool_), FALSE)
    assert operator.bind(Call("Dropout", [data, None, off], {})).view is not None


def test_ratios_that_cannot_be():
    with pytest.raises(OperatorError, match=r"below 1, got 1\.0"):
        get("Dropout")([X, np.float32(1), TRUE])
