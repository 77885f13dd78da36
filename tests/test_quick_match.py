"""The matcher's short cut finds what the matcher finds, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto
from support.random_models import RandomModel, random_models
from support.text_models import model

import graphopt
from graphopt.demo_models import rrdbnet, srvgg
from graphopt.graph.dataflow import DataflowGraph
from graphopt.matching.match import Match
from graphopt.matching.matcher import attempt
from graphopt.matching.quick_match import quick_match
from graphopt.rule import Rule


def short_cuts(source: ModelProto, rules: str) -> tuple[int, int]:
    """How many of the matches that were asked for had a short cut, and how many there were. At every node of every view
    the short cut must agree with the matcher."""
    found = asked = 0
    seen: list[tuple[DataflowGraph, Rule]] = []

    def observe(group: Sequence[Rule], view: DataflowGraph, anchor: int, *_: Any) -> None:
        nonlocal found, asked
        for rule in group:
            match, _ = attempt(rule, view, anchor, ())
            asked += rule.branches is not None and isinstance(match, Match)
            found += quick_match(rule, view, anchor) is not None
            if not any(known is view and other is rule for known, other in seen):
                seen.append((view, rule))
                for place in range(len(view.nodes)):
                    quick = quick_match(rule, view, place)
                    if quick is not None:
                        assert attempt(rule, view, place, ()) == (quick, [])

    graphopt.fuse(source, rules=rules, observer=observe)
    return found, asked


@pytest.mark.parametrize("source", [rrdbnet(8, 4, 2), srvgg(8, 4)], ids=["rrdbnet", "srvgg"])
@pytest.mark.parametrize("rules", ["ngine", "extended"])
def test_all_matches_of_a_real_network_are_short_cuts(source: ModelProto, rules: str):
    found, asked = short_cuts(source, rules)
    assert found == asked > 4


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_models())
def test_of_random_models(random: RandomModel):
    short_cuts(random.model, "extended")


@pytest.mark.parametrize(
    "nodes",
    [
        "c = Conv (x, w)  a = LeakyRelu (c)  d = Conv (a, w)  e = Relu (d)  y = Add (a, e)",  # another anchor
        "c = Conv (x, w)  a = LeakyRelu (c)  d = Conv (a, w, b)  y = LeakyRelu (d)",  # another number of inputs
        "c = Conv (x, w, b)  a = LeakyRelu (c)  d = Conv (a, w)  y = LeakyRelu (d)",
        'c = Conv (x, w, b)  a = LeakyRelu (c)  d = Conv (a, w, "")  y = LeakyRelu (d)',  # an absent input
        "c = Conv (x, w)  a = LeakyRelu (c)  d = Conv (a, w)  i = Identity (d)  y = LeakyRelu (i)",
        "c = Conv (x, w)  a = LeakyRelu (c)  d = Conv <group: int = 2> (a, v)  y = LeakyRelu (d)",  # other attributes
        "c = Conv (x, w)  a = LeakyRelu (c)  d = Conv (a, w)  y = LeakyRelu <alpha: float = 0.5> (d)",
        "c = Conv (x, w)  a = LeakyRelu (c)  d = MaxPool <kernel_shape: ints = [1, 1]> (a)  y = LeakyRelu (d)",
        "c = Conv (x, w)  j = Concat <axis: int = 1> (x, x, c)  d = Conv (x, w)  y = Concat <axis: int = 1> (j, d)",
        'c = Conv (x, w)  j = Concat <axis: int = 1> (x, c)  d = Conv (x, w)  y = Concat <axis: int = 1> (j, "", d)',
        "c, k = Split <axis: int = 1> (x)  a = LeakyRelu (c)  y = LeakyRelu (k)",
    ],
)
@pytest.mark.parametrize("rules", ["ngine", "extended"])
def test_what_looks_alike(nodes: str, rules: str):
    constants = {"b": np.ones(4, np.float32), "v": np.ones((4, 2, 1, 1), np.float32)}
    short_cuts(model(nodes, constants=constants), rules)


def test_an_anchor_without_output_is_no_match():
    source = model("c = Conv (x, w)  y = LeakyRelu (c)  d = Conv (x, w)  z = LeakyRelu (d)")
    source.graph.node[3].output[0] = ""
    short_cuts(source, "ngine")
    assert graphopt.fuse(source).report.counts["ConvLeakyRelu"] == 1
