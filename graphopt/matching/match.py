"""What comes of laying a rule's body over a graph: a match, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from onnx import AttributeProto

from graphopt.rule import PatternNode, Rule
from graphopt.wording import listed

ABSENT = None
"""What an optional input is bound to where the node does not even name it; '' where it names it as absent."""

Bindings = dict[str, str | None]


class Match(NamedTuple):
    """A rule's body found in a graph."""

    rule: Rule
    anchor: int
    nodes: tuple[int, ...]
    """The matched nodes, one for each node of the rule's body."""
    values: Mapping[str, str | None]
    """The graph's value for each value of the body."""
    variadic: tuple[str, ...]
    """The graph's values for the rule's variadic input."""
    bound: Mapping[str, AttributeProto | None]
    """The rule's attributes, as the matched nodes have them; None for those that they lack."""
    identities: tuple[int, ...] = ()
    """The Identity nodes between the matched ones."""

    @property
    def attributes(self) -> Mapping[str, AttributeProto]:
        """The rule's attributes that the matched nodes have. Made when asked for: equal matches are asked once."""
        return {name: attribute for name, attribute in self.bound.items() if attribute is not None}


class Fault(NamedTuple):
    """What does not fit, and where."""

    template: str
    about: tuple[object, ...]
    """What stands in the template's places. Most mismatches are never shown, and sentences cost more than matching."""
    at: str
    """The value or node of the graph at fault."""
    instead: str = ""
    """How the sentence goes on where the operator is another one: ', not by'."""

    @property
    def reason(self) -> str:
        """What does not fit, a phrase."""
        return self.template.format(*self.about)


class Mismatch(NamedTuple):
    """Why a rule's body does not occur at an anchor, for one assignment of operands."""

    rule: Rule
    anchor: int
    failed: PatternNode
    """The node of the body that has no counterpart."""
    values: Mapping[str, str | None]
    """What was bound before."""
    variadic: tuple[str, ...]
    fault: Fault
    nodes: tuple[int, ...] = ()
    """No node counts as matched while the body is not."""

    def sentence(self, operators: Sequence[str]) -> str:
        """The reason, where any of these operators would have done."""
        return self.fault.reason + (f"{self.fault.instead} {listed(operators, 'or')}" if self.fault.instead else "")
