"""Runs over time: the figures of the recordings and baselines of a folder, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from traceview.base import display, outputs, stages
from traceview.base.errors import InputError, TraceviewError
from traceview.base.records import record
from traceview.base.tables import Cell, Table, TableSpec, column_list
from traceview.traces import reporting
from traceview.traces.analyses.base import Chart
from traceview.traces.comparison import figures, inputs, run_figures, tracking
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.trace import Trace
from traceview.traces.trace.load import USE_RECORDINGS, recordings_in

RUNS = TableSpec(
    "runs",
    "one row per run, oldest first",
    column_list("""
        run text: name of the recording, or of the run in a baseline
        recorded_utc text: when it was recorded; of old files when they were written
        step_ns int64: mean time per step after warm-up, or the run without steps
        change_pct float64?: that time against the last such run
        steps int64: steps after warm-up, 0 where none were found
        gpu_busy_pct float64?: time with work on the GPU
        peak_memory_bytes int64?: peak of allocated memory
        findings int64?: findings above info; of a baseline unknown
        first_finding sentence?: the one to look at first
        gpu text?: the GPU
    """),
    brief="run step_ns change_pct gpu_busy_pct peak_memory_bytes findings",
)
CHARTS = {
    of_step: Chart("columns", "runs", f"Time per {what}", "run", "step_ns", most=60)
    for of_step, what in ((True, "step"), (False, "run"))
}
"""By whether a run has steps: a step is no longer or shorter than a whole run."""


@record
class UnreadRun:
    """A file of the folder that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True, repr=False)
class History(display.Written):
    """The runs of a folder: `runs` has the columns of RUNS. `failed` are files left out."""

    folder: str
    runs: Table
    failed: tuple[UnreadRun, ...] = ()

    def with_steps(self, of_step: bool) -> Table:
        """The runs with steps, or those without."""
        return self.runs.take((self.runs["steps"] > 0) == of_step)

    to_mlflow = tracking.to_mlflow
    to_wandb = tracking.to_wandb


def history_of(folder: Path, load: Callable[[Path], Trace]) -> History:
    """The history of a folder. Raises InputError if it is none, or no file in it can be read.

    A recording is read alone and let go. A file that cannot be read is listed.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", "pass one with recordings or baselines")
    rows: list[tuple[datetime, dict[str, Cell]]] = []
    failed = []
    for path in stages.in_stage("Reading the runs", recordings_in(folder)):
        try:
            rows.extend(_rows(path, load))
        except TraceviewError as error:
            failed.append(UnreadRun(path.name, str(error)))
    if not rows:
        reason = f": {failed[0].name}: {failed[0].reason}" if failed else ""
        raise InputError(f"{folder} has no run that can be read{reason}", USE_RECORDINGS)
    rows.sort(key=lambda row: (row[0], str(row[1]["run"])))
    # A step is compared with steps alone, a run without them with such runs.
    before: dict[bool, int] = {}
    for _, row in rows:
        now, of_step = int(row["step_ns"] or 0), bool(row["steps"])
        last = before.get(of_step)
        row["change_pct"] = 100.0 * (now - last) / last if last else None
        before[of_step] = now
    return History(
        str(folder), Table.from_rows(RUNS.columns, [row for _, row in rows]), tuple(failed)
    )


def _rows(path: Path, load: Callable[[Path], Trace]) -> Iterator[tuple[datetime, dict[str, Cell]]]:
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    if inputs.is_baseline(path):
        for run in inputs.read_baseline(path):
            yield written, _row(run, run.name, written)
        return
    trace = with_steps(load(path))
    started = trace.run.get("started_utc", "")
    try:
        when = datetime.fromisoformat(started).astimezone(UTC)
    except ValueError:
        when = written
    row = _row(run_figures.figures_of(trace), Path(outputs.unpacked_name(path)).stem, when)
    found = reporting.analyze(trace, tables=False).findings
    serious = [ranked.finding for ranked in found if ranked.finding.severity != "info"]
    row |= {"findings": len(serious), "first_finding": serious[0].message if serious else None}
    yield when, row


def _row(run: figures.RunFigures, name: str, when: datetime) -> dict[str, Cell]:
    peak = run.figures.get("peak_memory_bytes")
    return {
        "run": name,
        "recorded_utc": f"{when:%Y-%m-%d %H:%M:%S}",
        "step_ns": round(run.mean_step_ns),
        "change_pct": None,
        "steps": run.steps if run.has_steps else 0,
        "gpu_busy_pct": run.figures.get("gpu_busy_pct"),
        "peak_memory_bytes": None if peak is None else round(peak),
        "findings": None,
        "first_finding": None,
        "gpu": run.environment.get("gpu"),
    }
