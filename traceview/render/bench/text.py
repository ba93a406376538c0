"""A bench report for a terminal: a table of the versions for every size and data type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.bench.comparison import BenchReport, Row
from traceview.bench.describe import Description, TensorFacts
from traceview.bench.machine import Machine, Peaks
from traceview.bench.timing.measurement import Timing
from traceview.render.base.columns import fitting
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import cells, drawn, grid, heading, noted
from traceview.tables import Column, Table

_LEAST_TEXT = 18
_VERSIONS = TableSpec(
    "versions",
    "each way to compute it",
    (
        Column("version", "text", "which"),
        Column("time", "text", "median"),
        Column("p10_to_p90", "text", "spread", nullable=True),
        Column("bytes_per_s", "float64", "least traffic ÷ time", nullable=True),
        Column("of_peak", "text", "of the nearer roof", nullable=True),
        Column("flop_per_s", "float64", "arithmetic ÷ time", nullable=True),
        Column("error", "text", "against float64", nullable=True),
        Column("loads_bits", "int64", "bits of a load", nullable=True),
        Column("speed", "text", "of the first", nullable=True),
        Column("note", "text", "what it is", nullable=True, prose=True),
    ),
    ("version", "time", "bytes_per_s", "of_peak", "error", "loads_bits", "p10_to_p90", "speed"),
)
_TENSORS = TableSpec(
    "tensors",
    "what goes in and comes out",
    (
        Column("tensor", "text", "which"),
        Column("shape", "text", "elements by dimension"),
        Column("strides", "text", "elements from one to the next"),
        Column("dtype", "text", "type"),
        Column("contiguous", "bool", "without holes"),
        Column("bytes", "int64", "of its elements"),
        Column("least", "float64", "of the finite", nullable=True),
        Column("greatest", "float64", "of the finite", nullable=True),
        Column("nan", "int64", "not numbers"),
        Column("inf", "int64", "infinite"),
    ),
    ("tensor", "shape", "strides", "dtype", "contiguous", "bytes", "least", "greatest"),
)


def render_bench(
    report: BenchReport,
    *,
    description: Description | None = None,
    width: int = 80,
    color: bool = False,
) -> str:
    """The report in lines of at most `width` cells; with `color`, ANSI styles."""
    groups = groupby(report.rows, key=lambda row: (row.size, row.dtype, row.value))
    tables = [_versions(report, list(rows), width) for _, rows in groups]
    described = [_described(description, width)] if description else []
    return drawn([_header(report), *described, *tables, *_fits(report)], width, color)


def _header(report: BenchReport) -> RenderableType:
    rows = grid("", "")
    for name, value in machine_facts(report.machine, report.peaks):
        rows.add_row(Text(name, "dim"), Text(visible(value)))
    title = heading(visible(report.operation.title), visible(report.operation.name))
    return Group(title, rows, *(noted("Note: ", note, "dim") for note in report.notes))


def machine_facts(machine: Machine, peaks: Peaks) -> list[tuple[str, str]]:
    """What it was measured on, in pairs of a word and what there is to say."""
    gpu = f"{machine.gpu}, {machine.sm_count} SMs" if machine.gpu else "none"
    versions = (
        ("driver", machine.driver_version),
        ("CUDA", machine.cuda_version if machine.gpu else None),
        ("torch", machine.torch_version),
        ("triton", machine.triton_version),
        ("Python", machine.python_version),
    )
    said = " · ".join(f"{name} {version}" for name, version in versions if version)
    peak = units.quantity("bytes_per_s", peaks.memory_bytes_per_s)
    of_memory = [("peak", f"{peak} ({peaks.source})")] if peaks.memory_bytes_per_s else []
    return [("GPU", gpu), *of_memory, ("versions", said)]


def _versions(report: BenchReport, rows: Sequence[Row], width: int) -> RenderableType:
    first = rows[0]
    work = [units.size(first.bytes_moved), units.quantity("flop", first.flop)]
    many = report.operation.size_means
    size = units.counted(first.size, many if " " in many else report.operation.unit, many)
    swept = [] if first.value is None else [f"{report.over} {units.count(first.value)}"]
    said = (*swept, size, first.dtype, *work)
    timed = [row.timing for row in rows if row.timing]
    head = Text(" · ".join(visible(each) for each in said), "bold")
    table = cells(fitting(_VERSIONS, _version_table(report, rows), width, _LEAST_TEXT))
    return Group(head, *_measured_how(timed), *_cached(report, rows), table, *_remarks(rows))


def _version_table(report: BenchReport, rows: Sequence[Row]) -> Table:
    values = [_version_cells(report, row) for row in rows]
    names = [column.name for column in _VERSIONS.columns]
    return Table(_VERSIONS.columns, {n: [each[n] for each in values] for n in names})


def _version_cells(report: BenchReport, row: Row) -> dict[str, object]:
    timing, speedup = row.timing, report.speedup(row)
    peak = f"{units.percent(row.peak_pct)} {row.bound}" if row.peak_pct is not None else None
    return {
        "version": row.version,
        "time": units.duration(row.median_ns) if timing else _STATES.get(row.status, row.status),
        "p10_to_p90": _spread(timing) if timing else None,
        "bytes_per_s": row.bytes_per_s,
        "of_peak": peak,
        "flop_per_s": row.flop_per_s,
        "error": None if row.error is None else f"{row.error:.1e}",
        "loads_bits": row.width.bits if row.width else None,
        "speed": f"{units.quantity('', speedup)} ×" if speedup else None,
        "note": report.operation.version(row.version).note or None,
    }


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


def _measured_how(timed: Sequence[Timing]) -> list[RenderableType]:
    if not timed:
        return []
    first = timed[0]
    trials = {timing.trials for timing in timed}
    many = str(min(trials)) if len(trials) == 1 else f"{min(trials)} to {max(trials)}"
    clock = {"cuda-events": "CUDA events", "wall": "wall clock", "perf-counter": "perf_counter"}
    cache = f", {first.cache} L2" if first.clock == "cuda-events" else ""
    return [Text(f"median of {many} trials by {clock[first.clock]}{cache}", "dim")]


def _cached(report: BenchReport, rows: Sequence[Row]) -> list[RenderableType]:
    """What was written, and with a warm cache what is read, may never get to memory."""
    cache, moved = report.machine.l2_cache_bytes, rows[0].bytes_moved
    if not cache or moved is None or moved > cache or all(row.bound != "memory" for row in rows):
        return []
    said = f"all of it fits into the L2 cache of {units.size(cache)}: % of peak may pass 100"
    return [noted("", said, "dim")]


def _remarks(rows: Sequence[Row]) -> list[RenderableType]:
    """Each remark once, with the versions that it holds for."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for remark in _remarks_on(row):
            said.setdefault(remark, []).append(row.version)
    counts = (
        ("calls measured in one group: ", [(r, t.calls_per_trial) for r, t in _timed(rows)], 1),
        ("outliers: ", [(r, t.outliers) for r, t in _timed(rows)], 0),
    )
    return [
        *(noted(f"{', '.join(names)}: ", remark) for remark, names in said.items()),
        *(
            noted(lead, ", ".join(f"{row.version} {n}" for row, n in each if n != usual), "dim")
            for lead, each, usual in counts
            if any(n != usual for _, n in each)
        ),
    ]


def _timed(rows: Sequence[Row]) -> list[tuple[Row, Timing]]:
    return [(row, row.timing) for row in rows if row.timing]


def _remarks_on(row: Row) -> list[str]:
    said = [_REASONS[row.status].format(row.why)] if row.why else []
    said += row.timing.cautions if row.timing else []
    if row.checked_size not in (None, row.size):
        said.append(f"checked at size {units.count(row.checked_size)}, for want of memory")
    if row.width and row.width.bits is None and row.width.why:
        said.append(f"no load width: {row.width.why}")
    if row.width and row.width.bits and row.width.size not in (None, row.size):
        said.append(f"load width as compiled for size {units.count(row.width.size)}")
    return said


def _fits(report: BenchReport) -> list[RenderableType]:
    if not report.fits:
        return []
    rows = grid("", "", "")
    for (dtype, name), fit in report.fits.items():
        said = visible(fit.sentence(report.unit, report.over))
        rows.add_row(Text(visible(name)), Text(dtype, "dim"), Text(said))
    return [Group(heading(f"Time over {visible(report.over)}"), rows)]


def _described(description: Description, width: int) -> RenderableType:
    tensors = [*description.inputs, *description.outputs]
    values = [_tensor_cells(each) for each in tensors]
    names = [column.name for column in _TENSORS.columns]
    table = Table(_TENSORS.columns, {n: [each[n] for each in values] for n in names})
    timing = f"reference {units.duration(description.timing.median_ns)}"
    peak = description.peak_memory_bytes
    memory = f" · {units.size(peak)} of GPU memory at most beyond the inputs" if peak else ""
    rows = cells(fitting(_TENSORS, table, width, _LEAST_TEXT))
    return Group(heading("Inputs and outputs"), Text(timing + memory), rows)


def _tensor_cells(tensor: TensorFacts) -> dict[str, object]:
    return {
        "tensor": tensor.name,
        "shape": " × ".join(map(str, tensor.shape)) or "scalar",
        "strides": ", ".join(map(str, tensor.strides)) or "–",
        "dtype": tensor.dtype,
        "contiguous": tensor.contiguous,
        "bytes": tensor.bytes,
        "least": tensor.least,
        "greatest": tensor.greatest,
        "nan": tensor.nan_count,
        "inf": tensor.inf_count,
    }
