"""Random sweeps in two sizes: a quick one in every test run, and a long one behind the marker `long`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

LONG = 20
"""How many times more examples the long sweep has."""


def sweep(*strategies: SearchStrategy[Any], examples: int) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Make the function below a test that draws its arguments from the strategies, `examples` times."""

    def decorate(check: Callable[..., None]) -> Callable[[int], None]:
        counts = [examples, pytest.param(examples * LONG, marks=pytest.mark.long)]

        @pytest.mark.parametrize("examples", counts)
        def test(examples: int) -> None:
            settings(max_examples=examples, deadline=None)(given(*strategies)(check))()

        return test

    return decorate
