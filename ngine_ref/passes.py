"""The passes that rewrite a plan's steps before its memory is laid out (see `planning/plan.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ngine_ref.fast.fast_pass import hand_over_regions
from ngine_ref.options import SessionOptions
from ngine_ref.planning.plan import Pass


def passes(options: SessionOptions) -> Sequence[Pass]:
    """The passes that the options ask for, in order."""
    return (partial(hand_over_regions, keep_filters=options.keep_filters),) if options.fast_paths else ()
