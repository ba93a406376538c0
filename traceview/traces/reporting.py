"""The report of one trace: the outcome of every analysis, and all findings, worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from threading import Thread
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from traceview.base import display, stages
from traceview.base.errors import InputError, suggestion
from traceview.base.failures import REPORT_IT, AnswerParts, Failure, contained
from traceview.base.records import record
from traceview.base.tables import Table, column_list
from traceview.traces import analyses as registered
from traceview.traces import ranking
from traceview.traces.analyses import base, wording
from traceview.traces.analyses.verdict import (
    RunTime,
    Scoreboard,
    Verdict,
    run_time,
    scoreboard,
    verdict,
)
from traceview.traces.analyses.verdict.parts import loop_times
from traceview.traces.facts import copies, kernel_classes, launches, operations
from traceview.traces.facts.forecast import model
from traceview.traces.facts.idle import causes, gaps
from traceview.traces.facts.idle.first_calls import shows_first_calls_alone
from traceview.traces.facts.kernel_classes import kernel_labels
from traceview.traces.facts.launches import queue_full, queue_wait_ns
from traceview.traces.facts.ranges import origins, ranges
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.facts.steps.steps import steps
from traceview.traces.plan import PlanStep, RankedFinding, plan
from traceview.traces.ranking import Outcome, as_notes, ranked, unrecorded
from traceview.traces.trace import Fact, Selection, Trace, fact

THREADS = 2
STARTED_WITH_STEPS: tuple[Fact[object], ...] = (
    causes.idle_parts,
    causes.find_drains,
    copies.shared_ns,
    queue_wait_ns,
    copies.compute_time,
    queue_full,
    launches.waits,
    kernel_labels,
    gaps.busy_by_process,
    copies.outer_migrations,
    kernel_classes.kernel_owners,
)
"""Facts of every report that need no ranges, computed while steps are inferred."""
_STARTED_FIRST = (
    "kernel-share",
    "wave-quantization",
    "gpu-idle",
    "launch-overhead",
    "trace-health",
)
"""Analyses to start first. One thread builds the range tree, then the waves of launches; the other
starts with operations and idle gaps and needs the tree afterwards. Threads that start with the same
fact would wait for each other. Several analyses need the idle time by site, which gpu-idle computes
and which takes longest on some traces."""
_BESIDE = 6
"""Place in that order at which `beside` is started, at the latest with the last one: by then most
facts that it shares with them are computed, and it ends about when the last analysis does."""
_FINDING_COLUMNS = column_list("""
    severity text: high, medium, low or info
    analysis text: name of the analysis that reports it
    time_at_stake_ns int64: upper bound of the time that acting on it saves
    share_of_step_pct float64?: that time as a share of the step
    subject_kind text: what it is about: kernel, range, line, device …
    subject text: name of what it is about, as recorded
    file text?: source file of the subject
    line int64?: line in that file
    message sentence: what is wrong, with its numbers
    action sentence: what to do about it
    start_ns int64?: start of the time window that shows it
    end_ns int64?: end of that window
""")
_FINDING_CELLS = attrgetter(
    *("finding.severity", "analysis", "finding.time_at_stake_ns", "finding.share_of_step_pct"),
    *("finding.subject.kind", "finding.subject.name", "finding.subject.file"),
    *("finding.subject.line", "finding.message", "finding.action"),
    *("finding.evidence.start_ns", "finding.evidence.end_ns"),
)


@record
class RecordedGpu:
    """A GPU of the trace; None for what the recording does not contain."""

    host_id: int
    device_id: int
    name: str | None
    compute_capability: str | None
    sm_count: int | None


@record
class RecordedProcess:
    """A process of the trace; `name` is None where the recording does not contain it."""

    host_id: int
    process_id: int
    name: str | None


@record
class TraceFacts:
    """Facts about the recording, for the head of a report.

    `duration_ns` is the time from the first to the last recorded event. `gpus` are those that did
    work, all that the recording names where none did. `row_counts` has one entry
    per recorded table, so that an empty table and an absent one stay apart. `peaks` are the GPU
    figures that the user passed.
    """

    path: str
    recorder: str
    recorder_version: str | None
    export_schema_version: str | None
    duration_ns: int
    gpus: tuple[RecordedGpu, ...]
    processes: tuple[RecordedProcess, ...]
    row_counts: Mapping[str, int]
    run: Mapping[str, str]
    selection: Selection
    strict: bool
    warnings: tuple[str, ...]
    peaks: Mapping[str, float] = field(default_factory=dict)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say where the trace is to who takes this for it."""
            where = "report.recording is the trace, with its tables and sql()"
            raise AttributeError(f"{type(self).__name__} has no {name!r}; {where}")


@dataclass(frozen=True, repr=False)
class Report(display.Written):
    """The outcome of every analysis of one trace.

    `analyses` are those that ran, in reading order; `outcomes` maps their names to a Result or
    Skipped (Failed after an internal error), as does `report["gpu-idle"]`. `findings` come from all
    of them, worst first.
    `step_count` is 0 where the trace has no repeated ranges to take for steps. `verdict` says in
    one line what the recording comes to, `scoreboard` has the figures to look at first,
    `run_time` where the time of the GPU went. `recording` is the trace itself, of which the page
    shows the timeline.
    """

    shows_first_rows = True
    trace: TraceFacts
    analyses: tuple[base.Analysis, ...]
    outcomes: Mapping[str, Outcome]
    findings: tuple[RankedFinding, ...]
    step_count: int = 0
    verdict: Verdict | None = None
    scoreboard: Scoreboard | None = None
    run_time: RunTime | None = None
    recording: Trace | None = field(default=None, compare=False)

    @property
    def plan(self) -> tuple[PlanStep, ...]:
        """The remedies one after the other, each the one that wins most on top of those before."""
        return plan(self.findings)

    def __getitem__(self, name: str) -> Outcome:
        """The outcome of the analysis of that name. Raises InputError if it did not run."""
        if name not in self.outcomes:
            raise InputError(
                f"the report has no analysis {name!r}", suggestion(name, [*self.outcomes])
            )
        return self.outcomes[name]

    def __getattr__(self, name: str) -> NoReturn:
        """Refer from `report.gpu_idle` to `report["gpu-idle"]`."""
        analysis = name.replace("_", "-")
        known = self.__dict__.get("outcomes", ())
        hint = f": write report[{analysis!r}]" if analysis in known else ""
        raise AttributeError(f"a report has no attribute {name!r}{hint}", name=name, obj=self)

    def __iter__(self) -> Iterator[str]:
        """Names of the analyses, in reading order."""
        return iter(self.outcomes)

    def findings_table(self) -> Table:
        """All findings, one row per finding, worst first; `.to_pandas()` makes a frame of it."""
        return findings_table(self.findings)


def analyze(
    trace: Trace,
    only: Sequence[str] = (),
    *,
    analyses: Sequence[base.Analysis] = registered.ALL,
    threads: int = THREADS,
    tables: bool = True,
    beside: Callable[[Trace], None] | None = None,
) -> Report:
    """Run all analyses, or those named in `only`, on a trace, `threads` at a time.

    Without `tables`, the result tables are computed when they are first read. `beside` is called
    on a thread of its own while the analyses run, and may still run when this returns.

    Raises InputError if a name in `only` is not that of an analysis.
    """
    names = [analysis.name for analysis in analyses]
    for name in only:
        if name not in names:
            raise InputError(f"no analysis is named {name!r}", suggestion(name, names))
    chosen = tuple(a for a in analyses if not only or a.name in only)
    order = sorted(chosen, key=lambda a: [*_STARTED_FIRST, a.name].index(a.name))
    shares_threads = len(chosen) > threads
    # numpy releases the interpreter lock while it works on long arrays.
    with ThreadPoolExecutor(threads) as pool:
        if shares_threads:
            pool.submit(ranges.range_tree, trace)
        running = {}
        for number, analysis in enumerate(order):
            if beside and number == min(_BESIDE, len(order) - 1):
                pool.submit(Thread(target=beside, args=(trace,)).start)
            running[analysis.name] = pool.submit(answered, analysis, trace, tables=tables)
        if shares_threads:
            # Submitted last, for the thread that has nothing else left to do.
            for figure in (verdict, scoreboard, duration_ns):
                pool.submit(figure, trace)
            pool.submit(run_time, trace, 0)
        outcomes = {
            analysis.name: running[analysis.name].result()
            for analysis in stages.in_stage("Analyzing", chosen)
        }
    rivals = tuple(a for a in analyses if a not in chosen)
    return report_of(trace, chosen, outcomes, rivals)


def answered(analysis: base.Analysis, trace: Trace, *, tables: bool) -> Outcome | Failure:
    """The outcome of an analysis, or the internal error that ended it."""
    run = analysis.run if tables else analysis.findings
    return contained(analysis.name, lambda: run(trace))


def report_of(
    trace: Trace,
    analyses: tuple[base.Analysis, ...],
    outcomes: Mapping[str, Outcome | Failure],
    rivals: tuple[base.Analysis, ...] = (),
) -> Report:
    """The report with these outcomes, their findings in order, verdict and scoreboard.

    `rivals` are analyses that did not run: where a finding depends on theirs, it is no worse than
    beside them.

    An internal error in one part leaves the others as they are. The first warnings name it.
    """
    parts, facts = AnswerParts(outcomes.values()), facts_of(trace)
    answers = {
        name: base.Failed(outcome.reason, REPORT_IT) if isinstance(outcome, Failure) else outcome
        for name, outcome in outcomes.items()
    }

    def findings() -> tuple[RankedFinding, ...]:
        steady_ns = max(gaps.steady_spans_ns(trace).values(), default=0)
        loops = loop_times(trace)
        first_calls = shows_first_calls_alone(trace)
        # A replay of first calls is a forecast of nothing.
        replayed = None if first_calls else lambda: model(trace)
        told = verdict(trace)
        time_of = partial(wording.time_of, trace)

        def in_order(outcomes: Mapping[str, Outcome]) -> tuple[RankedFinding, ...]:
            return ranked(outcomes, loops, time_of, steady_ns, replayed, told.named)

        rows = in_order(answers)
        if rivals and any(map(ranking.sums_up, rows)):
            others = {each.name: answered(each, trace, tables=False) for each in rivals}
            known = {name: one for name, one in others.items() if not isinstance(one, Failure)}
            rows = ranking.beside(rows, in_order({**known, **answers}))
        rows = unrecorded(rows, told.step_median_ns or 0, told.step_unrecorded_ns)
        return as_notes(rows, facts.duration_ns) if first_calls else rows

    in_order = parts.part("ranking", findings, ())
    count = parts.part("steps", lambda: len(steps(trace)), 0)
    summary = parts.part("verdict", lambda: verdict(trace), None)
    figures = parts.part("scoreboard", lambda: scoreboard(trace), None)
    times = parts.part("run time", lambda: run_time(trace, facts.duration_ns), None)
    facts = replace(facts, warnings=(*parts.warnings, *facts.warnings))
    in_order = in_order or ranked(answers)
    return Report(facts, analyses, answers, in_order, count, summary, figures, times, trace)


def without_tables(trace: Trace) -> Report:
    """The report of all analyses on the caller's thread; tables are computed when first read."""
    outcomes = {a.name: answered(a, trace, tables=False) for a in registered.ALL}
    return report_of(trace, registered.ALL, outcomes)


def findings_table(findings: Iterable[RankedFinding]) -> Table:
    """One row per finding."""
    names = [column.name for column in _FINDING_COLUMNS]
    rows = (dict(zip(names, _FINDING_CELLS(finding), strict=True)) for finding in findings)
    return Table.from_rows(_FINDING_COLUMNS, rows)


def facts_of(trace: Trace) -> TraceFacts:
    """The facts about a recording that the head of its report shows."""
    counts = {name: len(table) for name, table in trace.tables.items() if name not in trace.absent}
    # Without the ranges that were inferred from repeated launches.
    inferred = int(trace.recorded("ranges").texts("domain").isin([origins.INFERRED_DOMAIN]).sum())
    if inferred and "ranges" in counts:
        counts["ranges"] -= inferred
    gpu = ("host_id", "device_id", "name", "compute_capability", "sm_count")
    process = ("host_id", "process_id", "name")
    # nsys lists all GPUs of the machine, also those that the program left alone.
    worked = sorted(operations.operations_by_device(trace))
    devices = trace.devices.take(np.array(worked)) if worked else trace.devices
    return TraceFacts(
        path=trace.path,
        recorder=trace.recorder,
        recorder_version=trace.recorder_version,
        export_schema_version=trace.export_schema_version,
        duration_ns=duration_ns(trace),
        gpus=tuple(map(RecordedGpu, *map(devices.cells, gpu))),
        processes=tuple(map(RecordedProcess, *map(trace.processes.cells, process))),
        row_counts=counts,
        run=trace.run,
        selection=trace.selection,
        strict=trace.strict,
        warnings=trace.warnings,
        peaks=trace.peaks,
    )


@fact
def duration_ns(trace: Trace) -> int:
    """Nanoseconds from the first start to the last end of anything recorded; 0 for nothing."""
    start, end = recorded_span(trace)
    return end - start
