"""What can go wrong in `graphopt`: each class is one kind, each message one sentence that names the file or node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphopt.fusion_result import FusionResult


class GraphoptError(Exception):
    """The root of every error that graphopt raises on purpose."""

    exit_status = 2
    """What the command line exits with: 2, the input or the call is wrong; 1, a check failed."""


class ModelError(GraphoptError):
    """A model file cannot be read, is not ONNX, or breaks a rule of ONNX."""


class SaveError(GraphoptError):
    """The result cannot be written where it should go; nothing was left behind."""


class RuleError(GraphoptError):
    """A rule file is wrong; the message begins with the file and the line."""


class UsageError(GraphoptError):
    """A call or an option asks for something that does not exist or does not fit."""


class CertificateError(GraphoptError):
    """The rewritten model does not compute the same expressions; nothing was written."""

    exit_status = 1


class VerificationError(GraphoptError):
    """The two models gave different numbers."""

    exit_status = 1

    def __init__(self, message: str, result: FusionResult | None = None) -> None:
        super().__init__(message)
        self.result = result
        """What a fusion came to whose result failed; None where models were only compared."""
