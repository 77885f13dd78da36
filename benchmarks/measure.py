"""What `execute.py` runs in processes of its own: one measurement, printed as JSON.

measure.py times  MODEL FUSED INPUTS REPEAT ENGINE...     alternating runs, in seconds
measure.py memory MODEL FUSED INPUTS ENGINE               peak over what was resident with the model loaded, in bytes
measure.py growth MODEL FUSED INPUTS LARGER REPEAT        time of the fused model on larger inputs, of that on inputs
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
from threadpoolctl import threadpool_info

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
            seconds[name].append(seconds_of(run))
    reports = {name: session.last_run for name, (_, session) in runs.items() if hasattr(session, "last_run")}
    right = outputs[names[0]]
    return {
        "turns": seconds,
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "max_error": {name: max(map(max_error, right, made)) for name, made in outputs.items()},
        "largest": max(float(np.max(np.abs(array), initial=0.0)) for array in right),
        "bytes_moved": {name: report.bytes_moved for name, report in reports.items()},
        "bytes_copied": {name: report.bytes_copied for name, report in reports.items()},
        "peak_bytes": {name: report.peak_bytes for name, report in reports.items()},
        "blas": [library for library in threadpool_info() if library["user_api"] == "blas"],
    }


def max_error(right: np.ndarray, made: np.ndarray) -> float:
    return float(np.max(np.abs(right.astype(np.float64) - made.astype(np.float64)), initial=0.0))


def memory(model: str, fused: str, inputs: str, name: str) -> int:
    run, _ = engine(name, model, fused, inputs)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    loaded = status("VmRSS")
    run()
    return status("VmHWM") - loaded


def growth(model: str, fused: str, inputs: str, larger: str, repeat: int) -> float:
    sizes = [engine("fused", model, fused, file)[0] for file in (inputs, larger)]
    for run in sizes:
        run()
    ratios = []
    for _ in range(repeat):
        small, large = map(seconds_of, sizes)
        ratios.append(large / small)
    return statistics.median(ratios)


def seconds_of(run: Run) -> float:
    # onnxruntime's threads spin for a moment after a run: whoever comes next would lose a core to them.
    time.sleep(0.03)
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def status(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


if __name__ == "__main__":
    what, model, fused, inputs, *rest = sys.argv[1:]
    match what:
        case "times":
            answer: Any = times(model, fused, inputs, int(rest[0]), rest[1:])
        case "growth":
            answer = growth(model, fused, inputs, rest[0], int(rest[1]))
        case _:
            answer = memory(model, fused, inputs, *rest)
    print(json.dumps(answer))
