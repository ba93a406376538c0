"""Bench reports for a terminal: versions, profiles, sweeps of programs, differences of runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.tables import Table, TableSpec, column_list
from traceview.render.base.safe_text import visible
from traceview.render.base.text import cells, drawn, fitting, grid, heading, note_block, table_of
from traceview.trials.bench.comparison import BenchReport, VersionResult
from traceview.trials.bench.history import BenchDifference, VersionDifference
from traceview.trials.bench.measurement import Timing
from traceview.trials.bench.plan import Machine, Peaks
from traceview.trials.bench.program import ProgramSweep

_LEAST_TEXT = 18
_VERSIONS = TableSpec(
    "versions",
    "one row per version",
    column_list("""
        version text: name
        time text: median per call
        p10_to_p90 text?: 10th to 90th percentile
        bytes_per_s float64?: minimum traffic ÷ time
        of_peak text?: percent of peak
        flop_per_s float64?: FLOP ÷ time
        error text?: relative to float64
        loads_bits int64?: bits per thread per load
        speed text?: relative to the first
        note sentence?: what distinguishes it
    """),
    "version time bytes_per_s of_peak error loads_bits p10_to_p90 speed",
)


def render_bench(
    report: BenchReport,
    *,
    width: int = 80,
    color: bool = False,
) -> str:
    """The report in lines of at most `width` cells; with `color`, ANSI styles."""
    groups = groupby(report.rows, key=lambda row: (row.size, row.dtype, row.value))
    tables = [_versions(report, list(rows), width) for _, rows in groups]
    title = heading(visible(report.operation.title), visible(report.operation.name))
    notes = (note_block("Note: ", note, "dim") for note in report.notes)
    return drawn(
        [
            Group(title, _machine(report.machine, report.peaks), *notes),
            *tables,
            *_fits(report),
        ],
        width,
        color,
    )


def _machine(machine: Machine, peaks: Peaks) -> RenderableType:
    """The machine of a measurement, as pairs of label and text."""
    gpu = f"{machine.gpu}, {machine.sm_count} SMs" if machine.gpu else "none"
    versions = (
        ("driver", machine.driver_version),
        ("CUDA", machine.cuda_version if machine.gpu else None),
        ("torch", machine.torch_version),
        ("triton", machine.triton_version),
        ("Python", machine.python_version),
    )
    installed = " · ".join(f"{name} {version}" for name, version in versions if version)
    peak = units.quantity("bytes_per_s", peaks.memory_bytes_per_s)
    of_memory = [("peak", f"{peak} ({peaks.source})")] if peaks.memory_bytes_per_s else []
    rows = grid("", "")
    for name, value in [("GPU", gpu), *of_memory, ("versions", installed)]:
        rows.add_row(Text(name, "dim"), Text(visible(value)))
    return rows


def _versions(report: BenchReport, rows: Sequence[VersionResult], width: int) -> RenderableType:
    first = rows[0]
    work = [units.size(first.bytes_moved), units.quantity("flop", first.flop)]
    plural = report.operation.size_means
    singular = plural if " " in plural else report.operation.unit
    size = units.counted(first.size, singular, plural)
    swept = [] if first.value is None else [f"{report.over} {units.count(first.value)}"]
    facts = (*swept, size, first.dtype, *work)
    timed = [row.timing for row in rows if row.timing]
    head = Text(" · ".join(visible(each) for each in facts), "bold")
    table = cells(fitting(_VERSIONS, _version_table(report, rows), width, _LEAST_TEXT))
    return Group(head, *_method(timed), *_cache_note(report, rows), table, *_remarks(rows))


def _version_table(report: BenchReport, rows: Sequence[VersionResult]) -> Table:
    def time(row: VersionResult) -> str:
        return units.duration(row.median_ns) if row.timing else _STATES.get(row.status, row.status)

    def speed(row: VersionResult) -> str | None:
        speedup = report.speedup(row)
        return f"{units.quantity('', speedup)} ×" if speedup else None

    def of_peak(row: VersionResult) -> str | None:
        return None if row.peak_pct is None else f"{units.percent(row.peak_pct)} {row.bound}"

    return table_of(
        _VERSIONS,
        rows,
        time=time,
        p10_to_p90=lambda row: _spread(row.timing) if row.timing else None,
        of_peak=of_peak,
        error=lambda row: None if row.error is None else f"{row.error:.1e}",
        loads_bits="width.bits",
        speed=speed,
        note=lambda row: report.operation.version(row.version).note or None,
    )


_STATES = {"wrong": "WRONG", "failed": "FAILED", "unsupported": "n/a"}

_REASONS = {
    "right": "right, not timed: {}",
    "wrong": "WRONG, not timed: {}",
    "failed": "FAILED: {}",
    "skipped": "skipped: {}",
    "unsupported": "unsupported: {}",
}


def _spread(timing: Timing) -> str:
    return f"{units.duration(timing.p10_ns)} – {units.duration(timing.p90_ns)}"


def _method(timed: Sequence[Timing]) -> list[RenderableType]:
    if not timed:
        return []
    first = timed[0]
    trials = {timing.trials for timing in timed}
    count = str(min(trials)) if len(trials) == 1 else f"{min(trials)} to {max(trials)}"
    clock = {"cuda-events": "CUDA events", "wall": "wall clock", "perf-counter": "perf_counter"}
    cache = f", {first.cache} L2" if first.clock == "cuda-events" else ""
    return [Text(f"median of {count} trials, {clock[first.clock]}{cache}", "dim")]


def _cache_note(report: BenchReport, rows: Sequence[VersionResult]) -> list[RenderableType]:
    """A note if all traffic fits in L2, so that some of it may not reach memory."""
    cache, moved = report.machine.l2_cache_bytes, rows[0].bytes_moved
    if not cache or moved is None or moved > cache or all(row.bound != "memory" for row in rows):
        return []
    note = f"the data fits in the L2 cache ({units.size(cache)}), so % of peak may exceed 100"
    return [note_block("", note, "dim")]


def _remarks(rows: Sequence[VersionResult]) -> list[RenderableType]:
    """Each remark once, with the versions that it applies to."""
    versions: dict[str, list[str]] = {}
    for row in rows:
        for remark in _remarks_on(row):
            versions.setdefault(remark, []).append(row.version)
    counts = (
        ("calls per measurement: ", [(r, t.calls_per_trial) for r, t in _timed(rows)], 1),
        ("outliers: ", [(r, t.outliers) for r, t in _timed(rows)], 0),
    )
    return [
        *(note_block(f"{', '.join(names)}: ", remark) for remark, names in versions.items()),
        *(
            note_block(
                lead, ", ".join(f"{row.version} {n}" for row, n in each if n != usual), "dim"
            )
            for lead, each, usual in counts
            if any(n != usual for _, n in each)
        ),
    ]


def _timed(rows: Sequence[VersionResult]) -> list[tuple[VersionResult, Timing]]:
    return [(row, row.timing) for row in rows if row.timing]


def _remarks_on(row: VersionResult) -> list[str]:
    remarks = [_REASONS[row.status].format(row.why)] if row.why else []
    remarks += row.timing.cautions if row.timing else []
    if row.checked_size not in (None, row.size):
        remarks.append(f"checked at size {units.count(row.checked_size)} because memory is short")
    if row.width and row.width.bits is None and row.width.why:
        remarks.append(f"no load width: {row.width.why}")
    if row.width and row.width.bits and row.width.size not in (None, row.size):
        remarks.append(f"load width compiled for size {units.count(row.width.size)}")
    return remarks


def _fits(report: BenchReport) -> list[RenderableType]:
    if not report.fits:
        return []
    rows = grid("", "", "")
    for (dtype, name), fit in report.fits.items():
        sentence = visible(fit.sentence(report.unit, report.over))
        rows.add_row(Text(visible(name)), Text(dtype, "dim"), Text(sentence))
    return [Group(heading(f"Time over {visible(report.over)}"), rows)]


_VALUES = TableSpec(
    "values",
    "one row per value",
    column_list("""
        value int64: value of the option
        time text: median time per run
        p10_to_p90 text: 10th to 90th percentile
        outliers int64: outlier runs
        last_line sentence?: last line that the program printed
    """),
    "value time p10_to_p90 last_line outliers",
)


def render_program(program: ProgramSweep, *, width: int = 80, color: bool = False) -> str:
    """The sweep in lines of at most `width` cells; with `color`, ANSI styles."""
    command = f"{program.path} --{program.sweep.over} N {' '.join(program.arguments)}".rstrip()
    title = heading(f"Time over {visible(program.sweep.over)}", visible(command))
    trials = min(timing.trials for _, timing in program.sweep.points)
    method = (
        f"median of {units.counted(trials, 'run')} (perf_counter), from the program's first line "
        "until the GPU is done; imports are loaded beforehand"
    )
    table = table_of(
        _VALUES,
        [*zip(program.sweep.points, program.last_lines, strict=True)],
        value=lambda run: run[0][0],
        time=lambda run: units.duration(run[0][1].median_ns),
        p10_to_p90=lambda run: _spread(run[0][1]),
        outliers=lambda run: run[0][1].outliers,
        last_line=lambda run: run[1] or None,
    )
    rows = cells(fitting(_VALUES, table, width, _LEAST_TEXT))
    blocks = (
        Group(title, _machine(program.machine, Peaks())),
        Group(note_block("", method, "dim"), rows),
        Text(visible(str(program.sweep)), "bold"),
    )
    return drawn(blocks, width, color)


_LEAST_DIFFERENCE_TEXT = 14
_DIFFERENCES = TableSpec(
    "differences",
    "one row per version, size and data type",
    column_list("""
        version text: name
        size int64: size
        value int64?: swept value
        dtype text: data type
        before text?: median per call
        after text?: median per call
        difference text?: relative to before
        interval text?: 95 % interval of the difference
        verdict text: whether it exceeds the noise
    """),
    "version size value before after difference verdict interval dtype",
)
_ONE_RUN = (
    "One run per side: its trials scatter less than runs do, so no difference is certain. Compare "
    "at least four runs per side with traceview.compare_benchmarks."
)
_FEW = "Fewer than four runs per side prove no difference."
_WORDS = {
    "unclear": "within noise",
    "untimed": "not compared",
    "appeared": "new",
    "vanished": "not measured",
}
_FEWEST = 4


def render_difference(difference: BenchDifference, *, width: int = 80, color: bool = False) -> str:
    """The differences in lines of at most `width` cells; with `color`, ANSI styles."""
    table = table_of(
        _DIFFERENCES,
        difference.rows,
        before=lambda row: None if row.before_ns is None else units.duration(row.before_ns),
        after=lambda row: None if row.after_ns is None else units.duration(row.after_ns),
        difference=_relative,
        interval=_interval,
        verdict=lambda row: _WORDS.get(row.change, row.change),
    )
    blocks: list[RenderableType] = [heading("Compared with before")]
    blocks += [note_block("Differs: ", note) for note in difference.notes]
    blocks += [cells(fitting(_DIFFERENCES, table, width, _LEAST_DIFFERENCE_TEXT))]
    blocks += [Text(visible(line)) for row in difference.rows for line in _exact(row)]
    runs = (difference.runs_before, difference.runs_after)
    if runs == (1, 1):
        blocks.append(note_block("Note: ", _ONE_RUN, "dim"))
    elif min(runs) < _FEWEST and not any(row.is_certain for row in difference.rows):
        blocks.append(note_block("Note: ", _FEW, "dim"))
    return drawn(blocks, width, color)


def _relative(row: VersionDifference) -> str | None:
    return units.percent_difference(row.delta_pct)


def _interval(row: VersionDifference) -> str | None:
    if row.low_ns is None or row.high_ns is None:
        return None
    return f"{units.difference(row.low_ns)} to {units.difference(row.high_ns)}"


def _exact(row: VersionDifference) -> list[str]:
    """The changes that need no statistics: in the check's result and in the load width."""
    if row.change in ("appeared", "vanished"):
        return []
    swept = "" if row.value is None else f", {row.value:,}"
    where = f"{row.version}, size {row.size:,}{swept}, {row.dtype}"
    lines = []
    if row.status_before != row.status_after:
        lines.append(f"{where}: {row.status_after}, was {row.status_before}")
    if row.load_bits_before != row.load_bits_after:
        widths = [units.count(bits) if bits else "unknown" for bits in
                  (row.load_bits_after, row.load_bits_before)]  # fmt: skip
        lines.append(f"{where}: load width {widths[0]}, was {widths[1]} bits per thread")
    return lines
