"""The `traceview` command: dispatches verbs, turns failures into one line and an exit status."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from traceview.base import memory, outputs
from traceview.base.errors import ComparisonRefusedError, TraceviewError
from traceview.base.version import __version__
from traceview.cli import process
from traceview.cli.process import Ended, orderly_end

GROUPS = {
    "Find lost time": {
        "record": "Run a script under nsys or torch.profiler and write its trace.",
        "report": "Show where the GPU time of a trace went and what to fix first.",
        "compare": "Show what changed between two recordings, and why.",
        "what-if": "Show what edits would win: faster kernels, fewer waits, another GPU.",
        "try": "Apply remedies to a program in memory, and judge which to keep.",
        "accuracy": "Compare forecasts of reports with what try measured on this machine.",
    },
    "Kernels": {
        "ptx": "Check kernels for vectorized loads and stores, and show how to widen them.",
        "bench": "Check and time every version of a GPU operation.",
    },
    "Many runs": {
        "gate": "Fail CI when a run got slower, at a chosen confidence.",
        "baseline": "Save the numbers of several runs, for gate and compare.",
        "history": "Show the runs of a folder over time.",
    },
    "Files": {
        "export": "Write a trace for Perfetto.",
        "convert": "Write a trace as an SQLite file, or for Perfetto.",
        "scrub": "Copy a trace without private data.",
    },
    "Setup, editors and agents": {
        "doctor": "Check this machine's setup and show how to fix what is missing.",
        "mcp": "Answer questions of agents and editors about the recordings in a folder.",
        "schema": "Print the JSON Schema of a JSON output.",
        "completion": "Print the completion script of a shell.",
        "help": "Show the help of a command.",
    },
}
"""Verbs by heading, with their one-line help."""
VERBS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
"""Each is a module here with a click `command`, or at its place of `_HOMES`."""
_HOMES = {
    **{verb: f"files:{verb}" for verb in ("convert", "export", "scrub")},
    **{verb: f"setup:{verb}" for verb in ("doctor", "mcp", "schema", "completion")},
    "help": "setup:help_",
    "try": "tryout:try_",
    "accuracy": "tryout:accuracy",
}
_RECORDINGS = (*outputs.TRACE_SUFFIXES, ".json")
_FORMER = {"serve": "mcp"}
"""Verbs of earlier versions, which still work and are shown nowhere."""


@dataclass
class Settings:
    """Settings of one run of the command line.

    `failed` is the exit status after an error; a verb that uses 1 otherwise changes it.
    """

    debug: bool = False
    color: str = "auto"
    failed: int = 1


class _Verbs(click.Group):
    """Import the module of a verb only when that verb is used: `--help` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        verb = _FORMER.get(cmd_name, cmd_name)
        if verb not in VERBS:
            return None
        module, _, name = _HOMES.get(verb, f"{verb.replace('-', '_')}:command").partition(":")
        command: click.Command = getattr(import_module(f"traceview.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a verb as click does. A recording alone is reported on."""
        word = args[0]
        if word in VERBS or word in _FORMER:
            return super().resolve_command(ctx, args)
        if Path(word).suffix == ".py":
            ctx.fail(f"{word!r} is a script. To record it: traceview record {word}")
        if Path(word).exists() or outputs.unpacked_name(Path(word)).endswith(_RECORDINGS):
            return super().resolve_command(ctx, ["report", *args])
        from difflib import get_close_matches

        alike = get_close_matches(word, VERBS, 1)
        hint = f" Did you mean {alike[0]!r}?" if alike else ""
        raise click.UsageError(f"No such command {word!r}.{hint}", ctx)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        # One width for all, so that the texts of all groups begin in one column.
        width = max(map(len, VERBS))
        for heading, verbs in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in verbs.items()])


def _set_debug(ctx: click.Context, _: click.Parameter, debug: bool) -> None:
    """Print all tracebacks, also of internal errors that end only a part of the answer."""
    settings = ctx.find_object(Settings)
    if debug and settings:
        import logging

        settings.debug = True
        logger, printed = logging.getLogger("traceview"), logging.StreamHandler()
        logger.setLevel(logging.DEBUG)
        logger.addHandler(printed)
        ctx.call_on_close(lambda: logger.removeHandler(printed))


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the full traceback on errors.",
)


def _set_color(ctx: click.Context, _: click.Parameter, color: str) -> None:
    settings = ctx.find_object(Settings)
    if settings and color != "auto":
        settings.color = color


color_option = click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    expose_value=False,
    callback=_set_color,
    help="Use colors. Default: auto (on a terminal, unless NO_COLOR is set).",
)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="traceview %(version)s")
@debug_option
def group() -> None:
    """Find lost GPU time in a trace, its cause, and the line to change.

    \b
    Examples:
      traceview record train.py
      traceview train.sqlite --html
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    status = run(arguments)
    memory.skip_at_exit()
    sys.exit(status)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Exit status: 0 success, 1 failure, 2 usage error, 128 + n after signal n (130 for Ctrl-C).
    """
    settings = Settings()
    with process.standard_streams_open(), orderly_end() as signals:
        try:
            status = group.main(arguments, "traceview", standalone_mode=False, obj=settings)
            # A closed pipe must show up here, not in Python's own flush at exit.
            sys.stdout.flush()
            if process.is_lost():
                raise TraceviewError(
                    "stdout is closed, so the output was lost", "run it with stdout open"
                )
            return status if isinstance(status, int) else 0
        except click.ClickException as misuse:
            misuse.show()
            return misuse.exit_code
        except (click.Abort, KeyboardInterrupt, Ended):
            return signals.status or 130
        except Exception as error:
            return signals.status or _report_error(error, settings)


def _report_error(error: Exception, settings: Settings) -> int:
    """Print an error to stderr and return the exit status."""
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        # Drop buffered output, so that Python's flush at exit raises nothing.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return settings.failed
    from traceview.base.failures import internal_error
    from traceview.render.base.safe_text import visible

    if settings.debug:
        traceback.print_exception(error)
    if isinstance(error, TraceviewError):
        line = f"error: {visible(error.command_text, 2_000)}"
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
        line = "error: cannot write the output: no space left on its device; free some"
    elif isinstance(error, OSError):
        line = f"error: {visible(str(error), 2_000)}"
    elif isinstance(error, MemoryError):
        detail = visible(str(error), 400) or "an allocation failed"
        line = f"error: out of memory ({detail}); use a machine with more memory or record less"
    else:
        remedy = "please report it with the traceback from --debug"
        line = f"{visible(internal_error(error), 500)}; {remedy}"
    click.echo(f"traceview: {line}", err=True)
    return 2 if isinstance(error, ComparisonRefusedError) else settings.failed
