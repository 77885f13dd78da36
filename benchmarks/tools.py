"""graphopt and its peers, each as a step that optimises a model in process, and as a command line."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

Step = Callable[[], int]
"""Optimises; returns the number of nodes that are left in the main graph."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that optimises ONNX models."""

    name: str
    module: str
    prepare: Callable[[Path], Step]
    """Imports the tool and loads the model, so that the step it returns is the optimising alone."""
    command: Callable[[str, str], list[str]] | None = None
    """Its command line from an input to an output file; None where it has none."""

    @property
    def is_installed(self) -> bool:
        """Whether it can be measured here."""
        return importlib.util.find_spec(self.module) is not None


def _graphopt(path: Path) -> Step:
    from graphopt.fusion import fuse

    # As for the peers: the graph is in memory, and external weights are not.
    model = onnx.load(path, load_external_data=False)
    return lambda: len(fuse(model).model.graph.node)


def _onnxsim(path: Path) -> Step:
    import onnxsim

    model = onnx.load(path)
    return lambda: len(onnxsim.simplify(model)[0].graph.node)


def _onnxslim(path: Path) -> Step:
    import onnxslim

    model = onnx.load(path)
    return lambda: len(onnxslim.slim(model).graph.node)


def _onnxoptimizer(path: Path) -> Step:
    import onnxoptimizer

    model = onnx.load(path)
    return lambda: len(onnxoptimizer.optimize(model).graph.node)


def _onnxscript(path: Path) -> Step:
    import onnxscript.rewriter

    model = onnx.load(path)
    return lambda: len(onnxscript.rewriter.rewrite(model).graph.node)


def _onnxruntime(path: Path) -> Step:
    import onnxruntime

    output = path.with_name("onnxruntime.onnx")

    def optimise() -> int:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(output)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return 0  # what it saved is not read back while the clock runs

    return optimise


def _script(name: str) -> str:
    """A console script of this very Python, not of whatever comes first in the search path."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or name


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "graphopt",
            "graphopt",
            _graphopt,
            lambda source, output: [
                sys.executable, "-c", "from graphopt.cli import main; main()", "fuse", source, output, "--quiet"
            ],
        ),
        Tool("onnxsim", "onnxsim", _onnxsim, lambda source, output: [_script("onnxsim"), source, output]),
        Tool("onnxslim", "onnxslim", _onnxslim, lambda source, output: [_script("onnxslim"), source, output]),
        Tool(
            "onnxoptimizer",
            "onnxoptimizer",
            _onnxoptimizer,
            lambda source, output: [sys.executable, "-m", "onnxoptimizer", source, output],
        ),
        Tool("onnxscript", "onnxscript", _onnxscript),
        Tool("onnxruntime", "onnxruntime", _onnxruntime),
    )
}  # fmt: skip
"""Ours first; the others are divided into."""
