"""The tables of `roofline`, column by column."""

from __future__ import annotations

from traceview.analyses.base import TableSpec
from traceview.analyses.roofline.points import NEAR_PCT
from traceview.facts.operations.hosts import HOST
from traceview.tables import Column

KERNELS = TableSpec(
    "kernels",
    "one row per kernel, grid, block, registers, declaring range, work per call and basis, longest "
    "time first; kernels of unknown work are left out",
    (
        Column("short_name", "text", "base name; for several kernels in one range, the range's"),
        Column("label", "text", "base name, with what distinguishes it from others of that name"),
        Column("device_id", "int32", "GPU"),
        HOST,
        Column("grid", "text", "blocks along x, y and z; absent for a range", nullable=True),
        Column(
            "block", "text", "threads per block along x, y and z; absent for a range", nullable=True
        ),
        Column("registers_per_thread", "int64", "absent for a range", nullable=True),
        Column("declared_in", "text", "range that declares its work", nullable=True),
        Column("calls", "int64", "launches of known work"),
        Column("total_ns", "int64", "GPU time of these calls"),
        Column(
            "bytes",
            "int64",
            "moved between device memory and the GPU by these calls",
            nullable=True,
        ),
        Column("flop", "int64", "floating-point operations of these calls", nullable=True),
        Column("achieved_bytes_per_s", "int64", "bytes ÷ time", nullable=True),
        Column("achieved_flop_per_s", "int64", "FLOP ÷ time", nullable=True),
        Column("flop_per_byte", "float64", "arithmetic intensity", nullable=True),
        Column("flop_kind", "text", "type and unit of most of the FLOP", nullable=True),
        Column(
            "memory_peak_pct",
            "float64",
            "percent of peak bandwidth; absent above 100 %, where caches must have served bytes",
            nullable=True,
        ),
        Column(
            "compute_peak_pct",
            "float64",
            "percent of the peak rate of that kind",
            nullable=True,
        ),
        Column(
            "bound",
            "text",
            f"memory or compute: the greater percentage, if {NEAR_PCT:.0f} % or more; latency: "
            "both are lower; unknown: one is unknown and the other lower",
        ),
        Column("peak_bytes_per_s", "int64", "peak bandwidth of its GPU", nullable=True),
        Column("peak_flop_per_s", "int64", "peak FLOP rate of that kind, dense", nullable=True),
        Column("least_ns", "int64", "time of this work at the nearer ceiling", nullable=True),
        Column(
            "at_stake_ns", "int64", "time beyond that: the most that can be saved", nullable=True
        ),
        Column("basis", "text", "source of bytes and FLOP", prose=True),
        Column("beside_pct", "float64", "percentage of the time in calls that overlap other work"),
        Column("name", "text", "kernel, demangled, whole; for several, the range's"),
    ),
    brief=(
        "label",
        "calls",
        "total_ns",
        "achieved_bytes_per_s",
        "memory_peak_pct",
        "achieved_flop_per_s",
        "compute_peak_pct",
        "bound",
        "at_stake_ns",
        "basis",
    ),
)
ROOFS = TableSpec(
    "roofs",
    "peak rates of the GPUs that the kernels above are compared with",
    (
        Column("device_id", "int32", "GPU"),
        HOST,
        Column("roof", "text", "memory, or a kind of FLOP"),
        Column("peak_bytes_per_s", "int64", "peak bandwidth", nullable=True),
        Column("peak_flop_per_s", "int64", "peak FLOP rate of that kind, dense", nullable=True),
        Column("source", "text", "where the rate comes from", prose=True),
    ),
    brief=("device_id", "roof", "peak_bytes_per_s", "peak_flop_per_s", "source"),
    detail=True,
)
