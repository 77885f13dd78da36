"""Steps rewritten into simpler ones before memory is laid out."""

from __future__ import annotations

from dataclasses import replace

from ngine_ref import registry
from ngine_ref.loading.graph import Node
from ngine_ref.nodes.evaluation import bind
from ngine_ref.nodes.fused_meaning import tail_attributes
from ngine_ref.planning.plan import Draft, Step
from ngine_ref.registry import FUSED_DOMAIN, Operator


def split_fused_tails(plan: Draft) -> tuple[Draft, set[int]]:
    """Split every bound `ConcatFusedTail` into its convolution and a `Concat`.

    The layout then makes the convolution's output the tail slice of the joint buffer, as it does with any Concat, so
    nothing is lost; and the prefix can be in place already too.

    Returns:
        a new draft, and the values that are such tails.
    """
    split = Draft(list(plan.values), [], plan.inputs, plan.results)
    tails: set[int] = set()
    for step in plan.steps:
        if step.node.op_type != "ConcatFusedTail" or step.kernel is None or _producer(step.node) is None:
            split.steps.append(step)
            continue
        convolution, join = _split(split, step)
        split.steps += [convolution, join]
        tails.update(convolution.made())
    return split, tails


def _producer(node: Node) -> Operator | None:
    name = node.attributes.get("producer_op", "")
    return registry.find(name, "" if name == "Conv" else FUSED_DOMAIN)


def _split(plan: Draft, step: Step) -> tuple[Step, Step]:
    node, operator = step.node, _producer(step.node)
    assert operator is not None
    count = node.attributes["prefix_count"]
    name = f"{node.outputs[0]}/tail"
    convolution = replace(
        node,
        op_type=operator.op_type,
        domain=operator.domain,
        opset=registry.NEWEST_OPSET,
        inputs=node.inputs[count:],
        outputs=(name,),
        attributes=tail_attributes(node.attributes),
    )
    inputs = step.inputs[count:]
    kernel = bind(convolution, operator, [None if value is None else plan.values[value].spec for value in inputs])
    tail = plan.add(name, kernel.outputs[0])
    assert step.kernel is not None
    axis = node.attributes.get("axis", 1) % len(step.kernel.outputs[0].shape)
    return (
        Step(convolution, inputs, (tail,), kernel),
        Step(node, (*step.inputs[:count], tail), step.outputs, step.kernel, join_axis=axis),
    )
