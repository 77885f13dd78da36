"""Every single-operator case of the onnx package, through a session."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator
from support.node_cases import assert_same

from ngine_ref import InferenceSession

OWN_OPERATORS = re.findall(
    r"\w+",
    """
    Add AveragePool BatchNormalization Cast Clip Concat Conv DepthToSpace Dropout Equal Flatten Gemm GlobalAveragePool
    LeakyRelu Mul PRelu ReduceMean Relu Reshape Resize Sigmoid Squeeze Sub Transpose Unsqueeze
    """,
)

RANDOM = "expects the random numbers of one generator, which ONNX does not prescribe"
UNREPRODUCIBLE = {
    "test_bernoulli": RANDOM,
    "test_bernoulli_expanded": RANDOM,
    "test_bernoulli_double": RANDOM,
    "test_bernoulli_double_expanded": RANDOM,
    "test_bernoulli_seed": RANDOM,
    "test_bernoulli_seed_expanded": RANDOM,
}
NEEDS_PILLOW = "test_image_decoder_"


@cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases' own arithmetic overflows on purpose
        return {case.name: case for case in collect_testcases(None)}


def own_cases() -> list[str]:
    """Cases of one node of an operator that the engine has itself."""
    nodes = {name: case.model.graph.node for name, case in cases().items()}
    return [
        name
        for name, node in nodes.items()
        if len(node) == 1 and node[0].domain == "" and node[0].op_type in OWN_OPERATORS
    ]


def test_number_of_cases():
    """The figures that this project is measured by; a new onnx may well have more."""
    assert len(own_cases()) >= 323
    assert len(cases()) >= 1884


@pytest.mark.parametrize("name", own_cases())
def test_own_kernel(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnx.reference", None)
    check(name, InferenceSession(cases()[name].model).run)


@pytest.mark.parametrize("name", [name for name in cases() if name not in UNREPRODUCIBLE])
@pytest.mark.filterwarnings("ignore")
def test_every_case(name: str):
    if name.startswith(NEEDS_PILLOW) and importlib.util.find_spec("PIL") is None:
        pytest.skip("onnx decodes images with Pillow, which is not installed")
    check(name, InferenceSession(cases()[name].model).run)


@pytest.mark.parametrize("name", UNREPRODUCIBLE)
def test_reference_evaluator_fails_what_is_left_out(name: str):
    """A case is only left out where onnx's own evaluator does not pass it either. It draws random numbers, which may be
    the expected ones for once."""

    def check_several_times() -> None:
        for _ in range(5):
            check(name, ReferenceEvaluator(cases()[name].model).run)

    with pytest.raises(AssertionError):
        check_several_times()


def check(name: str, run: Any) -> None:
    case = cases()[name]
    names = [value.name for value in case.model.graph.input]
    for given, expected in case.data_sets:
        actual = run(None, dict(zip(names, map(plain, given), strict=True)))
        assert len(actual) == len(expected)
        for got, wanted in zip(actual, map(plain, expected), strict=True):
            assert_same_value(got, wanted, case.rtol, case.atol)


def plain(value: Any) -> Any:
    """Cases write element types that NumPy lacks as messages, and scalars as numbers."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def assert_same_value(actual: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, list | tuple):
        assert isinstance(actual, list)
        assert len(actual) == len(expected)
        for got, wanted in zip(actual, expected, strict=True):
            assert_same_value(got, plain(wanted), rtol, atol)
    elif isinstance(expected, np.ndarray):
        assert isinstance(actual, np.ndarray)
        assert_same(actual, expected, rtol=rtol, atol=atol)
    else:
        assert actual == expected
