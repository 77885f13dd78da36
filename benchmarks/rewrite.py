"""How long rewriting takes as graphs grow, and how much memory, beside the peers that are installed.

    pip install '.[bench]' && python benchmarks/rewrite.py [--quick] [--graph NAME]... [--json FILE]

Every measurement is a process of its own, and the tools take turns, so that a busy moment of the machine does not fall
on one of them alone. In process means: without import, load and save, certificate and report included. The table shows
the median of our time and what part of each peer's time that is; below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from graphs import GRAPHS
from rich.console import Console
from rich.table import Table
from tools import TOOLS

HERE = Path(__file__).resolve().parent
OURS = "graphopt"
COMMAND_LINE_GRAPHS = ("rrdbnet-1k", "external-12g")
QUICK_GRAPHS = ("rrdbnet-1k", "rrdbnet-9k", "yolo", "transformer", "external-12g")


@dataclass
class Result:
    """What was measured of one tool on one graph, in process or as a command line."""

    graph: str
    tool: str
    command_line: bool
    seconds: list[float] = field(default_factory=list)
    peak_megabytes: float = 0.0
    nodes: int = 0
    nodes_after: int | None = None
    failure: str | None = None

    @property
    def median(self) -> float | None:
        """Seconds; None where the tool failed."""
        return statistics.median(self.seconds) if self.seconds and not self.failure else None


def _environment() -> dict[str, str]:
    """This process's environment, without what some machines set for the sake of old OpenBLAS builds."""
    dropped = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    return {key: value for key, value in os.environ.items() if key not in dropped}


def _run(command: list[str], limit: float) -> tuple[float, float, str]:
    """Run a command to its end: seconds, peak memory in MB, and what it printed. Raises what subprocess raises."""
    # A small process of its own stands between, whose only child is measured: its peak is then the child's.
    program = (
        "import json, resource, subprocess, sys, time; start = time.perf_counter(); "
        "done = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, "
        "timeout=float(sys.argv[1])); "
        "json.dump([time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, "
        "done.returncode, done.stdout, done.stderr[-2000:]], sys.stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(limit), *command], capture_output=True, text=True, env=_environment()
    )
    if done.returncode:
        reason = "timeout" if "TimeoutExpired" in done.stderr else done.stderr
        raise RuntimeError(reason)
    seconds, peak, status, output, errors = json.loads(done.stdout)
    if status:
        raise RuntimeError(errors.strip() or f"exit status {status}")
    unit = 1 if sys.platform == "darwin" else 1024
    return seconds, peak * unit / 1e6, output


def measure_once(tool: str, path: Path) -> None:
    """Optimise in this process and print the seconds and the nodes left; the child of `measure`."""
    step = TOOLS[tool].prepare(path)
    start = time.perf_counter()
    nodes = step()
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, nodes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))


def _measure(result: Result, path: Path, limit: float) -> None:
    if result.failure:
        return
    try:
        if result.command_line:
            command = TOOLS[result.tool].command
            assert command is not None
            seconds, peak, _ = _run(command(str(path), str(path.with_name(f"{result.tool}.out.onnx"))), limit)
        else:
            # The limit is for the optimising; imports and loading get some seconds on top.
            _, peak, output = _run([sys.executable, __file__, "--child", result.tool, str(path)], limit + 20)
            seconds, nodes, _ = json.loads(output.splitlines()[-1])
            result.nodes_after = nodes or None
    except RuntimeError as error:
        result.failure = f"over {limit:g} s" if str(error) == "timeout" else str(error)
        return
    result.seconds.append(seconds)
    result.peak_megabytes = max(result.peak_megabytes, peak)


def benchmark(names: list[str], tools: list[str], repeats: int, limit: float, console: Console) -> list[Result]:
    """Measure all tools on all graphs, the tools taking turns."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder) / name / "model.onnx"
            path.parent.mkdir()
            nodes = int(_run([sys.executable, str(HERE / "graphs.py"), name, str(path)], limit=600)[2])
            chosen = [tool for tool in tools if tool == OURS or GRAPHS[name].peers]
            group = [Result(name, tool, command_line=False, nodes=nodes) for tool in chosen]
            if name in COMMAND_LINE_GRAPHS:
                with_command = [tool for tool in chosen if TOOLS[tool].command]
                group += [Result(name, tool, command_line=True, nodes=nodes) for tool in with_command]
            for turn in range(repeats):
                for result in group:
                    with console.status(f"{name}, {result.tool}, turn {turn + 1} of {repeats}"):
                        _measure(result, path, limit)
            results += group
    return results


def _ratio(ours: Result, theirs: Result | None, limit: float) -> str:
    if theirs is None or ours.median is None:
        return ""
    if theirs.median is not None:
        return f"{ours.median / theirs.median:.3f}"
    return f"< {ours.median / limit:.3f}" if theirs.failure and theirs.failure.startswith("over") else "failed"


def table(results: list[Result], limit: float) -> Table:
    """Our medians and peaks, and our part of each peer's time."""
    found = {(result.graph, result.command_line, result.tool): result for result in results}
    peers = list(dict.fromkeys(result.tool for result in results if result.tool != OURS))
    shown = Table(title="graphopt fuse beside its peers: our time as a part of theirs")
    shown.add_column("graph")
    for heading in ("seconds", "peak MB", "nodes", "after", *(f"of {peer}" for peer in peers)):
        shown.add_column(heading, justify="right")
    for (name, command_line, tool), ours in found.items():
        if tool != OURS:
            continue
        shown.add_row(
            GRAPHS[name].title + (", command line" if command_line else ""),
            "failed" if ours.median is None else f"{ours.median:.3f}",
            f"{ours.peak_megabytes:.0f}",
            f"{ours.nodes:,}",
            f"{ours.nodes_after:,}" if ours.nodes_after else "",
            *(_ratio(ours, found.get((name, command_line, peer)), limit) for peer in peers),
        )
    return shown


def growth(results: list[Result]) -> str:
    """How our time grew where the nodes grew ten times and more."""
    ours = {r.graph: r.median for r in results if r.tool == OURS and not r.command_line}
    steps = [("rrdbnet-9k", "rrdbnet-94k", 94012 / 9412), ("rrdbnet-94k", "rrdbnet-300k", 300013 / 94012)]
    return "".join(
        f"{small} to {large}: {large_time / small_time:.1f} times the time for {factor:.1f} times the nodes.\n"
        for small, large, factor in steps
        if (small_time := ours.get(small)) and (large_time := ours.get(large))
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small graphs, one turn, 30 seconds a tool")
    parser.add_argument("--graph", action="append", choices=GRAPHS, help="only this graph (repeatable)")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="only this tool beside ours (repeatable)")
    parser.add_argument("--repeats", type=int, default=3, help="turns; the median counts")
    parser.add_argument("--limit", type=float, default=150, help="seconds after which a tool is stopped")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    parser.add_argument("--child", nargs=2, metavar=("TOOL", "FILE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    if arguments.child:
        measure_once(arguments.child[0], Path(arguments.child[1]))
        return
    console = Console()
    repeats, limit = (1, 30.0) if arguments.quick else (arguments.repeats, arguments.limit)
    names = arguments.graph or list(QUICK_GRAPHS if arguments.quick else GRAPHS)
    tools = [name for name in TOOLS if name == OURS or name in (arguments.tool or TOOLS)]
    installed = [name for name in tools if TOOLS[name].is_installed]
    for name in set(tools) - set(installed):
        console.print(f"{name} is not installed and left out.")
    results = benchmark(names, installed, repeats, limit, console)
    console.print(table(results, limit))
    console.print(growth(results), end="")
    for result in results:
        if result.failure and not result.failure.startswith("over"):
            console.print(f"{result.tool} failed on {result.graph}: {result.failure.splitlines()[-1]}", markup=False)
    if arguments.json:
        machine = {"platform": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
        rows = [{**asdict(result), "median": result.median} for result in results]
        arguments.json.write_text(json.dumps({"schema": 1, "machine": machine, "results": rows}, indent=1))


if __name__ == "__main__":
    main()
