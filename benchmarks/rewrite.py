"""How long rewriting takes as graphs grow, and how much memory, beside the peers that are installed.

    pip install '.[bench]' && python benchmarks/rewrite.py [--quick] [--targets] [--graph NAME]... [--json FILE]

Every measurement is a process of its own, and the tools take turns, so that a busy moment of the machine does not fall
on one of them alone. In process means: without import, load and save, certificate and report included. The table shows
the median of our time and what part of each peer's time that is; below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from graphs import GRAPHS
from results import OURS, OVER_LIMIT, Result, by_key
from rich.console import Console
from rich.table import Table
from targets import GRAPHS_NEEDED, HELP, PEER, Measured, rows, targets_table
from tools import TOOLS

HERE = Path(__file__).resolve().parent
COMMAND_LINE_GRAPHS = ("rrdbnet-1k", "external-12g")
QUICK_GRAPHS = ("rrdbnet-1k", "rrdbnet-9k", "yolo", "transformer", "external-12g")


class Failed(Exception):
    """A measured process did not end well."""


def _run(command: list[str], limit: float) -> dict[str, Any]:
    """Run a command in a process of its own; see one_command.py for what comes back."""
    # Some machines set these for the sake of old OpenBLAS builds, and they slow a current NumPy.
    dropped = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    between = [sys.executable, str(HERE / "one_command.py"), str(limit)]
    done = subprocess.run([*between, *command], check=True, stdout=subprocess.PIPE, text=True, env=environment)
    measured: dict[str, Any] = json.loads(done.stdout)
    if measured["timeout"]:
        raise Failed(OVER_LIMIT)
    if measured["status"]:
        raise Failed(measured["errors"].strip() or f"exit status {measured['status']}")
    return measured


def measure_in_process(tool: str, path: Path) -> None:
    """Optimise in this process and print what that took; the child of `_measure`."""
    step = TOOLS[tool].prepare(path)
    start, cpu_start = time.perf_counter(), time.process_time()
    nodes = step()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "nodes_after": nodes or None}))


def _measure(result: Result, path: Path, limit: float) -> None:
    if result.failure:
        return
    try:
        if result.command_line:
            command = TOOLS[result.tool].command
            assert command is not None
            measured = _run(command(str(path), str(path.with_name(f"{result.tool}.out.onnx"))), limit)
        else:
            # The limit is for the optimising; imports and loading get some seconds on top.
            measured = _run([sys.executable, __file__, "--child", result.tool, str(path)], limit + 20)
            measured |= json.loads(measured["output"].splitlines()[-1])
    except Failed as error:
        result.failure = str(error)
        return
    result.seconds.append(measured["seconds"])
    result.cpu_seconds.append(measured["cpu_seconds"])
    result.peak_megabytes = max(result.peak_megabytes, measured["peak_megabytes"])
    result.nodes_after = measured.get("nodes_after")


def benchmark(names: list[str], tools: list[str], repeats: int, limit: float, console: Console) -> list[Result]:
    """Measure all tools on all graphs, the tools taking turns."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder) / name / "model.onnx"
            path.parent.mkdir()
            nodes = int(_run([sys.executable, str(HERE / "graphs.py"), name, str(path)], limit=600)["output"])
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


def measure_help(repeats: int) -> Result:
    """What `graphopt --help` takes."""
    result = Result(HELP, OURS, command_line=True, nodes=0)
    for _ in range(repeats):
        measured = _run([sys.executable, "-c", "from graphopt.cli import main; main()", "--help"], limit=60)
        result.seconds.append(measured["seconds"])
        result.cpu_seconds.append(measured["cpu_seconds"])
    return result


def _ratio(ours: Result, theirs: Result | None, limit: float, *, cpu: bool) -> str:
    our_time = ours.median(cpu=cpu)
    if theirs is None or our_time is None:
        return ""
    if (their_time := theirs.median(cpu=cpu)) is not None:
        return f"{our_time / their_time:.3f}"
    return f"< {our_time / limit:.3f}" if theirs.failure == OVER_LIMIT else "failed"


def table(results: list[Result], limit: float, *, cpu: bool) -> Table:
    """Our medians and peaks, and our part of each peer's time."""
    found = by_key(results)
    peers = list(dict.fromkeys(result.tool for result in results if result.tool != OURS))
    kind = "processor time" if cpu else "time"
    shown = Table(title=f"graphopt fuse beside its peers: our {kind} as a part of theirs")
    shown.add_column("graph")
    for heading in ("seconds", "peak MB", "nodes", "after", *(f"of {peer}" for peer in peers)):
        shown.add_column(heading, justify="right")
    for (name, command_line, tool), ours in found.items():
        if tool != OURS or name not in GRAPHS:
            continue
        our_time = ours.median(cpu=cpu)
        shown.add_row(
            GRAPHS[name].title + (", command line" if command_line else ""),
            "failed" if our_time is None else f"{our_time:.3f}",
            f"{ours.peak_megabytes:.0f}",
            f"{ours.nodes:,}",
            f"{ours.nodes_after:,}" if ours.nodes_after else "",
            *(_ratio(ours, found.get((name, command_line, peer)), limit, cpu=cpu) for peer in peers),
        )
    return shown


def growth(results: list[Result], *, cpu: bool) -> str:
    """How our time grew where the same shape grew."""
    ours = [r for r in results if r.tool == OURS and not r.command_line and r.graph.startswith("rrdbnet")]
    measured = [(r, seconds) for r in ours if (seconds := r.median(cpu=cpu)) is not None]
    return "".join(
        f"{small.nodes:,} to {large.nodes:,} nodes: {large_time / small_time:.1f} times the time for "
        f"{large.nodes / small.nodes:.1f} times the nodes.\n"
        for (small, small_time), (large, large_time) in pairwise(measured)
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small graphs, one turn, 30 seconds a tool")
    parser.add_argument("--graph", action="append", choices=GRAPHS, help="only this graph (repeatable)")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="only this tool beside ours (repeatable)")
    parser.add_argument("--repeats", type=int, default=3, help="turns; the median counts")
    parser.add_argument("--limit", type=float, default=150, help="seconds after which a tool is stopped")
    parser.add_argument("--cpu-time", action="store_true", help="processor time in the table, for busy machines")
    parser.add_argument("--targets", action="store_true", help=f"what was to be reached, beside {PEER} alone")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    parser.add_argument("--child", nargs=2, metavar=("TOOL", "FILE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    if arguments.child:
        measure_in_process(arguments.child[0], Path(arguments.child[1]))
        return
    console = Console()
    repeats, limit = (1, 30.0) if arguments.quick else (arguments.repeats, arguments.limit)
    default = QUICK_GRAPHS if arguments.quick else GRAPHS_NEEDED if arguments.targets else tuple(GRAPHS)
    names = arguments.graph or list(default)
    peers = arguments.tool or ([PEER] if arguments.targets else TOOLS)
    tools = [name for name in TOOLS if name == OURS or name in peers]
    installed = [name for name in tools if TOOLS[name].is_installed]
    for name in set(tools) - set(installed):
        console.print(f"{name} is not installed and left out.")
    results = benchmark(names, installed, repeats, limit, console)
    if arguments.targets:
        results.append(measure_help(repeats))
    measured = Measured(results, limit, cpu=arguments.cpu_time)
    if arguments.targets:
        console.print(targets_table(measured))
    console.print(table(results, limit, cpu=arguments.cpu_time))
    console.print(growth(results, cpu=arguments.cpu_time), end="")
    for result in results:
        if result.failure and result.failure != OVER_LIMIT:
            console.print(f"{result.tool} failed on {result.graph}: {result.failure.splitlines()[-1]}", markup=False)
    if arguments.json:
        machine = {"platform": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
        listed = [{**asdict(result), "median": result.median(cpu=False)} for result in results]
        written = {"schema": 1, "machine": machine, "results": listed, "targets": rows(measured)}
        arguments.json.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
