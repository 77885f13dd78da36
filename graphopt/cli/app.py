"""The command line: what every command shares, and how it ends.

Heavy modules are imported by the commands that use them, so that `--help` is instant. Exit status: 0 done, 1 a check
failed, 2 the input or the call is wrong; an error is one sentence on stderr.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

_COMMANDS = ("fuse", "explain", "unfuse", "verify", "check", "rules", "demo")


class _Commands(TyperGroup):
    """The commands in the order in which people come to need them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, as `--help` lists them."""
        return sorted(super().list_commands(ctx), key=_COMMANDS.index)


app = typer.Typer(
    name="graphopt",
    help="Fuses the operators of ONNX models by rules, tells what was fused and what not and why, and proves that "
    "nothing changed.",
    cls=_Commands,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from graphopt import __version__

        typer.echo(f"graphopt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:  # `graphopt` alone asks what there is
        typer.echo(context.get_help())


_INTERRUPTED = 130
"""The exit status of a process that Ctrl-C ended."""
_NOTHING_WRITTEN = "Interrupted; nothing was written."


def main() -> NoReturn:
    """Run the command line; an error is one sentence on stderr."""
    from graphopt.errors import GraphoptError

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is another where Ctrl-C is to be ignored
        signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        status = app(standalone_mode=False)
        if status == _INTERRUPTED:  # what typer returns for Ctrl-C
            _fail(_NOTHING_WRITTEN, _INTERRUPTED)
    except GraphoptError as error:
        status = _fail(str(error), error.exit_status)
    except MemoryError:
        status = _fail("There is not enough memory for this model and these inputs; nothing was written.", 2)
    except typer.TyperException as error:
        status = _fail(error.format_message().replace("Value error, ", "").removesuffix(".") + ".", 2)
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        status = 0  # whoever read stdout has gone, which is no failure; typer has seen to the streams
    raise SystemExit(status if isinstance(status, int) else 0)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Ctrl-C; while a module is imported it ends the process at once, as NumPy makes another error of the exception.

    No file is being written then.
    """
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            _fail(_NOTHING_WRITTEN, _INTERRUPTED)
            os._exit(_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _terminate(number: int, _: FrameType | None) -> NoReturn:
    """What `kill` and `timeout` send: end as any error does, with no half-written file left behind."""
    raise SystemExit(128 + number)


def _fail(sentence: str, status: int) -> int:
    print(f"Error: {sentence}", file=sys.stderr)
    return status
