"""What a fusion decided, as values: fused, refused and why, absorbed. Everything a report shows comes from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Refusal:
    """A candidate that was left as it is."""

    rule: str
    """The fused operator it would have become."""
    anchor: str
    """The candidate: the name of its last node (that of its output where it has none)."""
    condition: int
    """The number of the condition that failed."""
    name: str
    """The name of that condition."""
    reason: str
    """One sentence."""
    at: str
    """The node or value at fault."""
    scope: str = ""
    """Where the candidate stands: '' is the main graph."""


class Fusion(NamedTuple):
    """A fused node. There are as many as fused nodes, and a frozen dataclass takes four times as long to make."""

    rule: str
    node: str
    """The name of the fused node."""
    replaces: tuple[str, ...]
    """The names of the nodes it replaced."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Absorption:
    """A candidate whose nodes an earlier fusion had taken."""

    rule: str
    anchor: str
    by: str
    """The fused node that took them."""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A node or an initializer that a cleanup removed."""

    cleanup: str
    node: str
    """Its name, or that of its first output."""
    values: tuple[str, ...]
    """What it made."""
    scope: str = ""


@dataclass(slots=True)
class Ledger:
    """Every decision of one run, in the order they were taken."""

    counts: dict[str, int] = field(default_factory=dict)
    """Applications by fused operator, zeros included."""
    fusions: list[Fusion] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    absorptions: list[Absorption] = field(default_factory=list)
    shared_prefixes: int = 0
    cleaned: list[Cleaned] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CertificateSummary:
    """The proof that nothing changed: how many outputs were shown to be the same expression of the inputs."""

    ok: bool
    outputs: int


@dataclass(frozen=True, slots=True)
class Report:
    """What one run did."""

    model: str
    output: str | None
    nodes_before: int
    nodes_after: int
    ops_before: Mapping[str, int]
    ops_after: Mapping[str, int]
    counts: Mapping[str, int]
    shared_prefixes: int
    cleanups: Mapping[str, int]
    """Nodes (and unused initializers) that were removed, by cleanup, for every cleanup that ran."""
    cleaned: tuple[Cleaned, ...]
    fusions: list[Fusion]
    refusals: list[Refusal]
    absorptions: list[Absorption]
    certificate: CertificateSummary
    changes_values: bool
    """Whether weights were folded: the certificate then holds from the folded model on, and numbers are verified."""
    functions: bool
    """Whether the bodies of the fused operators stand in the model."""
    rules_digest: str
