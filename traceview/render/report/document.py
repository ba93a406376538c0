"""A report as every output shows it: facts, scoreboard, savings, and its document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from traceview.base import units
from traceview.base.findings import HIGH, LOW, MEDIUM, Finding, Forecast, Saving, shortened
from traceview.base.records import record
from traceview.base.tables import Column, Table, TableSpec
from traceview.render.document import Document, ScoreTile, Section, Sheet
from traceview.render.report.plan import plan_text
from traceview.traces import analyses
from traceview.traces.analyses.base import Skipped
from traceview.traces.analyses.verdict import Scoreboard
from traceview.traces.plan import RankedFinding, Won
from traceview.traces.reporting import RecordedGpu, RecordedProcess, Report, TraceFacts

_MOST_NAMED = 4
_ON_GPU = ("kernels", "copies", "sets", "graph_launches")
_COUNTED = {
    "kernels": ("kernel", "kernels"),
    "copies": ("copy", "copies"),
    "sets": ("memset", "memsets"),
    "graph_launches": ("graph launch", "graph launches"),
    "api_calls": ("API call", "API calls"),
    "ranges": ("range", "ranges"),
}


def header_facts(trace: TraceFacts) -> list[tuple[str, str]]:
    """The recorded facts, as pairs of name and value."""
    hosts = {gpu.host_id for gpu in trace.gpus} | {each.host_id for each in trace.processes}
    schema = trace.export_schema_version
    words = (trace.recorder, trace.recorder_version or "", f"(schema {schema})" if schema else "")
    facts = [
        ("recorded by", " ".join(word for word in words if word)),
        ("GPU", _listed(Counter(_gpu(gpu) + _on(gpu.host_id, hosts) for gpu in trace.gpus))),
        (
            "process",
            _listed(Counter(_process(each) + _on(each.host_id, hosts) for each in trace.processes)),
        ),
        ("duration", duration(trace)),
        ("contains", _rows(trace)),
        ("only ranges", ", ".join(trace.selection.include)),
        ("without ranges", ", ".join(trace.selection.exclude)),
        ("strict", "no range is inferred" if trace.strict else ""),
        ("peaks given", ", ".join(f"{name}={value:g}" for name, value in trace.peaks.items())),
    ]
    return [(name, value) for name, value in facts if value]


def duration(trace: TraceFacts) -> str:
    """The time recorded, and whether the program ran on."""
    ran_on = ", the program ran on" if "first_s" in trace.run else ""
    return f"{units.duration(trace.duration_ns)}{ran_on}"


def _gpu(gpu: RecordedGpu) -> str:
    details = [f"compute capability {gpu.compute_capability}"] if gpu.compute_capability else []
    details += [f"{gpu.sm_count} SMs"] if gpu.sm_count is not None else []
    name = gpu.name or "GPU of unknown model"
    return f"{name} ({', '.join(details)})" if details else name


def _process(process: RecordedProcess) -> str:
    """Name and id of a process; if the recorder gives a path, its last part."""
    if not process.name:
        return f"process {process.process_id}"
    return f"{PurePath(process.name).name} ({process.process_id})"


def _on(host: int, hosts: Set[int]) -> str:
    return f" on host {host}" if len(hosts) > 1 else ""


def _listed(named: Counter[str]) -> str:
    names = [f"{times} × {name}" if times > 1 else name for name, times in named.items()]
    return units.first(names, _MOST_NAMED)


def _rows(trace: TraceFacts) -> str:
    return ", ".join(
        units.counted(trace.row_counts[table], *words)
        for table, words in _COUNTED.items()
        if trace.row_counts.get(table)
    )


def nothing_found(report: Report) -> str:
    """The sentence to show if there are no findings."""
    if not any(report.trace.row_counts.get(name) for name in _ON_GPU):
        if calls := report.trace.row_counts.get("api_calls"):
            return (
                "No GPU work was recorded, so there is no GPU time to save: the program's "
                f"{units.counted(calls, 'call')} of CUDA launched nothing. Record a part of the "
                "program in which it computes on the GPU."
            )
        if report.trace.recorder == "torch.profiler":
            once = not (report.verdict and report.verdict.steps)
            return (
                "There is no GPU time to save. If a GPU worked, it was not seen: torch.profiler "
                "records NVIDIA's only with ProfilerActivity.CUDA, and Apple's (MPS) never."
                + " First uses count as well: record several passes after a warm-up."
                * once
            )
        unseen = ": on WSL and virtual GPUs, nsys may see none of it"
        return (
            "There is no GPU time to save. If the program should use a GPU, run traceview doctor"
            f"{unseen if report.trace.recorder == 'nsys' else ''}."
        )
    where = " in the selected ranges" if report.trace.selection else ""
    if len(report.analyses) < len(analyses.ALL):
        answers = [name for name in report if not isinstance(report.outcomes[name], Skipped)]
        if not answers:
            return "What was asked is not answered."
        return f"Nothing found{where} that would save time (asked: {', '.join(answers)})."
    return f"Nothing found{where} that would save time."


_LAUNCH = {
    "gpu-bound": ("GPU-bound", "the CPU launches ahead"),
    "kept-busy": ("GPU-bound", "its work fills the time"),
    "launch-bound": ("launch-bound", "the GPU waits for the CPU to launch work"),
    "paced": ("paced", "each pass waits for its turn"),
    "paused": ("paused", "the GPU waits in few long pauses of the CPU"),
    "message-bound": ("message-bound", "the CPU is in calls of MPI, then launches late"),
    "cpu-bound": ("CPU-bound", "the CPU does something else, then launches late"),
    "data-loading": ("data-bound", "the CPU loads data, then launches late"),
    "sync-drained": ("sync-drained", "the CPU waits, then the GPU runs dry"),
    "dependency-bound": ("dependency-bound", "queued work begins late"),
    "queue-full": ("GPU-bound", "the launch queue is full"),
    "unknown": ("unknown", "work was launched that was not recorded"),
    "mixed": ("mixed", "the GPU runs dry for several reasons"),
}
"""Value and detail to show for each verdict on run-ahead."""


def tiles(board: Scoreboard) -> tuple[ScoreTile, ...]:
    """GPU busy, step, launches, communication, copies and memory peak, each as text.

    Without those of which there was nothing, or nothing was recorded.
    """
    if board.device_id is None:
        silent = {"none", units.ABSENT}
        return tuple(tile for tile in _tiles(board) if tile.value not in silent)
    # `no steps found` tells something, a dash alone nothing.
    said = (tile for tile in _tiles(board) if tile.detail or tile.value != units.ABSENT)
    return tuple(tile for tile in said if tile.value != "none")


def _tiles(board: Scoreboard) -> Iterator[ScoreTile]:
    steady = f"of {units.duration(board.steady_ns)}" if board.steady_ns else ""
    most = f"{steady}, GPU {board.device_id} of {board.devices}" if board.devices > 1 else steady
    lost = board.launch == "unknown"
    if board.gpu_busy_pct is None and not lost:
        most = "first calls alone"
    busy = "unknown" if lost else units.percent(board.gpu_busy_pct)
    yield ScoreTile("gpu_busy_pct", "GPU busy", busy, most)
    counted = board.steps - board.warm_up_steps
    of = f"median of {units.count(counted)}" if board.steps else "no steps found"
    yield ScoreTile("step_median_ns", "Step", units.duration(board.step_median_ns), of)
    # Without any recorded GPU work, it is unknown whether there was communication or a copy.
    none = "none" if board.gpu_busy_pct is not None or lost else units.ABSENT
    launch, how = _LAUNCH.get(board.launch or "", (units.ABSENT, ""))
    yield ScoreTile("launch", "Launches", launch, how)
    for field, name, ns, pct in (
        ("communication_pct", "Communication", board.communication_ns, board.communication_pct),
        ("copies_pct", "Copies", board.copies_exposed_ns, board.copies_pct),
    ):
        if ns is None or pct is None:
            yield ScoreTile(field, name, "unknown" if lost and ns is not None else none)
        else:
            exposed = f"{units.duration(ns)} exposed" if ns else "all hidden"
            share = 100 * ns / max(board.steady_ns or 0, 1)
            yield ScoreTile(field, name, units.percent(share), exposed)
    peak, total = board.memory_peak_bytes, board.memory_total_bytes
    if peak is not None:
        of = f"of {units.size(total)}" if total else "allocated"
        yield ScoreTile("memory_peak_bytes", "Memory peak", units.size(peak), of)


LEAST_SPEEDUP = 1.2
"""Least speed-up to show: a smaller one adds nothing to the time saved."""
QUALIFIERS: dict[Saving, str] = {"at-most": "up to", "about": "about", "at-least": "at least"}
_LEAST_SHARE_PCT = 0.1
"""A smaller share of a step is nothing."""
_MUCH_MORE = 2.0
"""A card that said less than half of what the plan says, or twice as much, would contradict it."""


@record
class Claim:
    """A saving such as `about` `12.3 ± 0.4 ms` `of 20.3 ms per step`, `60.7 %`, `2.5× as fast`.

    If the time is lost outside the steps, the amount refers to the steady time: `of` is `of 2.63 ms
    after warm-up`; without steps it is `of 2.63 ms`. Without a forecast `of` is empty, and `share`
    includes its whole: `13.9 % of the time after warm-up`. If a few steps take most of the time,
    all refer to an average step. `sum` combines `amount` and `of`, in one unit if possible: `12.3
    of 20.3 ms per step`.

    Where a remedy wins far more or far less once those before it in the plan are done, or what has
    another severity, `after_others` is what it wins then, `7.8 of 20.3 ms`; `amount` is empty, and
    `qualifier` says what it wins alone: `nothing`, `little` or `790 µs`.
    """

    qualifier: str
    amount: str
    of: str = ""
    sum: str = ""
    share: str = ""
    speedup: str = ""
    after_others: str = ""

    def parts(self) -> list[str]:
        """The claim in parts for one line, most important first: `save about 12.3 ± 0.4 of …`."""
        if self.after_others:
            alone = f"saves {self.qualifier} alone"
            return [f"{alone}, {' '.join(self.below())}"]
        share = f" ({self.share})" if self.share else ""
        saved = f"save {self.qualifier} {self.sum}{share}"
        return [part for part in (saved, self.speedup) if part]

    def below(self) -> list[str]:
        """The lines below the amount. Of a known whole, the share says how much faster it gets."""
        if self.after_others:
            per = f" {self.of}" if self.of else ""
            return [f"{self.after_others}{per} ({self.share}) after those before it"]
        lines = [f"{self.share} {self.of}".strip()] if self.of else [self.share, self.speedup]
        return [line for line in lines if line]

    def brief(self) -> str:
        """The same in one line, without what the plan and the verdict say: `per step, 60.7 %`."""
        if self.after_others:
            return f"{self.after_others} after those before it"
        which = "".join(self.of.split(" ", 3)[3:]) or self.of
        return ", ".join(filter(None, (which, self.share)))


def ranked_claim(ranked: RankedFinding) -> Claim | None:
    """The possible saving of a finding of a report: alone, or after others in its plan."""
    finding, won, saving = ranked.finding, ranked.won, ranked.forecast
    share = 100.0 if finding.time_at_stake_ns else 0.0
    if saving:
        shares = saving.share_of_step_pct, saving.share_of_run_pct
        share = shares[saving.saved_per_step_ns is None] or 0.0
    if finding.severity == "info" or finding.outside:
        # A fact: that a kernel takes half of the time does not say that it could take less.
        return None
    if not won or won.place < 1:
        return claim(finding, saving)
    planned_ns, enough = won.before_ns - won.after_ns, share >= 100.0 * LOW
    most = _MUCH_MORE * min(won.alone_ns, planned_ns)
    if enough and max(won.alone_ns, planned_ns) < most and _rated(won) == _rated(won, share):
        return claim(finding, saving)
    little = "little" if share >= _LEAST_SHARE_PCT else "nothing"
    return Claim(
        units.duration(won.alone_ns) if enough else little,
        "",
        "per step" if won.per_step else "",
        share=units.percent(100.0 * planned_ns / max(won.whole_ns, 1)),
        after_others=units.part_of(planned_ns, won.whole_ns),
    )


def _rated(won: Won, share: float | None = None) -> int:
    """How severe a saving is by its share alone, by default what it wins in the plan."""
    if share is None:
        share = 100.0 * (won.before_ns - won.after_ns) / max(won.whole_ns, 1)
    return sum(share >= 100.0 * each for each in (HIGH, MEDIUM, LOW))


def claim(finding: Finding, forecast: Forecast | None = None) -> Claim | None:
    """The possible saving of a finding; None if it claims none."""
    at_stake, share = finding.time_at_stake_ns, finding.share_of_step_pct
    if not at_stake:
        return None
    if forecast and forecast.is_partial:
        # One change seldom saves all of a general loss.
        forecast = replace(forecast, saving="at-most")
    lead = QUALIFIERS[forecast.saving if forecast else finding.saving]
    if forecast and forecast.saved_per_step_ns is not None and forecast.step_ns:
        saved, step = forecast.saved_per_step_ns, forecast.step_ns
        on_average = " on average" if forecast.is_mean else ""
        per = f"per {shortened(forecast.loop) or 'step'}{on_average}"
        return _of_whole(lead, (saved, step), per, forecast)
    if forecast and forecast.share_of_run_pct:
        share = forecast.share_of_run_pct
        steady = round(100.0 * at_stake / share)
        which = "after warm-up" if forecast.after_warm_up else ""
        return _of_whole(lead, (at_stake, steady), which, forecast)
    run_ns = finding.evidence.values.get("run_ns")
    if share is None and isinstance(run_ns, int):
        return _of_whole(lead, (at_stake, run_ns), "recorded", Forecast(None, None, None))
    amount = units.duration(at_stake)
    of_steady = "" if share is None else f"{units.percent(share)} of the time after warm-up"
    return Claim(lead, amount, "", amount, of_steady, _speedup(forecast))


def _of_whole(
    lead: str, part_of_ns: tuple[int, int], which: str, forecast: Forecast
) -> Claim | None:
    """The claim of a part of a whole, both in ns; `which` says of which whole: `per step`."""
    part_ns, whole_ns = part_of_ns
    # A bound has no error.
    error_ns = forecast.error_ns if forecast.saving == "about" else None
    if error_ns and units.is_hidden(part_ns, error_ns):
        # It may save nothing: all that is known is a bound, and not even that where it is all.
        most_ns = part_ns + error_ns
        if most_ns >= whole_ns:
            return None
        forecast = replace(forecast, speedup_at_most=None, saving="at-most")
        return _of_whole(QUALIFIERS["at-most"], (most_ns, whole_ns), which, forecast)
    if error_ns and part_ns + error_ns >= whole_ns and part_ns >= 2 * error_ns:
        # No more than all can be saved; a bound far below would hide how much that may be.
        lead, part_ns, error_ns = QUALIFIERS["at-least"], part_ns - error_ns, None
        forecast = replace(forecast, speedup_at_most=whole_ns / (whole_ns - part_ns))
    share, pct = (100.0 * each / max(whole_ns, 1) for each in (part_ns, error_ns or 0))
    return Claim(
        lead,
        units.with_error(part_ns, error_ns),
        f"of {units.duration(whole_ns)} {which}".rstrip(),
        f"{units.part_of(part_ns, whole_ns, error_ns)} {which}".rstrip(),
        units.percent(share, pct),
        _speedup(forecast, whole_ns, part_ns, error_ns),
    )


def _speedup(
    forecast: Forecast | None, whole_ns: int = 0, saved_ns: int = 0, error_ns: int | None = None
) -> str:
    """The speed-up, such as `1.6× as fast`; empty below LEAST_SPEEDUP, or for a partial loss."""
    factor = forecast.speedup_at_most if forecast and not forecast.is_partial else None
    if factor is None or factor < LEAST_SPEEDUP:
        return ""
    if error_ns:
        return f"{units.times_as_fast(whole_ns, whole_ns - saved_ns, error_ns)} as fast"
    return f"{units.quantity('speedup_factor', factor)} as fast"


_FACTS = ("only ranges", "without ranges", "GPU", "duration", "contains", "recorded by")


def warnings(report: Report) -> list[str]:
    """What is wrong with the recording, without the errors that a finding above `info` states."""
    rated = (row.finding for row in report.findings if row.severity != "info")
    errors = [str(error) for each in rated if (error := each.evidence.values.get("error"))]
    return [text for text in report.trace.warnings if not text.endswith(tuple(errors))]


def report_document(report: Report) -> Document:
    """A recording's answers. Tables of details are left to the formats that show every table."""
    facts = dict(header_facts(report.trace))
    return Document(
        title=report.trace.path.rpartition("/")[2],
        facts=tuple(facts[name] for name in _FACTS if name in facts),
        headline=report.verdict.text if report.verdict else "",
        shares=report.verdict.shares_text if report.verdict else "",
        tiles=tiles(report.scoreboard) if report.scoreboard else (),
        warnings=tuple(("Warning", text) for text in warnings(report)),
        plan=plan_text(report),
        findings=report.findings,
        nothing_found=nothing_found(report),
        sections=tuple(_sections(report)),
    )


def _sections(report: Report) -> Iterator[Section]:
    single = single_ids(report.trace)
    for analysis in report.analyses:
        outcome = report.outcomes[analysis.name]
        if isinstance(outcome, Skipped):
            yield Section(analysis.title, (outcome,))
            continue
        shown = outcome.shown(analysis.tables)
        sheets = [Sheet(*each, single) for each in shown if len(each[1]) and not each[0].detail]
        if sheets:
            yield Section(f"{analysis.title}: {analysis.question}", tuple(sheets))


def single_ids(trace: TraceFacts) -> frozenset[str]:
    """Names of the id columns that have one value in the whole recording."""
    hosts = {gpu.host_id for gpu in trace.gpus} | {each.host_id for each in trace.processes}
    few = {"device_id": len(trace.gpus), "process_id": len(trace.processes), "host_id": len(hosts)}
    return frozenset(name for name, count in few.items() if count <= 1)


def telling_columns(spec: TableSpec, table: Table, single: Set[str]) -> Iterator[Column]:
    """The informative columns; the first brief column stays unless it is a single id."""
    for position, column in enumerate(spec.columns):
        silent = column.name in single or _is_zero(table, column)
        # Without any other column, ids are all that the table shows.
        first = spec.brief_names[0] if spec.brief else column.name
        keeps = column.name == first and column.name not in single
        if not silent or keeps or (len(spec.columns) == 1 and position == 0):
            yield column


def _is_zero(table: Table, column: Column) -> bool:
    if column.dtype in ("text", "bytes", "bool") or units.is_moment(column.name):
        return False
    return not np.any(np.nan_to_num(table[column.name].astype(float))[~table.is_null(column.name)])
