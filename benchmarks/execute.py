"""How fast models run, and in how much memory: ngine_ref on the fused and the unfused model, and with plain kernels on
the fused one, beside onnxruntime.

    python benchmarks/execute.py MODEL_OR_FOLDER ... [--size 64 --size 61x83] [--repeat 5] [--json results.json]

MODEL may also be `demo:realesrgan-x4plus`, `demo:realesr-general-x4v3` or `demo:span-x4`. Ratios are to onnxruntime's
time in the same process, where the engines take turns; memory is measured in a process for each engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from rich.console import Console
from rich.table import Table

import graphopt
from graphopt.demo_models import build

# They make OpenBLAS choose kernels for an older processor.
SLOWS_BLAS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20


def measure(*arguments: str) -> Any:
    """Run `measure.py` in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key not in SLOWS_BLAS}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(ROOT / "benchmarks" / "measure.py"), *arguments]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def models(sources: list[str]) -> Iterator[tuple[str, onnx.ModelProto]]:
    for source in sources:
        if source.startswith("demo:"):
            yield source, build(source.removeprefix("demo:"))
            continue
        path = Path(source)
        for file in sorted(path.glob("*.onnx")) if path.is_dir() else [path]:
            yield file.stem, onnx.load(file)


def random_inputs(model: onnx.ModelProto, height: int, width: int) -> dict[str, np.ndarray]:
    """Seeded inputs; a dimension without a size is 1, but the last two of an image are height and width."""
    rng = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        dims = value.type.tensor_type.shape.dim
        open_sizes = [1] * (len(dims) - 2) + [height, width] if len(dims) == 4 else [1] * len(dims)
        shape = [dim.dim_value or size for dim, size in zip(dims, open_sizes, strict=True)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        inputs[value.name] = rng.standard_normal(shape).astype(dtype)
    return inputs


def benchmark(model: onnx.ModelProto, size: tuple[int, int], repeat: int, *, reference: bool) -> dict[str, Any]:
    engines = ["onnxruntime", "fused", "unfused", "plain", *(["reference"] if reference else [])]
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("model.onnx", "fused.onnx", "inputs.npz")]
        onnx.save(model, paths[0])
        onnx.save(graphopt.fuse(model).model, paths[1])
        np.savez(paths[2], **random_inputs(model, *size))
        result: dict[str, Any] = measure("times", *paths, str(repeat), *engines)
        result["memory"] = {name: measure("memory", *paths, name) for name in engines[:4]}
    return result


def as_row(name: str, size: str, result: dict[str, Any]) -> list[str]:
    seconds, memory = result["seconds"], result["memory"]
    base = seconds["onnxruntime"]
    ratios = [
        f"{seconds[engine] / base:.2f}" if engine in seconds else ""
        for engine in ("fused", "unfused", "plain", "reference")
    ]
    return [
        name,
        size,
        f"{base * 1000:.1f}",
        *ratios,
        *(f"{memory[engine] / MIB:.0f}" for engine in ("onnxruntime", "fused", "unfused", "plain")),
        *(f"{result['bytes_moved'][engine] / MIB:.0f}" for engine in ("fused", "unfused", "plain")),
        f"{result['max_error']['fused']:.1e}",
    ]


def main(
    sources: Annotated[list[str], typer.Argument(metavar="MODEL_OR_FOLDER...")],
    size: Annotated[list[str] | None, typer.Option(help="N or HEIGHTxWIDTH; repeatable.")] = None,
    repeat: Annotated[int, typer.Option(help="Runs of each engine, after one to warm up.")] = 5,
    reference: Annotated[bool, typer.Option(help="Also time onnx's ReferenceEvaluator.")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Where to write all figures.")] = None,
) -> None:
    """Time models and measure their memory."""
    table = Table(
        *("model", "size", "onnxruntime ms", "fused ×", "unfused ×", "plain ×", "ReferenceEvaluator ×"),
        *("peak MiB: onnxruntime", "fused", "unfused", "plain"),
        *("moved MiB: fused", "unfused", "plain", "max error"),
        title="ngine_ref's time as a multiple of onnxruntime's, and peak memory over loaded",
    )
    figures: list[dict[str, Any]] = []
    console = Console()
    for name, model in models(sources):
        for text in size or ["64"]:
            height, _, width = text.partition("x")
            with console.status(f"{name} at {text}"):
                result = benchmark(model, (int(height), int(width or height)), repeat, reference=reference)
            figures.append({"model": name, "size": text, **result})
            table.add_row(*as_row(name, text, result))
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    typer.run(main)
