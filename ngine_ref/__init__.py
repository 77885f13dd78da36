"""Runs ONNX models with NumPy: by readable kernels, or by fast paths that differ in rounding."""

from ngine_ref import ops as ops
from ngine_ref.errors import (
    FeedError,
    ModelError,
    NgineError,
    OperatorError,
    ShapeError,
    UnknownOperatorError,
)
from ngine_ref.options import SessionOptions
from ngine_ref.registry import get
from ngine_ref.session import InferenceSession, NodeArg, RunReport
from ngine_ref.worker_pool import WorkerPool

__all__ = [
    "FeedError",
    "InferenceSession",
    "ModelError",
    "NgineError",
    "NodeArg",
    "OperatorError",
    "RunReport",
    "SessionOptions",
    "ShapeError",
    "UnknownOperatorError",
    "WorkerPool",
    "get",
]
