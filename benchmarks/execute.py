"""How fast models run, and in how much memory: ngine_ref on the fused and the unfused model, and with plain kernels on
the fused one, beside onnxruntime.

    python benchmarks/execute.py MODEL_OR_FOLDER ... [--size 64 --size 61x83] [--repeat 5] [--json results.json]
    python benchmarks/execute.py --targets [MODEL_OR_FOLDER ...]

MODEL may also be `demo:realesrgan-x4plus`, `demo:realesr-general-x4v3` or `demo:span-x4`. Ratios are medians over turns
that the engines take in one process; memory is measured in a process for each engine. `--targets` measures what
`speed_targets.py` speaks of.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import speed_targets
import typer
from rich.console import Console
from rich.table import Table
from speed_targets import LARGER, SMALLER, Results, ratio

import graphopt
from graphopt.demo_models import build

# They make OpenBLAS choose kernels for an older processor, or take fewer threads than there are cores.
SLOWS_BLAS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20


def measure(*arguments: str) -> Any:
    """Run `measure.py` in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key not in SLOWS_BLAS}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(ROOT / "benchmarks" / "measure.py"), *arguments]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def files(sources: list[str]) -> Iterator[Path]:
    """The models in files and folders."""
    for path in map(Path, sources):
        yield from sorted(path.glob("*.onnx")) if path.is_dir() else [path]


def models(sources: list[str]) -> Iterator[tuple[str, onnx.ModelProto]]:
    for source in sources:
        if source.startswith("demo:"):
            yield source, build(source.removeprefix("demo:"))
            continue
        for file in files([source]):
            yield file.stem, onnx.load(file)


def random_inputs(model: onnx.ModelProto, height: int, width: int, batch: int = 1) -> dict[str, np.ndarray]:
    """Seeded inputs between 0 and 1, as pictures are; open dimensions are 1, those of a batch of images its own."""
    rng = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        dims = value.type.tensor_type.shape.dim
        open_sizes = [batch, 1, height, width] if len(dims) == 4 else [1] * len(dims)
        shape = [dim.dim_value or size for dim, size in zip(dims, open_sizes, strict=True)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        inputs[value.name] = rng.random(shape).astype(dtype)
    return inputs


def benchmark(
    model: onnx.ModelProto,
    size: tuple[int, int],
    repeat: int,
    engines: Sequence[str],
    *,
    batch: int = 1,
    memory: Sequence[str] = (),
    larger: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Times of the engines, the memory of some, and the growth of the fused model's time to a larger size."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("model.onnx", "fused.onnx", "inputs.npz")]
        onnx.save(model, paths[0])
        onnx.save(graphopt.fuse(model).model, paths[1])
        np.savez(paths[2], **random_inputs(model, *size, batch))
        result: dict[str, Any] = measure("times", *paths, str(repeat), *engines)
        if memory:
            result["memory"] = {name: measure("memory", *paths, name) for name in memory}
        if larger is not None:
            more = str(Path(folder) / "larger.npz")
            np.savez(more, **random_inputs(model, *larger, batch))
            result["growth"] = measure("growth", *paths, more, str(repeat))
    return result


def blas_of(results: Sequence[dict[str, Any]]) -> str:
    """Which BLAS kernels ran, in a sentence."""
    libraries = {
        f"{library['internal_api']} {library['version']}, kernels for {library.get('architecture', 'any processor')}"
        for result in results
        for library in result["blas"]
    }
    return f"NumPy's BLAS: {', '.join(sorted(libraries)) or 'unknown'}."


def as_row(name: str, size: str, result: dict[str, Any]) -> list[str]:
    seconds, memory = result["seconds"], result["memory"]
    base = seconds["onnxruntime"]
    ratios = [
        "" if (value := ratio(result, engine)) is None else f"{value:.2f}"
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


def measure_targets(sources: list[str], repeat: int, console: Console) -> Results:
    """All that targets speak of and that there is a model for."""
    given: dict[str, Path] = {}
    for file in files(sources):
        role = speed_targets.role_of(file)
        if role is None:
            console.print(f"No target speaks of {file.name}; it is left out.")
        else:
            given[role] = file
    results: Results = {}
    for case, engines in speed_targets.cases(given).items():
        model = speed_targets.model_of(case.role, given)
        if model is None:
            continue
        with console.status(f"{case.role} at {case.size}, batch {case.batch}"):
            results[case] = benchmark(
                model,
                case.size,
                repeat,
                ["onnxruntime", "fused", *engines],
                batch=case.batch,
                memory=("onnxruntime", "fused") if case == LARGER else (),
                larger=LARGER.size if case == SMALLER else None,
            )
    return results


def benchmark_table(figures: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        *("model", "size", "onnxruntime ms", "fused ×", "unfused ×", "plain ×", "ReferenceEvaluator ×"),
        *("peak MiB: onnxruntime", "fused", "unfused", "plain"),
        *("moved MiB: fused", "unfused", "plain", "max error"),
        title="ngine_ref's time as a multiple of onnxruntime's, and peak memory over loaded",
    )
    for figure in figures:
        table.add_row(*as_row(figure["model"], figure["size"], figure))
    return table


def main(
    sources: Annotated[list[str] | None, typer.Argument(metavar="MODEL_OR_FOLDER...")] = None,
    size: Annotated[list[str] | None, typer.Option(help="N or HEIGHTxWIDTH; repeatable.")] = None,
    repeat: Annotated[int, typer.Option(help="Runs of each engine, after one to warm up.")] = 5,
    reference: Annotated[bool, typer.Option(help="Also time onnx's ReferenceEvaluator.")] = False,
    targets: Annotated[bool, typer.Option("--targets", help="What was to be reached, beside what is.")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Where to write all figures.")] = None,
) -> None:
    """Time models and measure their memory."""
    if not sources and not targets:
        raise typer.BadParameter("name a model or a folder of them, or ask for --targets")
    console = Console()
    written: dict[str, Any]
    if targets:
        results = measure_targets(sources or [], repeat, console)
        figures = [{**case._asdict(), **result} for case, result in results.items()]
        console.print(speed_targets.targets_table(results))
        written = {"figures": figures, "targets": speed_targets.rows(results)}
    else:
        figures = []
        ours = ("fused", "unfused", "plain")
        for name, model in models(sources or []):
            for text in size or ["64"]:
                height, _, width = text.partition("x")
                engines = ["onnxruntime", *ours, *(["reference"] if reference else [])]
                with console.status(f"{name} at {text}"):
                    shape = (int(height), int(width or height))
                    result = benchmark(model, shape, repeat, engines, memory=("onnxruntime", *ours))
                figures.append({"model": name, "size": text, **result})
        console.print(benchmark_table(figures))
        written = {"figures": figures}
    console.print(blas_of(figures))
    if json_path is not None:
        json_path.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    typer.run(main)
