"""A fusion rule: an ONNX function whose body is the pattern, the meaning, and the function that is emitted.

These are the types; `rule_loader` makes them from text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from onnx import AttributeProto, FunctionProto

COMMUTATIVE = frozenset({("", "Add"), ("", "Mul")})
"""Operators whose two operands may stand in either order."""


@dataclass(frozen=True, eq=False)
class PatternNode:
    """One operator of a rule's body."""

    domain: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    exact: Mapping[str, AttributeProto]
    """Attributes that must have this very value."""
    references: Mapping[str, str]
    """Attributes that may vary: the operator's attribute by name, and the rule's attribute it goes into."""
    number: int = 0
    """The number of the condition that this node stands for, 0 where it has no label."""
    name: str = ""
    """The name of that condition."""

    @cached_property
    def is_commutative(self) -> bool:
        """Whether its two operands may stand in either order."""
        return (self.domain, self.op_type) in COMMUTATIVE

    @cached_property
    def known_attributes(self) -> frozenset[str]:
        """The attributes that the rule mentions."""
        return frozenset(self.references).union(self.exact)


class Step(NamedTuple):
    """One node of a rule's body as the matcher comes to it, with all that can be known before there is a graph."""

    pattern: PatternNode
    output: str | None
    """The value it makes; None where there are several."""
    inputs: tuple[str, ...]
    """Its inputs without the variadic one."""
    variadic_place: int | None
    """Where the variadic input stands among all of them, if this is the anchor and there is one."""
    only_binds: bool
    """Whether each input is met for the first time here and may be any value: there is nothing to compare."""


class Branch(NamedTuple):
    """How the matcher comes to a node of a rule's body where there is nothing to choose and to compare.

    Operands are counted through all steps: those of the anchor without its variadic input, then the next step's.
    """

    domain: str
    op_type: str
    operand: int
    """Which of the operands of the steps before this node makes."""
    inputs: int
    """How many it reads itself."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A named requirement of a rule, in its place among the numbered conditions."""

    number: int
    name: str
    """The label in the rule's text: `sole reader`."""
    kind: str
    """The operator in the domain `require`: `sole_reader`."""
    values: tuple[str, ...]
    """The values of the body it speaks of."""
    parameters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Rule:
    """One fusion rule."""

    domain: str
    op_type: str
    """The fused operator's name."""
    label: str
    """What tells several rules of one operator apart (the function's `overload`), '' where there is one."""
    inputs: tuple[str, ...]
    output: str
    attributes: tuple[str, ...]
    """The fused operator's attributes that are taken from the matched nodes."""
    defaults: Mapping[str, AttributeProto]
    """Attributes that fused nodes have with this value where the matched nodes give none. They are written on every
    fused node; only of a standard operator's attribute, absence says the same."""
    body: tuple[PatternNode, ...]
    """The pattern, in topological order; the last node is the anchor."""
    constants: Mapping[str, np.ndarray]
    """Values of the body that are constants, as float32."""
    conditions: tuple[Condition, ...]
    variadic: str | None
    """The input that stands for any number of inputs."""
    opsets: Mapping[str, int]
    function: FunctionProto
    """The rule as it was written, conditions included."""
    source: str
    line: int

    @cached_property
    def optional(self) -> frozenset[str]:
        """The attributes that a fused node may lack, like the standard operator of the body that has them."""
        return frozenset(target for node in self.body if not node.domain for target in node.references.values())

    @cached_property
    def anchor(self) -> PatternNode:
        """The node that matching starts from: the one that makes the output."""
        return self.body[-1]

    @property
    def key(self) -> tuple[str, str]:
        """The fused operator: domain and name. Rules with one key are tried together, one decision an anchor."""
        return self.domain, self.op_type

    @property
    def title(self) -> str:
        """The operator's name, with the rule's label where it has one."""
        return f"{self.op_type}[{self.label}]" if self.label else self.op_type

    @cached_property
    def interior(self) -> tuple[str, ...]:
        """The values that exist only inside the fused node."""
        return tuple(name for node in self.body for name in node.outputs if name != self.output)

    @cached_property
    def single_inputs(self) -> tuple[str, ...]:
        """The inputs without the variadic one."""
        return tuple(name for name in self.inputs if name != self.variadic)

    @cached_property
    def seen_through(self) -> tuple[str, ...]:
        """The values that may reach their readers through Identity nodes: the interior ones, unless the rule itself
        has an Identity."""
        return () if ("", "Identity") in self.mentioned else self.interior

    @cached_property
    def has_labelled_nodes(self) -> bool:
        """Whether a missing node of the pattern is a refusal, not just another shape."""
        return any(node.number for node in self.body)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The body from the anchor on back: every value is met at a reader before its producer."""
        steps: list[Step] = []
        met = {self.output}
        for node in reversed(self.body):
            met.update(node.outputs)
            place = node.inputs.index(self.variadic) if node is self.anchor and self.variadic in node.inputs else None
            inputs = tuple(name for name in node.inputs if place is None or name != self.variadic)
            is_new = len(set(inputs)) == len(inputs) and not {"", *met, *self.constants}.intersection(inputs)
            output = node.outputs[0] if len(node.outputs) == 1 else None
            steps.append(Step(node, output, inputs, place, is_new))
            met.update(inputs)
        return tuple(steps)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The values that the steps read, step by step, without the variadic one."""
        return tuple(name for step in self.steps for name in step.inputs)

    @cached_property
    def branches(self) -> tuple[Branch, ...] | None:
        """The steps after the first, if the body is a tree; None where operands may be exchanged, repeat or must be
        constants, or where a node makes several values."""
        if not all(step.only_binds and step.output and not step.pattern.is_commutative for step in self.steps):
            return None
        return tuple(
            Branch(step.pattern.domain, step.pattern.op_type, self.operands.index(step.output or ""), len(step.inputs))
            for step in self.steps[1:]
        )

    @cached_property
    def expected(self) -> tuple[tuple[int | None, tuple[str, str]], ...]:
        """The operators that must make the anchor's inputs, by slot; None for a slot: any of them may."""
        made = {name: (node.domain, node.op_type) for node in self.body for name in node.outputs}
        inputs = self.anchor.inputs
        variadic = inputs.index(self.variadic) if self.variadic in inputs else len(inputs)
        return tuple(
            (None if self.anchor.is_commutative else slot if slot < variadic else slot - len(inputs), made[name])
            for slot, name in enumerate(inputs)
            if name in made
        )

    @cached_property
    def numbered(self) -> tuple[Condition | PatternNode, ...]:
        """Conditions and labelled nodes in the order of their numbers."""
        labelled = [node for node in self.body if node.number]
        return tuple(sorted([*self.conditions, *labelled], key=lambda item: item.number))

    @cached_property
    def mentioned(self) -> frozenset[tuple[str, str]]:
        """The operators of the body."""
        return frozenset((node.domain, node.op_type) for node in self.body)
