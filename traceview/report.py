"""A report: every question put to one trace, and what came of it, the costliest finding first."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from traceview import analyses as known
from traceview.analyses import trace_health
from traceview.analyses.base import Analysis, Result, Skipped
from traceview.errors import InputError
from traceview.findings import SEVERITIES, Finding
from traceview.tables import Array, Table
from traceview.trace import Selection, Trace

Outcome = Result | Skipped

THREADS = 2
_ON_GPU = ("kernels", "copies", "sets", "graph_launches")
_TIMED_TABLES = ("kernels", "copies", "sets", "graph_launches", "api_calls", "ranges")


@dataclass(frozen=True)
class Gpu:
    """A GPU of the trace. None where the recording does not say."""

    host_id: int
    device_id: int
    name: str | None
    compute_capability: str | None
    sm_count: int | None


@dataclass(frozen=True)
class Process:
    host_id: int
    process_id: int
    name: str | None


@dataclass(frozen=True)
class TraceFacts:
    """What a report says of the recording itself.

    `duration_ns` reaches from the first to the last recorded event; `row_counts` has the tables
    that were recorded, so that an empty one and an absent one stay apart. `peaks` are the figures
    of the GPU that the user gave.
    """

    path: str
    recorder: str
    recorder_version: str | None
    export_schema_version: str | None
    duration_ns: int
    gpus: tuple[Gpu, ...]
    processes: tuple[Process, ...]
    row_counts: Mapping[str, int]
    run: Mapping[str, str]
    selection: Selection
    strict: bool
    warnings: tuple[str, ...]
    peaks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RankedFinding:
    """A finding and the name of the analysis that made it."""

    analysis: str
    finding: Finding


@dataclass(frozen=True)
class Report:
    """All answers to one trace.

    `analyses` are those asked, in reading order; `outcomes` holds what came of each, by name;
    `findings` are those of all, worst first.
    """

    trace: TraceFacts
    analyses: tuple[Analysis, ...]
    outcomes: Mapping[str, Outcome]
    findings: tuple[RankedFinding, ...]

    @property
    def without_findings(self) -> str:
        """What to say where nothing was found."""
        if not any(self.trace.row_counts.get(name) for name in _ON_GPU):
            return (
                "No GPU work was recorded, so there is no GPU time to save. If the program should "
                "use a GPU, check torch.cuda.is_available() and run traceview doctor."
            )
        if self.trace.selection:
            return "Nothing found in the selected ranges that would save time."
        return "Nothing found that would save time."


def analyze(
    trace: Trace,
    only: Sequence[str] = (),
    *,
    analyses: Sequence[Analysis] = known.ALL,
) -> Report:
    """Put all questions, or `only` those named, to a trace.

    Raises InputError if a name in `only` is not that of an analysis.
    """
    asked = chosen(analyses, only)
    # numpy lets go of the interpreter while it works on long arrays.
    with ThreadPoolExecutor(THREADS) as pool:
        answers = pool.map(lambda analysis: analysis.run(trace), asked)
        outcomes: dict[str, Outcome] = {a.name: o for a, o in zip(asked, answers, strict=True)}
    return Report(facts_of(trace), asked, outcomes, ranked(outcomes))


def chosen(analyses: Sequence[Analysis], only: Sequence[str]) -> tuple[Analysis, ...]:
    """The named analyses in reading order; all of them if none is named."""
    names = [analysis.name for analysis in analyses]
    for name in only:
        if name not in names:
            raise InputError(f"no analysis is named {name!r}", _suggestion(name, names))
    return tuple(a for a in analyses if not only or a.name in only)


def _suggestion(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"{guess}there are: {', '.join(names)}"


def ranked(outcomes: Mapping[str, Outcome]) -> tuple[RankedFinding, ...]:
    """All findings, by severity and then by the time at stake; equals keep reading order.

    First of all comes what puts the whole recording in doubt.
    """
    found = [
        RankedFinding(name, finding)
        for name, outcome in outcomes.items()
        if isinstance(outcome, Result)
        for finding in outcome.findings
    ]
    return tuple(sorted(found, key=_rank))


def _rank(found: RankedFinding) -> tuple[int, bool, int]:
    severity, stake = found.finding.severity, found.finding.time_at_stake_ns
    in_doubt = severity == "high" and found.analysis == trace_health.ANALYSIS.name
    return SEVERITIES.index(severity), not in_doubt, -stake


def facts_of(trace: Trace) -> TraceFacts:
    return TraceFacts(
        path=trace.path,
        recorder=trace.recorder,
        recorder_version=trace.recorder_version,
        export_schema_version=trace.export_schema_version,
        duration_ns=duration_ns(trace),
        gpus=_gpus(trace.devices),
        processes=_processes(trace.processes),
        row_counts={name: len(table) for name, table in trace.tables.items()},
        run=trace.run,
        selection=trace.selection,
        strict=trace.strict,
        warnings=trace.warnings,
        peaks=trace.peaks,
    )


def duration_ns(trace: Trace) -> int:
    """Nanoseconds from the first start to the last end of anything recorded; 0 for nothing."""
    tables = [trace.recorded(name) for name in _TIMED_TABLES]
    # A damaged recording may hold an end before its start: either side may be the extreme.
    times = [_known(table, column) for table in tables for column in ("start_ns", "end_ns")]
    filled = [column for column in times if len(column)]
    if not filled:
        return 0
    # As Python integers, because a difference of damaged times can leave int64.
    return max(int(np.max(t)) for t in filled) - min(int(np.min(t)) for t in filled)


def _known(table: Table, column: str) -> Array:
    values, absent = table[column], table.is_null(column)
    return values[~absent] if absent.any() else values


def _gpus(devices: Table) -> tuple[Gpu, ...]:
    wanted = [
        devices.cells(c) for c in ("host_id", "device_id", "name", "compute_capability", "sm_count")
    ]
    return tuple(Gpu(*row) for row in zip(*wanted, strict=True))


def _processes(processes: Table) -> tuple[Process, ...]:
    wanted = [processes.cells(c) for c in ("host_id", "process_id", "name")]
    return tuple(Process(*row) for row in zip(*wanted, strict=True))
