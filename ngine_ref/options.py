"""How a session runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Settings of an `InferenceSession`."""

    fast_paths: bool = True
    """Whether passes may replace steps of a plan by faster ones whose results differ in rounding."""
    threads: int | None = None
    """How many threads a run may use, the caller's own included; None: one per core."""
    cached_plans: int = 8
    """For how many combinations of input shapes and requested values a session keeps its plan."""
