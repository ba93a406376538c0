"""The tables of `steps`, column by column."""

from __future__ import annotations

from traceview.analyses.base import Keep, TableSpec
from traceview.facts.operations.hosts import HOST
from traceview.tables import Column

SERIES = TableSpec(
    "series",
    "one row per series of steps (ranges of one path pattern on one thread), or per loop "
    "where its loops differ",
    (
        Column(
            "series",
            "text",
            "path pattern of the ranges, with # for numbers; numbered where loops differ",
        ),
        Column("steps", "int64", "number of steps"),
        Column("warm_up_steps", "int64", "steps at the beginning that take longer than later ones"),
        Column("outliers", "int64", "later steps that take longer than the limit"),
        Column("median_ns", "int64", "median time per step after warm-up"),
        Column("p90_ns", "int64", "90th percentile of it", nullable=True),
        Column("limit_ns", "int64", "a step that takes longer is warm-up or an outlier"),
        Column(
            "gpu_busy_pct",
            "float64",
            "percentage of the time of steps after warm-up",
            nullable=True,
        ),
        Column(
            "sync_wait_pct",
            "float64",
            ("CPU time in synchronizations, as a percentage of these steps"),
        ),
        Column(
            "excess_ns",
            "int64",
            "time of outliers beyond the median, including one-time idle time",
        ),
        Column("process_id", "int64", "id of the operating system"),
        Column("thread_id", "int64", "id of the operating system"),
        HOST,
    ),
    brief=(
        "series",
        "host_id",
        "process_id",
        "steps",
        "warm_up_steps",
        "median_ns",
        "p90_ns",
        "gpu_busy_pct",
        "outliers",
    ),
)
STEPS = TableSpec(
    "steps",
    "one row per step, outliers first, then in order of time",
    (
        Column(
            "step",
            "text",
            (
                "its range as --range takes it: the name, or where names repeat the path with "
                "a number"
            ),
        ),
        Column(
            "kind",
            "text",
            "warm-up, outlier, steady; or without-gpu-work in a loop that has GPU work",
        ),
        Column(
            "duration_ns",
            "int64",
            "from the end of the previous step's GPU work to the end of its own",
        ),
        Column(
            "why", "text", "parts that make it longer than the median", nullable=True, prose=True
        ),
        Column("gpu_busy_ns", "int64", "GPU busy time", nullable=True),
        Column("gpu_idle_ns", "int64", "GPU idle time", nullable=True),
        Column(
            "sync_wait_ns",
            "int64",
            ("CPU time in synchronizations and blocking copies in the range"),
        ),
        Column("launches", "int64", "launch calls"),
        Column("operations", "int64", "GPU operations launched in it"),
        Column("lead_ns", "int64", "end of its GPU work − end of its range", nullable=True),
        Column("cpu_ns", "int64", "duration of its range"),
        Column("cpu_start_ns", "int64", "start of its range"),
        Column("series", "text", "series it belongs to"),
        Column("process_id", "int64", "id of the operating system"),
        Column("thread_id", "int64", "id of the operating system"),
        HOST,
    ),
    brief=(
        "step",
        "host_id",
        "kind",
        "duration_ns",
        "why",
        "gpu_busy_ns",
        "gpu_idle_ns",
        "sync_wait_ns",
        "lead_ns",
    ),
    adds=("launches", "operations"),
)
PART_TABLE = TableSpec(
    "parts",
    "time of each step by part, in chronological order",
    (
        Column("step", "text", "as in steps"),
        Column(
            "part", "text", "GPU work, or idle time by cause; CPU parts for a step without GPU work"
        ),
        Column("part_ns", "int64", "time of the part; with several GPUs, their mean"),
    ),
    brief=("step", "part", "part_ns"),
    detail=True,
    adds=("part_ns",),
    keep=Keep("part_ns"),
)
