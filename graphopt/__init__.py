"""Fuses the operators of ONNX models by rules that are ONNX functions, and proves that nothing changed.

result = graphopt.fuse("model.onnx")
result.model, result.report.counts, result.report.refusals
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names once more, for type checkers
    from graphopt.errors import CertificateError as CertificateError
    from graphopt.errors import GraphoptError as GraphoptError
    from graphopt.errors import ModelError as ModelError
    from graphopt.errors import RuleError as RuleError
    from graphopt.errors import SaveError as SaveError
    from graphopt.errors import UsageError as UsageError
    from graphopt.errors import VerificationError as VerificationError
    from graphopt.explanation import Explanation as Explanation
    from graphopt.explanation import Verdict as Verdict
    from graphopt.explanation import explain as explain
    from graphopt.fusion import fuse as fuse
    from graphopt.fusion_result import FusionResult as FusionResult
    from graphopt.inlining import unfuse as unfuse
    from graphopt.ledger import Absorption as Absorption
    from graphopt.ledger import Fusion as Fusion
    from graphopt.ledger import Refusal as Refusal
    from graphopt.ledger import Report as Report
    from graphopt.rule_files.rule_set import RuleSet as RuleSet
    from graphopt.rule_files.rule_set import load_rules as load_rules
    from graphopt.verifying.verification import verify as verify
    from graphopt.verifying.verification_report import VerificationReport as VerificationReport

_HOME = {
    "Absorption": "ledger",
    "CertificateError": "errors",
    "Explanation": "explanation",
    "Fusion": "ledger",
    "FusionResult": "fusion_result",
    "GraphoptError": "errors",
    "ModelError": "errors",
    "Refusal": "ledger",
    "Report": "ledger",
    "RuleError": "errors",
    "RuleSet": "rule_files.rule_set",
    "SaveError": "errors",
    "UsageError": "errors",
    "Verdict": "explanation",
    "VerificationError": "errors",
    "VerificationReport": "verifying.verification_report",
    "explain": "explanation",
    "fuse": "fusion",
    "load_rules": "rule_files.rule_set",
    "unfuse": "inlining",
    "verify": "verifying.verification",
}
"""The module of each public name."""

__version__ = "0.1.0"
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """A public name, its module imported when it is first used: `import graphopt` and `--help` stay light."""
    if name not in _HOME:
        raise AttributeError(f"module 'graphopt' has no attribute {name!r}")
    value = getattr(import_module(f"graphopt.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
