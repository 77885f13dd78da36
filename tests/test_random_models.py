"""Fusing random models: everything that must hold, and every pair that the generator knows must fuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.random_models import RandomModel, random_models
from support.soundness import check_fusing

QUICK = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
LONG = settings(QUICK, max_examples=20_000)


def check(random: RandomModel) -> None:
    """One example."""
    model = random.model
    rng = np.random.default_rng(len(model.graph.node))
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = (rng.integers(-16, 17, shape) / 8).astype(np.float32)
    feeds = [{"x": x, "condition": np.asarray(condition)} for condition in (True, False)]
    result = check_fusing(model, *feeds, tolerance=1e-4)
    fused = {(fusion.rule, output) for fusion in result.report.fusions for output in fusion.outputs}
    for anchor, operator in random.fused.items():
        assert (operator, anchor) in fused, f"{operator} {anchor!r} was not fused: {result.report.refusals}"
    for anchor, operator in random.refused.items():
        assert (operator, anchor) not in fused, f"{operator} {anchor!r} was fused"


@QUICK
@given(random_models())
def test_random_models(random: RandomModel) -> None:
    check(random)


@pytest.mark.long
@LONG
@given(random_models())
def test_very_many_random_models(random: RandomModel) -> None:
    check(random)
