"""Remedies of findings, tried on the program itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.traces.reporting import Report
    from traceview.traces.trace import Trace
    from traceview.trials.tryout.answer import TryReport


def try_remedies(
    *command: str,
    trace: Trace | str | Path | None = None,
    remedies: str | Sequence[str] = (),
    steps: int = 20,
    runs: int = 8,
    seconds: float = 1_800.0,
    dry_run: bool = False,
    remember: bool = True,
    note: Callable[[str], object] = lambda _: None,
) -> TryReport:
    """Run a Python script with each mechanical remedy of its findings, and judge them.

    The script runs many times, each time until it has made some 30 to 80 training steps, in a
    scratch copy of the current folder. Its files are not edited.

    Arguments:
        command: the script, or "-m" and a module, and its arguments.
        trace: a recording of it, as `load` takes or returns; by default the script is recorded.
        remedies: try these, whatever the findings are.
        steps: steps that each run is timed for.
        runs: most runs per side, 4 or more.
        seconds: bounds all runs together, and the recording by half of it.
        dry_run: only list what would be tried.
        remember: append the outcome to the local table that `traceview accuracy` shows.
        note: gets progress messages.

    Raises InputError for a program that is no Python script, too few runs or steps to prove
    anything, an unknown remedy, or a dry run without a recording and remedies, TraceviewError if
    the program fails without any remedy, and what `record` and `load` raise.
    """
    from traceview.api.traces import analyze, load
    from traceview.base.errors import InputError
    from traceview.trials.tryout.answer import TryRequest, answer

    def read(given: Trace | str | Path) -> Report:
        return analyze(load(given) if isinstance(given, (str, Path)) else given)

    if dry_run and trace is None and not remedies:
        raise InputError(
            "a dry run records nothing, and no recording was given",
            "pass one (--from TRACE), or name remedies (--remedy NAME)",
        )
    named = (remedies,) if isinstance(remedies, str) else tuple(remedies)
    request = TryRequest(command, trace, named, steps, runs, seconds, dry_run, remember)
    return answer(request, read, note)
