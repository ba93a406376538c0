"""A report made by hand: render must draw any analysis, so it gets ones that exist nowhere else."""

from collections.abc import Sequence

from traceview.base.findings import Finding
from traceview.base.tables import Column, Keep, Table, TableSpec
from traceview.traces.analyses.base import Analysis, Chart, Result, Skipped
from traceview.traces.reporting import Report, analyze
from traceview.traces.trace import Selection, Trace
from traceview.traces.trace.schema import TABLES

HOSTILE = "</script><img src=x onerror=alert(1)> \"quoted\" 'single' & [bold]no markup[/bold] $x^2$"
CONTROLS = "line\none\x1b[31mred\x07 bidi\u202etxt.exe \x9b31m lone\ud800 \x00 tab\t"

SHARES = TableSpec(
    "shares",
    "One row per kernel, longest total time first",
    (
        Column("name", "text", "demangled, whole"),
        Column("short_name", "text", "base name"),
        Column("calls", "int64", "how often it ran"),
        Column("total_ns", "int64", "time of all its runs"),
        Column("mean_ns", "float64", "time of a run", nullable=True),
        Column("bytes", "int64", "bytes it moved", nullable=True),
        Column("share_pct", "float64", "of all kernel time"),
    ),
    brief="short_name total_ns share_pct calls",
)
STEPS = TableSpec(
    "steps",
    "One row per step",
    (
        Column("name", "text", "its range"),
        Column("cpu_start_ns", "int64", "when the CPU began it"),
        Column("cpu_end_ns", "int64", "when the CPU ended it"),
        Column("gpu_start_ns", "int64", "when its GPU work began", nullable=True),
        Column("gpu_end_ns", "int64", "when its GPU work ended", nullable=True),
    ),
    brief="name cpu_start_ns gpu_end_ns",
)
EMPTY = TableSpec("errors", "One row per error", (Column("text", "text", "message"),), "text")
CAUSES = TableSpec(
    "causes",
    "One row per device and cause",
    (
        Column("device", "text", "GPU"),
        Column("cause", "text", "why"),
        Column("idle_ns", "int64", "time without work"),
    ),
    brief="device cause idle_ns",
)
CHARTS = (
    Chart("bars", "shares", "Kernel time", "short_name", "total_ns"),
    Chart("bars", "causes", "Idle time by cause", "device", "idle_ns", stack="cause"),
)
STEP_CHART = Chart(
    "spans",
    "steps",
    "Steps on the CPU and on the GPU",
    "name",
    "cpu_start_ns",
    end="cpu_end_ns",
    value2="gpu_start_ns",
    end2="gpu_end_ns",
)


def a_trace(path: str = "/data/run 1.sqlite.xz", **changed: object) -> Trace:
    tables = {name: Table.empty(TABLES[name].columns) for name in ("kernels", "ranges", "threads")}
    device: dict[str, object] = {c.name: None for c in TABLES["devices"].columns}
    device |= {"host_id": 0, "device_id": 0, "name": "NVIDIA H200"}
    device |= {"compute_capability": "9.0", "sm_count": 132}
    tables["devices"] = Table.from_rows(TABLES["devices"].columns, [device])  # type: ignore[list-item]
    tables["processes"] = Table.from_rows(
        TABLES["processes"].columns, [{"host_id": 0, "process_id": 4242, "name": "python3"}]
    )
    settings: dict[str, object] = {
        "recorder": "nsys",
        "recorder_version": "2025.3.2.0",
        "export_schema_version": "3.20.3",
        "tables": tables,
        "warnings": ("schema 9.9 is newer than any known",),
        "selection": Selection(exclude=("step_[01]",)),
    }
    return Trace(path, **(settings | changed))  # type: ignore[arg-type]


def share_rows(names: Sequence[str]) -> Table:
    rows = [
        {
            "name": f"void {name}<float, 4>(float const*, float*)",
            "short_name": name,
            "calls": 1_000 + i,
            "total_ns": 12_345_678 // (i + 1),
            "mean_ns": None if i == 1 else 12_345.6 / (i + 1),
            "bytes": None if i else 4_194_304,
            "share_pct": 60.0 / (i + 1),
        }
        for i, name in enumerate(names)
    ]
    return Table.from_rows(SHARES.columns, rows)


def steps() -> Table:
    rows = [
        {
            "name": f"step_{i}",
            "cpu_start_ns": 10**9 + i * 1_000_000,
            "cpu_end_ns": 10**9 + i * 1_000_000 + 900_000,
            "gpu_start_ns": None if i == 3 else 10**9 + i * 2_000_000 + 100_000,
            "gpu_end_ns": None if i == 3 else 10**9 + i * 2_000_000 + 2_000_000,
        }
        for i in range(4)
    ]
    return Table.from_rows(STEPS.columns, rows)


def causes() -> Table:
    rows = [
        {"device": f"GPU {device}", "cause": cause, "idle_ns": idle * (device + 1)}
        for device in range(2)
        for cause, idle in (("sync-drain", 800_000), ("launch-late", 300_000), ("unknown", 0))
    ]
    return Table.from_rows(CAUSES.columns, rows)


def shares_result(names: Sequence[str]) -> Result:
    return Result(
        {"shares": share_rows(names), "causes": causes(), "errors": Table.empty(EMPTY.columns)},
        findings=(
            Finding("low", "cheap 1.00 ms", "Leave it.", 1_000_000),
            Finding("medium", "smaller 2.00 ms", "Mend it later.", 2_000_000),
            Finding("medium", f"3.00 ms in {names[0]}", f"Rewrite {names[0]}.", 3_000_000),
            Finding("info", "nothing to win", "", 0),
        ),
        summary={"kernel_ns": 12_345_678, "busy_pct": 97.25, "absent_bytes": None},
        notes=("Launches were recorded whole; record with --cuda-graph-trace=node.",),
    )


def analyses(names: Sequence[str]) -> tuple[Analysis, ...]:
    def compute_steps(trace: Trace) -> Result:
        return Result({"steps": steps()}, (Finding("high", "1.00 ms waits", "Act.", 1_000_000),))

    shares = (SHARES, CAUSES, EMPTY)
    return (
        Analysis(
            "share-of-all",
            "Share of all",
            "Which kernels take the time?",
            ("kernels",),
            shares,
            lambda trace: shares_result(names),
            CHARTS,
        ),
        Analysis(
            "step-lead",
            "Lead of the CPU",
            "How far does the CPU run ahead?",
            ("ranges",),
            (STEPS,),
            compute_steps,
            (STEP_CHART,),
        ),
        Analysis("copies", "Copies", "What is copied?", ("copies",), (), lambda trace: Result({})),
    )


def a_report(names: Sequence[str] = ("gemm", "softmax", "layer_norm"), **changed: object) -> Report:
    return analyze(a_trace(**changed), analyses=analyses(names))  # type: ignore[arg-type]


def a_skipped() -> Skipped:
    return Skipped("the trace has no copies table", "record with: nsys profile --trace=cuda")


def a_long_report(rows: int, keep: Keep | None = None) -> Report:
    """One table of many rows: three calls each, 1 µs of idle time, a worth that comes and goes."""
    columns = (
        Column("place", "text", "where"),
        Column("calls", "int64", "how often"),
        Column("idle_ns", "int64", "time without work"),
        Column("worth_pct", "float64", "how much it matters", nullable=True),
    )
    spec = TableSpec(
        "places", "One row per place", columns, "place", adds="calls idle_ns", keep=keep
    )
    lines = [
        {
            "place": f"place {row}",
            "calls": 3,
            "idle_ns": 1_000,
            "worth_pct": None if row % 7 == 3 else float(row % 5),
        }
        for row in range(rows)
    ]
    result = Result({"places": Table.from_rows(columns, lines)})
    places = Analysis("places", "Places", "Where?", (), (spec,), lambda trace: result)
    return analyze(a_trace(), analyses=[places])
