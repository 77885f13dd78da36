"""What a fusion gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import ModelProto

from graphopt.ledger import Report

if TYPE_CHECKING:
    from graphopt.verifying.verification_report import VerificationReport


@dataclass(frozen=True, slots=True)
class FusionResult:
    """A rewritten model, and what was done to it."""

    model: ModelProto
    report: Report
    verification: VerificationReport | None = None
    """The comparison of numbers, where values change."""
