"""Time a whole program at each value of one of its options.

The program runs in this process again and again, as `python FILE.py --steps 4` would. What it
imports is loaded once, before anything is timed. Each round runs all values in turn, so that a
machine that slows down slows all of them down.

The clock is time.perf_counter, from the program's first line until the GPU is done. It cannot tell
launching from computing, so nothing is claimed about what bounds the program; a recording shows
that.
"""

from __future__ import annotations

import gc
import io
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.trials.bench.clock import CpuClock
from traceview.trials.bench.growth import Axis, Sweep, fit_timings
from traceview.trials.bench.measurement import Timing
from traceview.trials.bench.operation import import_error_line, python_file
from traceview.trials.bench.plan import Machine, this_machine

_FEWEST_ROUNDS = 3
_LONGEST_LINE = 300


@record
class ProgramSweep:
    """A program, its times over a sweep, and the last line that it printed at each value."""

    path: str
    arguments: tuple[str, ...]
    machine: Machine
    sweep: Sweep
    last_lines: tuple[str, ...]


def sweep_program(
    path: str | Path,
    axis: Axis,
    arguments: Sequence[str] = (),
    *,
    warmup: int = 1,
    trials: int = 5,
    budget_s: float = 120.0,
    note: Callable[[str], None] = lambda _: None,
) -> ProgramSweep:
    """Run `FILE.py --OVER VALUE ARGUMENTS` `trials` times at each value, and fit a line.

    `warmup` runs at each value, at least one, come first and are not timed. Once `budget_s` is
    spent, three timed runs per value are enough. `note` receives progress messages. The program's
    output is not shown. Raises InputError if there is no such file, or if a run fails, as it does
    for an option that the program does not have.
    """
    file = python_file(path, "pass a program")
    runs = _Runs(file, axis, tuple(arguments), note)
    for _ in range(max(warmup, 1)):
        runs.round()
    samples: dict[int, list[float]] = {value: [] for value in axis.values}
    ends = time.monotonic() + budget_s
    for number in range(trials):
        if number >= _FEWEST_ROUNDS and time.monotonic() > ends:
            break
        for value, took_ns in runs.round().items():
            samples[value].append(took_ns)
    floor_ns = CpuClock().floor_ns
    points = tuple(
        (value, Timing("perf-counter", "warm", 1, tuple(ns), min(ns), floor_ns))
        for value, ns in samples.items()
    )
    lines = tuple(runs.last_lines[value] for value in axis.values)
    times = Sweep(axis.over, points, fit_timings(points))
    return ProgramSweep(str(path), tuple(arguments), this_machine(), times, lines)


class _Runs:
    """The runs of one program; `last_lines` is the last line printed at each value."""

    def __init__(
        self, file: Path, axis: Axis, arguments: tuple[str, ...], note: Callable[[str], None]
    ) -> None:
        self._file, self._axis = file.resolve(), axis
        self._arguments, self._note = arguments, note
        self.last_lines: dict[int, str] = {}

    def round(self) -> dict[int, float]:
        """Run once at each value; returns the time of each in ns."""
        return {value: self._run(value) for value in self._axis.values}

    def _run(self, value: int) -> float:
        words = (f"--{self._axis.over}", str(value), *self._arguments)
        command = f"{self._file.name} {' '.join(words)}"[:200]
        self._note(f"{self._file.name} {' '.join(words[:2])}")
        printed, status = io.StringIO(), None
        gc.collect()
        with _as_main_program(self._file, words, printed):
            begin = time.perf_counter_ns()
            try:
                runpy.run_path(str(self._file), run_name="__main__")
            except SystemExit as ended:
                status = ended.code
                if isinstance(status, str):
                    print(status, file=printed)
            except Exception as error:
                what = f"{command}: {import_error_line(error, self._file)}"
                raise InputError(what) from error
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                torch.cuda.synchronize()
            took_ns = float(time.perf_counter_ns() - begin)
        lines = [line.strip() for line in printed.getvalue().splitlines() if line.strip()]
        last_line = lines[-1][:_LONGEST_LINE] if lines else ""
        if status not in (None, 0):
            raise InputError(f"{command} ended with {last_line or status}")
        self.last_lines[value] = last_line
        return took_ns


@contextmanager
def _as_main_program(file: Path, words: Sequence[str], printed: io.StringIO) -> Iterator[None]:
    """Set the command line, import folder and output of the program; restore them afterwards.

    The working directory is restored too, as a run may change it.
    """
    kept_argv, kept_path, kept_folder = sys.argv, list(sys.path), Path.cwd()
    sys.argv = [str(file), *words]
    sys.path.insert(0, str(file.parent))
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            yield
    finally:
        sys.argv, sys.path[:] = kept_argv, kept_path
        os.chdir(kept_folder)
