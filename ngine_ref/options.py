"""How a session runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Settings of an `InferenceSession`."""

    fast_paths: bool = True
    """Whether passes may replace steps of a plan by faster ones whose results differ in rounding (by some 1e-6 of the
    largest output). Off, the readable kernels run, and a fused model gives the very bits of the unfused one."""
    keep_filters: bool | None = None
    """Whether fast paths keep transformed filters, four times the weights they are made of, or make them anew in
    each run; None: they are kept unless they take more than 32 MB and the picture is large, where making them costs
    a few percent of the time."""
    threads: int | None = None
    """How many threads a run may use, the caller's own included; None: one per core."""
    cached_plans: int = 8
    """For how many combinations of input shapes and requested values a session keeps its plan."""
