"""Work grows with the graph and not faster. Counted in executed lines of Python, which no busy machine changes.

What a single built-in function does inside (a search through a list, say) is not seen; `benchmarks/rewrite.py` has the
clock for that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import graphopt
from graphopt import rule_sweep
from graphopt.demo_models import rrdbnet
from graphopt.fusion import fuse
from graphopt.graph.dataflow import DataflowGraph
from graphopt.matching import decision
from graphopt.matching.match import Match
from graphopt.proof.certificate import certify
from graphopt.proof.expressions import Expressions
from graphopt.rule_files.rule_set import load_rules
from graphopt.rule_sweep import Observer

SMALL = 40
"""Large enough that what is done once does not hide what grows."""
GROWTH = 8
SLACK = 1.1
"""Searching in trees and whatever is done once may add this much."""
PACKAGE = str(Path(graphopt.__file__).parent)


def chain(nodes: list[NodeProto], output: str) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, "h", "w"])
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")]
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def dense_blocks(size: int) -> ModelProto:
    """Most rules apply, and prefixes are shared; 47 nodes a block."""
    return rrdbnet(2, 1, size // 8)


def one_value_read_by_all(size: int) -> ModelProto:
    """A value with as many readers as there are nodes, and refusals that speak of them."""
    nodes, last = [helper.make_node("Conv", ["x", "w"], ["c"])], "c"
    for index in range(size):
        nodes.append(helper.make_node("LeakyRelu", ["c"], [f"r{index}"]))
        nodes.append(helper.make_node("Concat", [last, "c"], [f"j{index}"], axis=1))
        nodes.append(helper.make_node("Add", [f"j{index}", f"r{index}"], [f"a{index}"]))
        last = f"a{index}"
    return chain(nodes, last)


def nothing_fits(size: int) -> ModelProto:
    """Anchors of most rules, and not one match."""
    nodes, last = [], "x"
    for index in range(size):
        nodes.append(helper.make_node("Add", [last, last], [f"a{index}"]))
        nodes.append(helper.make_node("LeakyRelu", [f"a{index}"], [f"r{index}"], alpha=0.1))
        nodes.append(helper.make_node("Mul", [f"r{index}", "x"], [f"m{index}"]))
        nodes.append(helper.make_node("Concat", ["x", f"m{index}"], [last := f"j{index}"], axis=-1))
    return chain(nodes, last)


def through_identities(size: int) -> ModelProto:
    """Long paths of Identity nodes between a convolution and what follows it."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["i0"])]
    nodes += [helper.make_node("Identity", [f"i{index}"], [f"i{index + 1}"]) for index in range(size)]
    return chain([*nodes, helper.make_node("LeakyRelu", [f"i{size}"], ["y"])], "y")


def not_in_order(size: int) -> ModelProto:
    """A file whose readers stand before their producers."""
    model = one_value_read_by_all(size)
    nodes = list(model.graph.node)
    return chain(nodes[::-1], nodes[-1].output[0])


SHAPES = [dense_blocks, one_value_read_by_all, nothing_fits, through_identities, not_in_order]


def lines_executed(work: Callable[[], Any]) -> int:
    """How many lines of graphopt's code, and of this file's, some work runs, once the caches of schemas are full."""
    count = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith((PACKAGE, __file__)) else None

    work()
    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def assert_linear(model: Callable[[int], ModelProto], work: Callable[[ModelProto], Callable[[], Any]]) -> None:
    small, large = model(SMALL), model(SMALL * GROWTH)
    nodes = len(large.graph.node) / len(small.graph.node)
    lines = lines_executed(work(large)) / lines_executed(work(small))
    assert lines <= SLACK * nodes, f"{lines:.1f} times the lines for {nodes:.1f} times the nodes"


@pytest.mark.parametrize("model", SHAPES)
def test_a_fuse_grows_with_the_graph(model: Callable[[int], ModelProto]) -> None:
    rules = load_rules()
    assert_linear(model, lambda source: lambda: fuse(source, rules=rules))


@pytest.mark.parametrize("model", SHAPES)
def test_the_certificate_grows_with_the_graph(model: Callable[[int], ModelProto]) -> None:
    def proof(source: ModelProto) -> Callable[[], Any]:
        fused = fuse(source).model
        return lambda: certify(source, fused)

    assert_linear(model, proof)


@pytest.mark.parametrize("model", SHAPES)
def test_every_anchor_is_decided_once(model: Callable[[int], ModelProto]) -> None:
    """The sweep comes by each anchor of an operator's rules once, however many matches there are."""
    met: list[tuple[str, str, tuple[str, ...]]] = []

    def observe(rules: Any, view: DataflowGraph, anchor: int, decided: Any, order: Any) -> None:
        node = view.nodes[anchor]
        met.append((rules[0].op_type, node.op_type, node.outputs))
        assert decided is None or isinstance(decided, (Match, graphopt.Refusal, str))

    observer: Observer = observe
    source = model(SMALL)
    fuse(source, observer=observer)
    assert met, "nothing was decided"
    assert len(set(met)) == len(met)
    joins = {tuple(node.output) for node in source.graph.node if node.op_type == "Concat"}
    assert {outputs for fused, _, outputs in met if fused == "ConcatFusedTail"} == joins


def test_a_view_for_every_decision_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that the guard is there for: the view of a scope made anew for each rewrite."""

    def decide(rules: Any, view: DataflowGraph, anchor: int, order: Any) -> Any:
        return decision.decide(rules, DataflowGraph(view.scope), anchor, order)

    monkeypatch.setattr(rule_sweep, "decide", decide)
    with pytest.raises(AssertionError, match="times the lines"):
        test_a_fuse_grows_with_the_graph(nothing_fits)


def test_a_search_for_every_value_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    intern = Expressions.intern

    def search(self: Expressions, expression: Any, rank: int | None = None) -> int:
        for known in self.known:
            if known == expression:
                break
        return intern(self, expression, rank)

    monkeypatch.setattr(Expressions, "intern", search)
    with pytest.raises(AssertionError, match="times the lines"):
        test_the_certificate_grows_with_the_graph(nothing_fits)
