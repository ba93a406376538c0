"""The whole of `traceview try`: the program recorded, its remedies chosen, tried and judged."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from traceview.base import units
from traceview.base.errors import TraceviewError
from traceview.base.records import record
from traceview.trials.tryout import ledger
from traceview.trials.tryout.patch import Patch, patch_of
from traceview.trials.tryout.planned import Planned, known_names, planned, together
from traceview.trials.tryout.runs import Program, Runs, work_folder
from traceview.trials.tryout.schedule import Limits, Schedule, advice, too_few_steps
from traceview.trials.tryout.spec import RunResult
from traceview.trials.tryout.verdict import LEAST_STEPS, Trial, step_ns

if TYPE_CHECKING:
    from traceview.traces.reporting import Report
    from traceview.traces.trace import Trace

Analyze = Callable[["Trace | str | Path"], "Report"]
Note = Callable[[str], object]
_SCATTER = 0.1
"""Difference of unchanged runs, as a share of a step, from which on a note says so: runs of one
training program scatter by 0.7 to 1 % on a GPU of its own (docs/gate.md)."""
RECORDED_STEPS = 40


@record
class TryRequest:
    """What to try; see `traceview.try_remedies`."""

    command: Sequence[str]
    trace: Trace | str | Path | None = None
    remedies: tuple[str, ...] = ()
    steps: int = 20
    runs: int = 8
    seconds: float = 1_800.0
    dry_run: bool = False
    remember: bool = True


@dataclass(frozen=True)
class TryReport:
    """The outcome of trying remedies on a program.

    `planned` is what is tried; without `trials` nothing was run. `together` is the trial of all
    that were kept, None with fewer than two. `notes` say what may have disturbed the measurement
    and what was not isolated. `table` is the file that the outcome was appended to.
    """

    program: Program
    planned: tuple[Planned, ...]
    limits: Limits
    trials: tuple[Trial, ...] = ()
    together: Trial | None = None
    device: str = ""
    base_ns: float | None = None
    runs: int = 0
    notes: tuple[str, ...] = ()
    table: Path | None = None

    @property
    def kept(self) -> tuple[Trial, ...]:
        """The trials of remedies to keep."""
        return tuple(trial for trial in self.trials if trial.outcome == "keep")

    def rows(self) -> list[ledger.Row]:
        """The outcome as rows of the local table."""
        every = [*self.trials, *([self.together] if self.together else [])]
        by_hand = self.patch().by_hand
        return ledger.rows_of(self.program.label, self.device, every, by_hand)

    def patch(self) -> Patch:
        """The change of the source that the kept remedies make."""
        return patch_of(self.program, compatible(self.kept))


def answer(request: TryRequest, analyze: Analyze, note: Note) -> TryReport:
    """Try remedies on a program, whose trace `analyze` reads. Raises as `try_remedies` does."""
    program = Program.of(request.command)
    limits = Limits(request.steps, request.runs, request.seconds)
    known_names(request.remedies)
    if request.dry_run:
        report = None if request.trace is None else analyze(request.trace)
        return TryReport(program, tuple(planned(report, request.remedies)), limits)
    deadline = monotonic() + limits.seconds
    with work_folder() as folder, Runs(program, Path(folder)) as runs:
        report = None
        if request.trace is not None or not request.remedies:
            trace = request.trace or _recorded(runs, limits.seconds / 2, note)
            note("reading the trace")
            report = analyze(trace)
        chosen = tuple(planned(report, request.remedies))
        empty = TryReport(program, chosen, limits)
        if not chosen:
            return empty
        return _tried(empty, Schedule(runs, limits, note, deadline), report, runs, request)


def _recorded(runs: Runs, limit_s: float, note: Note) -> Path:
    """A recording of the program. Raises TraceviewError if it fails, or has no steps."""
    from traceview.traces.recorders import RecordOptions
    from traceview.traces.recorders import record as record_program

    spec = runs.spec(records=True, steps=RECORDED_STEPS, limit_s=limit_s)
    out = Path(spec.result).with_name("recording.sqlite")
    note("recording the program")
    try:
        with _streams_apart():
            recording = record_program(runs.command(spec)[1:], out, options=RecordOptions())
    finally:
        result = RunResult.read(Path(spec.result))
    if recording.interrupted:
        raise KeyboardInterrupt
    what = ""
    if result and result.error:
        what = f"the program failed: {result.error}"
    elif result and len(result.steps) < LEAST_STEPS:
        what = too_few_steps(result)
    if what:
        raise TraceviewError(what, advice(what))
    if recording.path is None:
        raise TraceviewError("the program could not be recorded", "record it and pass --from")
    if result:
        runs.prepare(spec, result)
    return recording.path


@contextmanager
def _streams_apart() -> Iterator[None]:
    """Children print to stderr, as stdout is for the outcome, and read nothing, as other runs."""
    sys.stdout.flush()
    own = [os.dup(descriptor) for descriptor in (0, 1)]
    try:
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        yield
    finally:
        for descriptor, was in enumerate(own):
            os.dup2(was, descriptor)
            os.close(was)


def _tried(
    empty: TryReport, schedule: Schedule, report: Report | None, runs: Runs, request: TryRequest
) -> TryReport:
    load_before = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    trials = schedule.measure(empty.planned)
    base = list(schedule.base)
    kept = compatible([trial for trial in trials if trial.outcome == "keep"])
    all_kept = None
    if len(kept) > 1:
        all_kept = schedule.measure([together(report, [trial.planned for trial in kept])])[0]
        base += schedule.base
    device = base[0][1].device
    times = [time for run in base if (time := step_ns(*run))]
    done = replace(
        empty,
        trials=tuple(trials),
        together=all_kept,
        device=device,
        base_ns=sum(times) / len(times),
        runs=runs.count,
        notes=(
            *([schedule.stopped] if schedule.stopped else []),
            *_disturbed(times, load_before),
            *_not_isolated([run for _, run in base]),
        ),
    )
    if not request.remember:
        return done
    try:
        return replace(done, table=ledger.append(done.rows()))
    except TraceviewError as error:
        # The outcome of half an hour is worth more than its row in the table.
        return replace(done, notes=(*done.notes, str(error)))


def compatible(kept: Sequence[Trial]) -> list[Trial]:
    """Without remedies that exclude each other: of two, the one that saves more."""
    best = sorted(kept, key=lambda trial: trial.measured.delta_ns if trial.measured else 0.0)
    names: set[str] = set()
    excluded: set[str] = set()
    result = []
    for trial in best:
        remedy = trial.planned.remedies[0]
        if remedy.name in excluded or names & set(remedy.instead_of):
            continue
        names.add(remedy.name)
        excluded |= set(remedy.instead_of)
        result.append(trial)
    return sorted(result, key=list(kept).index)


def _disturbed(times: Sequence[float], load_before: float) -> list[str]:
    """Notes on what made the runs unlike each other."""
    from traceview.traces.recorders.checks import gpu_state

    notes = []
    scatter = (max(times) - min(times)) / min(times)
    if scatter > _SCATTER:
        least, most = units.durations(min(times), max(times))
        notes.append(f"runs without a remedy differ: {least} to {most} per step")
    cores = os.cpu_count() or 1
    if load_before > cores / 2:
        notes.append(f"other work was running: a load of {load_before:.1f} on {cores} cores")
    others = gpu_state("after").get("other_processes_after", "0")
    if others != "0":
        notes.append(f"other processes use the GPU: {others}")
    return notes


def _not_isolated(results: Sequence[RunResult]) -> list[str]:
    outside = sorted({what for result in results for what in result.outside})
    notes = [f"not isolated: the program {what}" for what in outside[:3]]
    if not all(result.is_protected for result in results):
        what = "this system, unlike Linux with Landlock, lets C code write to this folder"
        what += " and where its links lead"
        notes.append(f"not isolated: {what}")
    return notes
