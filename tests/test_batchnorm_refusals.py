"""Why a BatchNormalization is not folded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.batchnorm_models import CONV, NORM, normed, refused, statistics
from support.text_models import IMAGE, Array, random_array


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "c = Relu (x) y = BatchNormalization (c, s, o, m, v)",
            (1, "weighted producer", "'c' is made by Relu 'c', not by a Conv, ConvTranspose or Gemm", "c"),
        ),
        (
            "y = BatchNormalization (x, s, o, m, v)",
            (1, "weighted producer", "'x' is made by no node here", "x"),
        ),
        (
            f"c = Conv (x, w, b) n = {NORM} y = Add (n, c)",
            (2, "sole reader", "'c' is read 2 times: by BatchNormalization 'n' and by Add 'y'", "c"),
        ),
        (
            "c = Conv (x, w, b) y, p, q = BatchNormalization <training_mode: int = 1> (c, s, o, m, v)",
            (3, "inference", "BatchNormalization 'y' computes its statistics when it runs (training_mode)", "y"),
        ),
        (
            "c = Conv (x, w, b) s2 = Abs (s) y = BatchNormalization (c, s2, o, m, v)",
            (4, "constants", "'s2' is computed at run time", "s2"),
        ),
        (
            "k2 = Abs (w) c = Conv (x, k2, b) y = BatchNormalization (c, s, o, m, v)",
            (4, "constants", "'k2' is computed at run time", "k2"),
        ),
    ],
)
def test_refusals(body: str, expected: tuple[int, str, str, str]) -> None:
    assert refused(normed(body)) == expected


def test_statistics_that_it_makes_too() -> None:
    source = normed(
        "c = Conv (x, w, b) y, p, q, r, t = BatchNormalization (c, s, o, m, v) z = Relu (p)",
        outputs="float[n,c,h,w] y, float[4] z",
        opset=13,
    )
    assert refused(source) == (3, "inference", "BatchNormalization 'y' makes its statistics too, as 'p'", "p")


def test_parameters_for_each_position() -> None:
    source = normed(
        "c = Conv (x, w, b) y = BatchNormalization <spatial: int = 0> (c, s, o, m, v)",
        {name: np.ones((4, 5, 6), np.float32) for name in "somv"},
        opset=8,
    )
    reason = "BatchNormalization 'y' has parameters for each position (spatial=0), not for each channel"
    assert refused(source) == (3, "inference", reason, "y")


def test_weights_that_a_caller_may_set() -> None:
    source = normed(CONV, inputs=f"{IMAGE}, float[4] v")
    assert refused(source) == (4, "constants", "'v' is an input of the graph, so a caller may set it", "v")


def test_inside_a_function() -> None:
    header = '<domain: "own", opset_import: ["" : 17]> F (x, w, s, o, m, v) => (y)'
    body = f"{header} {{ c = Conv (x, w) y = {NORM} }}"
    source = normed("y = own.F (x, w, s, o, m, v)", functions=body, imports='"own" : 1')
    reason = "BatchNormalization 'y' stands in a function, which holds no weights"
    assert refused(source) == (4, "constants", reason, "y")


@pytest.mark.parametrize(
    ("constants", "reason", "at"),
    [
        ({"s": np.ones(1, np.float32)}, "'s' has shape [1], not one number for each of 4 channels", "s"),
        ({"b": np.ones(1, np.float32)}, "'b' has shape [1], which fits no 4 channels", "b"),
        ({"w": np.ones((4, 4), np.float32)}, "the weight 'w' has shape [4, 4], which Conv 'c' cannot have", "w"),
        ({"b": np.ones(4, np.float64)}, "'b' has another element type than the weight 'w'", "b"),
        ({"o": np.ones(4, np.int32)}, "'o' is not of a floating-point type that can be folded", "o"),
    ],
)
def test_shapes_and_types_that_fit_not(constants: dict[str, Array], reason: str, at: str) -> None:
    assert refused(normed(CONV, constants)) == (5, "shapes", reason, at)


def test_an_addend_that_counts_for_nothing() -> None:
    source = normed(
        f"c = Gemm <beta: float = 0.0> (x, w, b) y = {NORM}",
        {"w": random_array("gemm", (3, 4))},
        inputs="float[2,3] x",
        outputs="float[2,4] y",
    )
    reason = "Gemm 'c' multiplies its addend by beta 0, so it can take no shift"
    assert refused(source) == (5, "shapes", reason, "c")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_that_would_not_be_finite(dtype: Any) -> None:
    arrays = {"w": np.full((4, 4, 1, 1), 1000, dtype), "b": np.ones(4, dtype), **statistics(dtype)}
    if dtype == np.float32:
        arrays["v"] = np.full(4, -1, dtype)  # the root of a negative number
    else:
        arrays["s"] = np.full(4, 1000, dtype)
    kind = np.dtype(dtype).name.replace("float32", "float")
    source = normed(CONV, arrays, inputs=f"{kind}[n,4,h,w] x", outputs=f"{kind}[n,c,h,w] y")
    reason = f"the new weights of Conv 'c' would not be finite in {np.dtype(dtype)}"
    assert refused(source) == (6, "finite", reason, "c")
