"""ConvTranspose against onnxruntime: groups, strides, dilations, padding of every kind, one to three spatial axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.node_cases import NodeCase, check_node_case, node_cases
from support.one_node import onnxruntime_outputs

from ngine_ref import get
from ngine_ref.errors import ShapeError


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 3]},
        {"strides": [2, 2], "pads": [1, 0, 2, 1], "output_padding": [1, 0]},
        {"dilations": [2, 1], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID", "strides": [3, 3]},
    ],
)
def test_like_onnxruntime(attributes: dict[str, Any], group: int) -> None:
    random = np.random.default_rng(0)
    x, w, b = (random.uniform(-1, 1, shape).astype(np.float32) for shape in ((2, 4, 5, 4), (4, 3, 3, 2), (3 * group,)))
    attributes = {**attributes, "group": group}
    (found,) = get("ConvTranspose")([x, w, b], attributes)
    np.testing.assert_allclose(
        found, onnxruntime_outputs("ConvTranspose", [x, w, b], attributes)[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("spatial", [(6,), (3, 4, 2)])
def test_other_ranks(spatial: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    kernel = (2,) * len(spatial)
    x, w, b = (random.uniform(-1, 1, s).astype(np.float32) for s in ((1, 4, *spatial), (4, 2, *kernel), (4,)))
    attributes = {"group": 2, "strides": [2] * len(spatial)}
    (found,) = get("ConvTranspose")([x, w, b], attributes)
    np.testing.assert_allclose(
        found, onnxruntime_outputs("ConvTranspose", [x, w, b], attributes)[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("case", node_cases("ConvTranspose"), ids=lambda case: case.name)
def test_onnx_node_cases(case: NodeCase) -> None:
    check_node_case(case)


def test_groups_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="do not fit in 3 groups"):
        get("ConvTranspose")([np.ones((1, 4, 3), np.float32), np.ones((4, 1, 2), np.float32)], {"group": 3})
