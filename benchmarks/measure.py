"""What `execute.py` runs in processes of its own: one measurement, printed as JSON.

measure.py times  MODEL FUSED INPUTS REPEAT ENGINE...     medians of alternating runs, in seconds
measure.py memory MODEL FUSED INPUTS ENGINE               peak over what was resident with the model loaded, in bytes
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[], list[Any]]


def engine(name: str, model: str, fused: str, inputs: str) -> tuple[Run, Any]:
    """A function that runs the model once, and the session behind it."""
    feeds = dict(np.load(inputs))
    if name == "onnxruntime":
        import onnxruntime

        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, feeds), session
    if name == "reference":
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(model)
        return lambda: evaluator.run(None, feeds), evaluator
    from ngine_ref import InferenceSession, SessionOptions

    ours = InferenceSession(model if name == "unfused" else fused, SessionOptions(fast_paths=name != "plain"))
    return lambda: ours.run(None, feeds), ours


def times(model: str, fused: str, inputs: str, repeat: int, names: list[str]) -> dict[str, Any]:
    runs = {name: engine(name, model, fused, inputs) for name in names}
    outputs = {name: run() for name, (run, _) in runs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeat):
        for name, (run, _) in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    reports = {name: session.last_run for name, (_, session) in runs.items() if hasattr(session, "last_run")}
    right = outputs[names[0]]
    return {
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "max_error": {name: max(map(max_error, right, made)) for name, made in outputs.items()},
        "bytes_moved": {name: report.bytes_moved for name, report in reports.items()},
        "bytes_copied": {name: report.bytes_copied for name, report in reports.items()},
        "peak_bytes": {name: report.peak_bytes for name, report in reports.items()},
    }


def max_error(right: np.ndarray, made: np.ndarray) -> float:
    return float(np.max(np.abs(right.astype(np.float64) - made.astype(np.float64)), initial=0.0))


def memory(model: str, fused: str, inputs: str, name: str) -> int:
    run, _ = engine(name, model, fused, inputs)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    loaded = status("VmRSS")
    run()
    return status("VmHWM") - loaded


def status(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


if __name__ == "__main__":
    what, model, fused, inputs, *rest = sys.argv[1:]
    answer = (
        times(model, fused, inputs, int(rest[0]), rest[1:]) if what == "times" else memory(model, fused, inputs, *rest)
    )
    print(json.dumps(answer))
