"""The tables of `wave-quantization`, column by column."""

from __future__ import annotations

from traceview.analyses.base import TableSpec
from traceview.facts.operations.hosts import HOST
from traceview.tables import Column

KERNELS = TableSpec(
    "kernels",
    "one row per kernel, grid, block, registers and shared memory; most time lost first",
    (
        Column("short_name", "text", "base name of the kernel"),
        Column("label", "text", "base name, with what distinguishes it from others of that name"),
        Column("grid", "text", "blocks along x, y and z"),
        Column("block", "text", "threads per block along x, y and z"),
        Column("registers_per_thread", "int64", "registers per thread"),
        Column("shared_memory_bytes", "int64", "static and dynamic, per block"),
        Column("calls", "int64", "launches"),
        Column("total_ns", "int64", "GPU time of all calls"),
        Column("median_ns", "int64", "median time per call"),
        Column("blocks", "int64", "blocks of the grid"),
        Column("blocks_per_sm", "int64", "blocks that an SM holds at once", nullable=True),
        Column(
            "limiter",
            "text",
            "what keeps it from holding more: warps, blocks, registers, shared memory, shared "
            "memory config (as configured by the driver), barriers or clusters",
            nullable=True,
        ),
        Column(
            "theoretical_occupancy_pct",
            "float64",
            "warps of these blocks ÷ those that an SM can hold",
            nullable=True,
        ),
        Column("waves", "float64", "blocks ÷ blocks that the GPU holds at once", nullable=True),
        Column(
            "tail_idle_pct",
            "float64",
            "tail effect, 1 − waves ÷ ceil(waves): block slots that stay unused",
            nullable=True,
        ),
        Column(
            "tail_loss_ns",
            "int64",
            "upper bound over all calls: time × tail_idle_pct; below one wave, time beyond "
            "the shortest kernel (at most 100 µs) × fraction of idle SMs; absent where no loss is "
            "claimed, see note",
            nullable=True,
        ),
        Column("blocks_to_fill", "text", "nearest grid sizes that fill whole waves", nullable=True),
        Column("note", "text", "remarks", nullable=True, prose=True),
        Column("name", "text", "demangled, whole"),
        Column("device_id", "int64", "GPU"),
        HOST,
    ),
    brief=(
        *("label", "blocks", "waves", "tail_idle_pct", "tail_loss_ns", "total_ns"),
        *("blocks_to_fill", "theoretical_occupancy_pct", "limiter", "note", "blocks_per_sm"),
    ),
    adds=("calls", "total_ns", "tail_loss_ns"),
)
GRIDS = TableSpec(
    "grids",
    "kernels that ran with several grid sizes, and whether their times rise in steps",
    (
        Column("kernel", "text", "label and blocks per wave"),
        Column("blocks", "int64", "blocks of the grid"),
        Column("waves", "float64", "blocks ÷ blocks that the GPU holds at once"),
        Column("calls", "int64", "launches"),
        Column("median_ns", "int64", "median time per call"),
        Column("predicted_ns", "int64", "waves, rounded up × time of a wave"),
        Column(
            "predicted_ratio", "float64", "predicted time ÷ that of the previous row", nullable=True
        ),
        Column("measured_ratio", "float64", "median ÷ that of the previous row", nullable=True),
        Column(
            "measured",
            "text",
            "across waves: step (within 10 % of the prediction) or no step; within a wave: "
            "level or rises; absent where the two rows do not show it",
            nullable=True,
        ),
        Column("wave_blocks", "int64", "blocks that the GPU holds at once"),
        Column("wave_ns", "int64", "time of a wave, from grids of whole waves"),
    ),
    brief=("kernel", "blocks", "waves", "median_ns", "predicted_ratio", "measured_ratio"),
    detail=True,
)
