"""Whether a target's kernels can run a node, and run it as ONNX defines it.

The same questions are asked of a node that stands in a model (`check`) and of one that a fusion would make.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, defs, helper

from graphopt.graph.conventions import FUSED_DOMAIN
from graphopt.graph.dataflow import DataflowGraph
from graphopt.graph.scope import Node, Scope
from graphopt.graph.scope_reading import read_scopes
from graphopt.graph.value_sizes import inferred_shapes, shape_skeleton
from graphopt.matching.match import Match
from graphopt.targets.target import OperatorLimits, Target
from graphopt.wording import counted, listed

CANNOT_RUN = "cannot run"
DIFFERS = "runs differently"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing about a node that an engine cannot do, or does differently."""

    severity: str
    """`CANNOT_RUN` or `DIFFERS`."""
    operator: str
    node: str
    reason: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class _Use:
    """How a node uses its operator, as far as that is known."""

    op_type: str
    domain: str
    attributes: Mapping[str, AttributeProto]
    rank: int | None
    dtypes: frozenset[str]
    slope: str | None
    outputs: int


def check(model: ModelProto, target: Target) -> list[Problem]:
    """Every node that a target cannot run or would run differently, worst first, else in the order of the model.

    Element types and ranks are inferred; where that fails they are not judged.
    """
    types = _types(model)
    scopes = read_scopes(model, fused_domains={FUSED_DOMAIN})
    problems = [problem for scope in scopes for problem in _scope_problems(scope, target, types)]
    return sorted(problems, key=lambda problem: problem.severity != CANNOT_RUN)


def refuses(match: Match, view: DataflowGraph, target: Target) -> str | None:
    """Why a target has no kernel for the node that a match would become; None where it has one."""
    limits = target.operators.get(match.rule.op_type)
    if limits is None:
        return f"the target {target.name} has no kernel for {match.rule.op_type}"
    attributes = {**match.attributes, **match.rule.defaults}
    weight = match.values.get("w")
    dims = view.dims(weight) if weight else None
    tensor = view.constant(weight) if weight else None
    slope = match.values.get("slope")
    use = _Use(
        op_type=match.rule.op_type,
        domain=match.rule.domain,
        attributes=attributes,
        rank=len(dims) if dims is not None else None,
        dtypes=frozenset([_dtype(tensor.data_type)] if tensor is not None else []),
        slope=_slope_kind(view, slope, None if dims is None else len(dims)) if slope else None,
        outputs=1,
    )
    reason = next(_limit_problems(use, limits, {}), None)
    return None if reason is None else f"the kernel of the target {target.name} {reason}"


def _scope_problems(scope: Scope, target: Target, types: Mapping[str, tuple[int, int | None]]) -> Iterator[Problem]:
    view = DataflowGraph.of(scope)
    newest = target.opsets
    if newest is not None and not newest[0] <= scope.opset <= newest[1] and scope.nodes:
        reason = f"opset {scope.opset} is outside {newest[0]} to {newest[1]}"
        yield Problem(CANNOT_RUN, "all nodes", scope.title or "the graph", reason, scope.title)
    for node in scope.nodes:
        if node.domain == "" and node.op_type == "Constant":
            continue  # no work at run time
        limits = target.operators.get(node.op_type) if node.domain in ("", FUSED_DOMAIN) else None
        if limits is None:
            domain = f" of domain {node.domain!r}" if node.domain not in ("", FUSED_DOMAIN) else ""
            yield Problem(
                CANNOT_RUN, node.op_type, node.label, f"it has no kernel for {node.op_type}{domain}", scope.title
            )
            continue
        for reason in _limit_problems(_use(node, view, types), limits, _defaults(node, scope.opset)):
            yield Problem(CANNOT_RUN, node.op_type, node.label, f"its kernel {reason}", scope.title)
        if limits.differs:
            yield Problem(DIFFERS, node.op_type, node.label, f"its kernel {limits.differs}", scope.title)


def _use(node: Node, view: DataflowGraph, types: Mapping[str, tuple[int, int | None]]) -> _Use:
    computed = [name for name in (*node.inputs, *node.outputs) if name and view.constant(name) is None]
    first = node.inputs[0] if node.inputs else ""
    rank = view.rank(first) if first else None
    if rank is None and first in types:
        rank = types[first][1]
    slope = node.inputs[-1] if node.op_type in ("PRelu", "ConvPRelu") and len(node.inputs) > 1 else None
    return _Use(
        op_type=node.op_type,
        domain=node.domain,
        attributes=node.attributes,
        rank=rank,
        dtypes=frozenset(_dtype(types[name][0]) for name in computed if name in types and types[name][0]),
        slope=_slope_kind(view, slope, rank) if slope else None,
        outputs=sum(
            bool(name) and (place == 0 or view.read_count(name) > 0) for place, name in enumerate(node.outputs)
        ),
    )


def _limit_problems(use: _Use, limits: OperatorLimits, defaults: Mapping[str, Any]) -> Iterator[str]:
    """What a kernel does not take of a use, each as the end of a sentence about the kernel."""
    if limits.ranks is not None and use.rank is not None and use.rank not in limits.ranks:
        yield f"takes rank {listed(limits.ranks, 'or')}, not {use.rank}"
    if limits.dtypes is not None:
        for dtype in sorted(use.dtypes - set(limits.dtypes)):
            yield f"takes {listed(limits.dtypes, 'or')}, not {dtype}"
    if not limits.groups and _value(use, "group", 1) != 1:
        yield f"takes no groups, here {_value(use, 'group', 1)}"
    if not limits.dilations and any(step != 1 for step in _value(use, "dilations", [])):
        yield f"takes no dilations, here {_value(use, 'dilations', [])}"
    if limits.slopes is not None and use.slope is not None and not {use.slope, "any"} & set(limits.slopes):
        yield f"takes a slope of {listed(limits.slopes, 'or')}, not of another shape"
    producer = _value(use, "producer_op", None)
    if limits.producers is not None and producer is not None and producer not in limits.producers:
        yield f"takes {listed(limits.producers, 'or')} as producer, not {producer}"
    for name, allowed in limits.attributes.items():
        found = _value(use, name, defaults.get(name))
        if found is not None and found not in allowed:
            yield f"takes {name} {listed(allowed, 'or')}, not {found}"
    if limits.outputs is not None and use.outputs > limits.outputs:
        yield f"has {counted(limits.outputs, 'output')}, not {use.outputs}"


def _value(use: _Use, name: str, default: Any) -> Any:
    attribute = use.attributes.get(name)
    if attribute is None or attribute.ref_attr_name:
        return default
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def _defaults(node: Node, opset: int) -> dict[str, Any]:
    """The values that absent attributes have."""
    if node.domain != "" or not defs.has(node.op_type, opset, ""):
        return {}
    found = {}
    for name, attribute in defs.get_schema(node.op_type, opset, "").attributes.items():
        if attribute.default_value.type != AttributeProto.UNDEFINED:
            value = helper.get_attribute_value(attribute.default_value)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def _slope_kind(view: DataflowGraph, slope: str, rank: int | None) -> str | None:
    dims = view.dims(slope)
    if dims is None or None in dims:
        return None
    if all(dim == 1 for dim in dims):
        return "one"
    aligned = (1,) * ((rank or len(dims)) - len(dims)) + dims
    return "channel" if all(dim == 1 for dim in aligned[:1] + aligned[2:]) else "any"


def _types(model: ModelProto) -> dict[str, tuple[int, int | None]]:
    """Element type and rank of every value of the main graph, as far as they can be inferred."""
    graph = inferred_shapes(shape_skeleton(model))
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output, *model.graph.output):
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.elem_type:
            found[value.name] = tensor.elem_type, len(tensor.shape.dim) if tensor.HasField("shape") else None
    return found


def _dtype(element_type: int) -> str:
    if element_type == TensorProto.STRING:
        return "string"
    return np.dtype(helper.tensor_dtype_to_np_dtype(element_type)).name
