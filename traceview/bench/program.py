"""How long a whole program takes at each value of one of its options.

The program runs in this process again and again, as `python FILE.py --steps 4` would: what it
imports is loaded once, before anything is timed, and not in every run. All values take their turns
in each round, so that a machine that slows down meanwhile slows all of them down.

The clock is time.perf_counter, from the program's first line until the GPU is done. It tells no
launching from computing, so nothing is said of what bounds the program: a recording tells that.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceview.bench.loading import failure
from traceview.bench.machine import Machine, this_machine
from traceview.bench.timing.clock import CpuClock
from traceview.bench.timing.growth import fitted
from traceview.bench.timing.measurement import Timing
from traceview.bench.timing.sweep import Axis, Sweep
from traceview.errors import InputError

_FEWEST_ROUNDS = 3
_MOST_SAID = 300


@dataclass(frozen=True)
class ProgramSweep:
    """A program, the sweep, and the last line that it printed at each value."""

    path: str
    arguments: tuple[str, ...]
    machine: Machine
    sweep: Sweep
    said: tuple[str, ...]


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
    """Run `FILE.py --OVER VALUE ARGUMENTS` at each value, so many times each, and fit a line.

    Before these come `warmup` runs at each value, and at least one, which are not timed. Once
    `budget_s` is spent, three timed runs at each are enough. `note` gets what is being done. What
    the program prints is kept from the terminal. Raises InputError if there is no such file, or if
    a run fails: an option that the program does not have is such a failure.
    """
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        raise InputError(f"{path} is no Python file", "name a program")
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
    points = tuple((value, _timing(samples[value])) for value in axis.values)
    said = tuple(runs.said[value] for value in axis.values)
    found = Sweep(axis.over, points, fitted(points))
    return ProgramSweep(str(path), tuple(arguments), this_machine(), found, said)


class _Runs:
    """The runs of one program; `said` is the last line of the last run at each value."""

    def __init__(
        self, file: Path, axis: Axis, arguments: tuple[str, ...], note: Callable[[str], None]
    ) -> None:
        self._file, self._axis = file.resolve(), axis
        self._arguments, self._note = arguments, note
        self.said: dict[int, str] = {}

    def round(self) -> dict[int, float]:
        """One run at each value, and the nanoseconds of each."""
        return {value: self._run(value) for value in self._axis.values}

    def _run(self, value: int) -> float:
        words = (f"--{self._axis.over}", str(value), *self._arguments)
        self._note(f"{self._file.name} {' '.join(words[:2])}")
        printed = io.StringIO()
        gc.collect()
        with _in_place_of_this(self._file, words, printed):
            begin = time.perf_counter_ns()
            status = self._exit_status(words, printed)
            _wait_for_gpu()
            took_ns = float(time.perf_counter_ns() - begin)
        if status not in (None, 0):
            raise InputError(f"{self._command(words)} ended with {_last(printed) or status}")
        self.said[value] = _last(printed)
        return took_ns

    def _exit_status(self, words: Sequence[str], printed: io.StringIO) -> Any:
        try:
            runpy.run_path(str(self._file), run_name="__main__")
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code, file=printed)
            return ended.code
        except Exception as error:
            raise InputError(f"{self._command(words)}: {failure(error, self._file)}") from error
        return None

    def _command(self, words: Sequence[str]) -> str:
        return f"{self._file.name} {' '.join(words)}"[:200]


@contextmanager
def _in_place_of_this(file: Path, words: Sequence[str], printed: io.StringIO) -> Iterator[None]:
    """The command line, the folder to import from, and the output are those of the program.

    The folder that it is run in is the same for every run, wherever the one before went.
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


def _wait_for_gpu() -> None:
    """Until it has done what the program asked of it, if that has touched one at all."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _last(printed: io.StringIO) -> str:
    lines = [line.strip() for line in printed.getvalue().splitlines() if line.strip()]
    return lines[-1][:_MOST_SAID] if lines else ""


def _timing(samples_ns: Sequence[float]) -> Timing:
    return Timing(
        clock="perf-counter",
        cache="warm",
        calls_per_trial=1,
        samples_ns=tuple(samples_ns),
        host_ns=min(samples_ns),
        floor_ns=CpuClock().floor_ns,
    )
