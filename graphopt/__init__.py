"""Fuses the operators of ONNX models by rules that are ONNX functions, and proves that nothing changed.

result = graphopt.fuse("model.onnx")
result.model, result.report.counts, result.report.refusals
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt.errors import (
        CertificateError,
        GraphoptError,
        ModelError,
        RuleError,
        SaveError,
        UsageError,
        VerificationError,
    )
    from graphopt.explanation import Explanation, Verdict, explain
    from graphopt.fusion import FusionResult, fuse
    from graphopt.inlining import unfuse
    from graphopt.ledger import Absorption, Fusion, Refusal, Report
    from graphopt.rule_files.rule_set import RuleSet, load_rules
    from graphopt.verifying.verification import VerificationReport, verify

_HOMES = {
    "errors": (
        "CertificateError",
        "GraphoptError",
        "ModelError",
        "RuleError",
        "SaveError",
        "UsageError",
        "VerificationError",
    ),
    "explanation": ("Explanation", "Verdict", "explain"),
    "fusion": ("FusionResult", "fuse"),
    "inlining": ("unfuse",),
    "ledger": ("Absorption", "Fusion", "Refusal", "Report"),
    "rule_files.rule_set": ("RuleSet", "load_rules"),
    "verifying.verification": ("VerificationReport", "verify"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [  # the same names as above
    "Absorption",
    "CertificateError",
    "Explanation",
    "Fusion",
    "FusionResult",
    "GraphoptError",
    "ModelError",
    "Refusal",
    "Report",
    "RuleError",
    "RuleSet",
    "SaveError",
    "UsageError",
    "Verdict",
    "VerificationError",
    "VerificationReport",
    "explain",
    "fuse",
    "load_rules",
    "unfuse",
    "verify",
]


def __getattr__(name: str) -> Any:
    """A public name, its module imported when it is first used: `import graphopt` and `--help` stay light."""
    if name not in _HOME:
        raise AttributeError(f"module 'graphopt' has no attribute {name!r}")
    value = getattr(import_module(f"graphopt.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
