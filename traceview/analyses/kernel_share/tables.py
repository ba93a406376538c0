"""The tables of `kernel-share`, column by column."""

from __future__ import annotations

from traceview.analyses.base import TableSpec
from traceview.facts.operations.hosts import HOST
from traceview.tables import Column

KERNELS = TableSpec(
    "kernels",
    "one row per kernel, longest total time first",
    (
        Column("name", "text", "demangled, whole"),
        Column("short_name", "text", "base name, without templates and arguments"),
        Column("label", "text", "base name, with what distinguishes it from others of that name"),
        Column(
            "tile",
            "text",
            "tile of a library GEMM, from its name: rows x columns per block (column-major), depth "
            "x pipeline stages, input type",
            nullable=True,
        ),
        Column("calls", "int64", "launches"),
        Column("total_ns", "int64", "GPU time of all calls"),
        Column("mean_ns", "int64", "mean time per call, rounded"),
        Column("median_ns", "int64", "median time per call"),
        Column("min_ns", "int64", "shortest call"),
        Column("max_ns", "int64", "longest call"),
        Column("share_pct", "float64", "percentage of the time of all kernels"),
        Column("processes", "int64", "processes that launched it, on all hosts"),
        Column("steady_total_ns", "int64", "part of total after warm-up"),
    ),
    brief=("label", "calls", "total_ns", "share_pct", "median_ns", "max_ns", "min_ns"),
    adds=("calls", "total_ns", "share_pct", "steady_total_ns"),
)
CLASSES = TableSpec(
    "classes",
    "one row per GPU and kernel class, inferred from kernel names; longest total time first",
    (
        Column("device_id", "int64", "GPU"),
        HOST,
        Column(
            "class",
            "text",
            "gemm, attention, convolution, normalization, elementwise, cast-copy, reduction, "
            "softmax, gather-scatter, sort-scan, optimizer (all foreach kernels of torch), random, "
            "communication, autotuner, other",
        ),
        Column("calls", "int64", "launches"),
        Column("total_ns", "int64", "GPU time of all calls"),
        Column("median_ns", "int64", "median time per call"),
        Column("share_pct", "float64", "percentage of the time of all kernels of this GPU"),
        Column("steady_total_ns", "int64", "part of total after warm-up"),
    ),
    brief=("device_id", "class", "calls", "total_ns", "share_pct", "median_ns"),
    adds=("calls", "total_ns", "steady_total_ns"),
)
RANGES = TableSpec(
    "ranges",
    "one row per kernel and range; each call counts once, under the innermost range around its "
    "launch",
    (
        Column("range_path", "text", "range names, outermost first, joined by /"),
        Column("short_name", "text", "base name of the kernel"),
        Column("calls", "int64", "launches"),
        Column("total_ns", "int64", "GPU time of all calls"),
        Column("share_pct", "float64", "percentage of the time of all kernels"),
        Column(
            "inferred_calls",
            "int64",
            "calls launched from a thread without ranges (autograd's, say) and attributed to the "
            "range open on the main thread at that moment; 0 with --strict",
        ),
        Column("inferred_ns", "int64", "GPU time of the inferred calls"),
        Column("processes", "int64", "processes that launched it, on all hosts"),
    ),
    brief=("range_path", "short_name", "calls", "total_ns", "share_pct", "inferred_calls"),
    detail=True,
    adds=("calls", "total_ns", "share_pct", "inferred_calls", "inferred_ns"),
)
PATTERNS = TableSpec(
    "range_patterns",
    "one row per range pattern (numbers become #, so that all steps add up); a call counts under "
    "every range around it, so shares overlap",
    (
        Column("range_pattern", "text", "range path with # for numbers"),
        Column("instances", "int64", "times such a range was entered", nullable=True),
        Column("calls", "int64", "kernel launches"),
        Column("total_ns", "int64", "GPU time of these kernels"),
        Column("share_pct", "float64", "percentage of the time of all kernels"),
        Column("per_instance_ns", "int64", "GPU time per instance, rounded", nullable=True),
    ),
    brief=("range_pattern", "instances", "total_ns", "share_pct", "per_instance_ns", "calls"),
)
INCLUSIVE = TableSpec(
    "ranges_inclusive",
    "one row per range; a call counts under every range around it, so shares overlap",
    (
        Column("range_path", "text", "range names, outermost first, joined by /"),
        Column("calls", "int64", "kernel launches"),
        Column("total_ns", "int64", "GPU time of these kernels"),
        Column("share_pct", "float64", "percentage of the time of all kernels"),
    ),
    brief=("range_path", "calls", "total_ns", "share_pct"),
    detail=True,
)
