"""What kernels lose because their last wave of blocks does not fill the GPU.

A GPU holds `blocks_per_sm` × SMs blocks of a kernel at once: a wave. Where all blocks take the same
time, the share 1 − waves ÷ ceil(waves) of a kernel's time × the GPU's places for blocks goes by
empty, and `tail_loss_ns` is that share of its time, over all calls. That is an upper bound: blocks
of unequal length, or that compete within their SM, end at different times and lose less. Less than
a wave leaves places empty, not time, for the blocks that are there have more of their SM: only SMs
without a block count, and only of what calls took beyond the shortest kernel of the trace. Where
the trace holds the kernel with several grids, their times tell; without a step in them nothing is
claimed, and neither for kernels that others run beside, nor for persistent ones.

Of the persistent ones those of cuBLAS tell their tile by their name. Where the trace has the shapes
of the tensors, table `tiles` counts tiles instead of blocks: each round of them is a wave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from traceview import units
from traceview.analyses.base import Analysis, Chart, Result, Skipped, TableSpec
from traceview.analyses.warm_up_wording import OF_WARM_UP
from traceview.analyses.wave_quantization import gemm_table
from traceview.analyses.wave_quantization.gemm_waves import Rounds, rounds
from traceview.analyses.wave_quantization.losses import Loss, losses, round_losses
from traceview.analyses.wave_quantization.sm_limits import Sms, Unknown, sms
from traceview.analyses.wave_quantization.waves import (
    CONFIGURED,
    Launched,
    Sweep,
    Waves,
    launched,
    sweeps,
)
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.cuda_graphs import AS_NODES, cuda_graphs
from traceview.facts.operations.hosts import HOST, gpu_cells
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.work.from_ranges import shaped_gemms
from traceview.findings import Finding, Severity, severity_of, shortened
from traceview.tables import Cell, Column, Table
from traceview.trace import Trace

KERNELS = TableSpec(
    "kernels",
    "one row a kernel, grid, block, registers and shared memory; most time lost first",
    (
        Column("short_name", "text", "base name of the kernel"),
        Column("label", "text", "base name, and what tells it from others"),
        Column("grid", "text", "blocks along x, y and z"),
        Column("block", "text", "threads of a block along x, y and z"),
        Column("registers_per_thread", "int64", "registers of a thread"),
        Column("shared_memory_bytes", "int64", "a block's, static and dynamic"),
        Column("calls", "int64", "times it ran"),
        Column("total_ns", "int64", "time on the GPU, all calls"),
        Column("median_ns", "int64", "median of a call"),
        Column("blocks", "int64", "blocks of the grid"),
        Column("blocks_per_sm", "int64", "blocks that an SM holds at once", nullable=True),
        Column(
            "limiter",
            "text",
            "what keeps it from holding more: warps, blocks, registers, shared memory, shared "
            "memory config (what the driver set aside), barriers or clusters",
            nullable=True,
        ),
        Column(
            "theoretical_occupancy_pct",
            "float64",
            "warps of these blocks, of those that an SM holds",
            nullable=True,
        ),
        Column("waves", "float64", "blocks ÷ those that the GPU holds at once", nullable=True),
        Column(
            "tail_idle_pct",
            "float64",
            "1 − waves ÷ ceil(waves): places for blocks that the last wave leaves empty",
            nullable=True,
        ),
        Column(
            "tail_loss_ns",
            "int64",
            "at most, all calls: time × that share; in less than a wave, time beyond the shortest "
            "kernel × the share of SMs without a block; absent where it is not claimed, see note",
            nullable=True,
        ),
        Column(
            "blocks_to_fill", "text", "nearest numbers of blocks that fill waves", nullable=True
        ),
        Column("note", "text", "what else is to be known of it", nullable=True, prose=True),
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
    "kernels that ran with several numbers of blocks, and whether their times rise in steps",
    (
        Column("kernel", "text", "label and blocks of a wave"),
        Column("blocks", "int64", "blocks of the grid"),
        Column("waves", "float64", "blocks ÷ those that the GPU holds at once"),
        Column("calls", "int64", "times it ran so"),
        Column("median_ns", "int64", "median of a call"),
        Column("predicted_ns", "int64", "whole waves × the time of a wave"),
        Column("predicted_ratio", "float64", "of that to the row before it", nullable=True),
        Column("measured_ratio", "float64", "of the medians", nullable=True),
        Column(
            "measured",
            "text",
            "between waves step (within 10 % of the prediction) or no step; within one level or "
            "rises; absent where the two rows do not tell",
            nullable=True,
        ),
        Column("wave_blocks", "int64", "blocks that the GPU holds at once"),
        Column("wave_ns", "int64", "time of a wave, by the grids that fill theirs"),
    ),
    brief=("kernel", "blocks", "waves", "median_ns", "predicted_ratio", "measured_ratio"),
    detail=True,
)
MOST_FINDINGS = 5
# A rule of thumb: with fewer blocks an SM, the last one to end weighs heavily.
_FEW_BLOCKS = 4
_MUCH = 0.05


def compute(trace: Trace) -> Result | Skipped:
    found = launched(trace)
    used = sorted({each.of.device for each in found})
    unknown = [known for known in (sms(trace)[device] for device in used) if _is_unknown(known)]
    if used and len(unknown) == len(used):
        return Skipped("; ".join(each.reason for each in unknown), _remedy(unknown))
    blamed = _blamed(trace)
    lacking = (f"{each.reason}. {_remedy([each])}" for each in unknown)
    return Result(
        {
            "kernels": _kernels(trace, found),
            "tiles": gemm_table.table(trace, rounds(trace)),
            "grids": _grids(sweeps(trace)),
        },
        tuple(finding for _, finding in blamed),
        _summary(found, rounds(trace)),
        (*lacking, *_notes(trace, found), *_of_set_up([early for early, _ in blamed])),
    )


def _is_unknown(known: Sms | Unknown) -> TypeGuard[Unknown]:
    return isinstance(known, Unknown)


def _remedy(unknown: Sequence[Unknown]) -> str:
    examples = {"sms": "sms=132", "capability": "capability=9.0"}
    options = dict.fromkeys(option for each in unknown for option in each.options)
    return f"give its figures: --peak {' --peak '.join(examples[option] for option in options)}"


def _kernels(trace: Trace, found: Sequence[Launched]) -> Table:
    ranked = sorted(found, key=lambda each: (-(each.lost_ns or 0), -each.of.total_ns))
    rows = ({**_row(each), **gpu_cells(trace, each.of.device)} for each in ranked)
    return Table.from_rows(KERNELS.columns, rows)


def _row(each: Launched) -> dict[str, Cell]:
    of, waves = each.of, each.waves
    return {
        "short_name": of.short_name,
        "label": of.label,
        "grid": "x".join(map(str, of.grid)),
        "block": "x".join(map(str, of.block)),
        "registers_per_thread": of.registers,
        "shared_memory_bytes": of.static_bytes + of.dynamic_bytes,
        "calls": of.calls,
        "total_ns": of.total_ns,
        "median_ns": of.median_ns,
        "blocks": of.blocks,
        **(_of_waves(waves) if waves else dict.fromkeys(_OF_WAVES)),
        "tail_loss_ns": each.lost_ns,
        "note": "; ".join(_said(each)) or None,
        "name": of.name,
    }


_OF_WAVES = (
    *("blocks_per_sm", "limiter", "theoretical_occupancy_pct"),
    *("waves", "tail_idle_pct", "blocks_to_fill"),
)


def _of_waves(waves: Waves) -> dict[str, Cell]:
    values = (
        *(waves.blocks_per_sm, waves.limiter, waves.theoretical_occupancy_pct),
        *(waves.waves, 100 * waves.idle, units.either(waves.fills)),
    )
    return dict(zip(_OF_WAVES, values, strict=True))


def _said(each: Launched) -> Iterator[str]:
    waves = each.waves
    if waves is None:
        yield "not known how many blocks an SM holds"
        return
    if each.concurrent:
        share = units.percent(100 * each.of.beside_ns / each.of.total_ns)
        yield f"concurrent: other kernels ran beside it for {share} of its time"
    if each.takes_tiles:
        yield "its blocks take tile after tile: see tiles"
    elif waves.persistent and waves.idle:
        yield f"persistent: {waves.blocks // waves.sm_count} a SM, in one wave"
    elif waves.empty_sms:
        yield f"smaller than the GPU: {waves.empty_sms} of {waves.sm_count} SMs empty"
    elif waves.idle and waves.whole == 1:
        yield f"one wave, {waves.blocks / waves.sm_count:.1f} blocks an SM: no SM is empty"
    elif waves.idle and waves.blocks < _FEW_BLOCKS * waves.sm_count:
        each_sm = waves.blocks / waves.sm_count
        yield f"{each_sm:.1f} blocks an SM, fewer than {_FEW_BLOCKS}"
    if each.verdict:
        yield f"measured: {each.verdict}"


def _grids(found: Sequence[Sweep]) -> Table:
    labels = _labels(found)
    rows = (row for sweep, label in zip(found, labels, strict=True) for row in _sweep(sweep, label))
    return Table.from_rows(GRIDS.columns, rows)


def _labels(found: Sequence[Sweep]) -> list[str]:
    """A name for each kernel that no other has."""
    met: Counter[str] = Counter()
    labels = []
    for sweep in found:
        label = f"{sweep.grids[0].of.label}, {sweep.at_once:,} a wave"
        met[label] += 1
        labels.append(f"{label} ({met[label]})" if met[label] > 1 else label)
    return labels


def _sweep(sweep: Sweep, label: str) -> Iterator[dict[str, Cell]]:
    """A row a grid; the first has none before it to be held against."""
    for each, step in zip(sweep.grids, (None, *sweep.steps), strict=True):
        waves = each.waves
        if waves:
            yield {
                "kernel": label,
                "blocks": waves.blocks,
                "waves": waves.waves,
                "calls": each.of.calls,
                "median_ns": each.of.median_ns,
                "predicted_ns": waves.whole * sweep.wave_ns,
                "predicted_ratio": step.predicted if step else None,
                "measured_ratio": step.measured if step else None,
                "measured": step.seen if step else None,
                "wave_blocks": sweep.at_once,
                "wave_ns": sweep.wave_ns,
            }


def _summary(found: Sequence[Launched], tiled: Sequence[Rounds]) -> dict[str, Cell]:
    """The sums of the columns of what is claimed, and of the time in grids under one wave."""
    tails = sum(each.lost_ns or 0 for each in found) + sum(each.lost_ns or 0 for each in tiled)
    small = sum(e.of.total_ns for e in found if e.waves and e.waves.empty_sms and not e.takes_tiles)
    return {"tail_loss_ns": tails, "in_grids_smaller_than_the_gpu_ns": small} if found else {}


def _blamed(trace: Trace) -> list[tuple[int, Finding]]:
    """The costliest findings, each with how many calls of set-up its kernels had."""
    span = steady_span_ns(trace)
    made = []
    for loss in losses(trace):
        found = _finding(loss, severity_of(loss.at_stake_ns, span))
        early = sum(each.of.calls - each.of.steady_calls for each in loss.parts)
        made.append((loss.at_stake_ns, early, found))
    for lost in round_losses(trace):
        found = gemm_table.finding(lost, severity_of(lost.at_stake_ns, span))
        early = sum(each.of.calls - each.of.steady_calls for each in lost.parts)
        made.append((lost.at_stake_ns, early, found))
    ranked = sorted(made, key=lambda each: -each[0])
    return [(early, found) for _, early, found in ranked if found][:MOST_FINDINGS]


def _finding(loss: Loss[Launched], severity: Severity | None) -> Finding | None:
    worst, others = loss.parts[0], len(loss.parts) - 1
    waves = worst.waves
    if severity is None or waves is None:
        return None
    total = units.duration(sum(each.of.steady_ns for each in loss.parts))
    stake = f"up to {units.duration(loss.at_stake_ns)} of {total}"
    alike = f", and {units.counted(others, 'other grid')} of it too" if others else ""
    said = f"{shortened(worst.of.label)} {_last_wave(waves) if waves.whole > 1 else _small(waves)}"
    if waves.whole > 1:
        sure = ", and its times rise in such steps" if worst.verdict else ""
        message, action = f"{said}{alike}: {stake} is lost{sure}", _fill(waves)
    else:
        message, action = f"{said}{alike}: {stake} could be saved", _split(waves)
    return Finding(severity, message, action, loss.at_stake_ns)


def _last_wave(waves: Waves) -> str:
    last = units.counted(waves.blocks - (waves.whole - 1) * waves.at_once, "block")
    empty = units.percent(100 * waves.idle)
    return (
        f"launches {waves.blocks:,} blocks where the GPU holds {waves.at_once:,} at once: the last "
        f"of {waves.whole:,} waves has {last}, {empty} of all places stay empty"
    )


def _small(waves: Waves) -> str:
    blocks = units.counted(waves.blocks, "block")
    return f"launches {blocks} for {waves.sm_count:,} SMs: {waves.empty_sms:,} of them stay empty"


def _fill(waves: Waves) -> str:
    return (
        f"Use {units.either(waves.fills, ',')} blocks instead of {waves.blocks:,}: another "
        f"tile or block size, padded shapes, or {waves.at_once:,} blocks that loop over the tiles."
    )


def _split(waves: Waves) -> str:
    return (
        f"Make the blocks smaller, or split the work along another dimension, where it can be: "
        f"{waves.sm_count:,} blocks give each SM one, {_FEW_BLOCKS * waves.sm_count:,} are better."
    )


def _notes(trace: Trace, found: Sequence[Launched]) -> Iterator[str]:
    graphs = int((selected_operations(trace) & cuda_graphs(trace).whole).sum())
    if graphs:
        launches = units.counted(graphs, "CUDA graph launch", "CUDA graph launches")
        yield f"{launches} recorded whole: the kernels inside are not in these tables. {AS_NODES}"
    hidden = [each.of for each in found if _may_take_tiles(each)]
    share = sum(of.total_ns for of in hidden) / max(sum(each.of.total_ns for each in found), 1)
    if share >= _MUCH and shaped_gemms(trace) is None:
        kernels = units.counted(len({of.name for of in hidden}), "kernel")
        yield (
            f"{units.percent(100 * share)} of kernel time is in {kernels} that may compute several "
            "tiles of a product in each block: what the last round of tiles leaves empty is not "
            "seen. Shapes of tensors tell: traceview record --shapes"
        )
    configured = sum(bool(each.waves and each.waves.limiter == CONFIGURED) for each in found)
    if configured:
        rows = units.counted(configured, "row")
        yield (
            f"{CONFIGURED} ({rows}): the driver set aside less shared memory than the SM has, as "
            "it does where something else keeps blocks out, such as named barriers. These are in "
            "no table of a recording: only gathered code tells how many blocks really fit"
        )


def _may_take_tiles(each: Launched) -> bool:
    """At most one wave of cuBLAS's newer kernels; the older ones start a block for each tile."""
    return each.waves is not None and each.waves.whole == 1 and "nvjet" in each.of.name


def _of_set_up(blamed: Sequence[int]) -> Iterator[str]:
    if early := sum(blamed):
        calls = units.counted(early, "call")
        yield f"{calls} {OF_WARM_UP} count in the tables, not in what findings say is lost"


ANALYSIS = Analysis(
    name="wave-quantization",
    title="Wave quantization and occupancy",
    question="Which kernels lose time because their last wave of blocks does not fill the GPU?",
    needs=("kernels",),
    tables=(KERNELS, gemm_table.TILES, GRIDS),
    compute=compute,
    charts=(
        Chart(
            "stairs",
            "grids",
            "Time of a call by number of blocks: points measured, the line as waves predict",
            "kernel",
            "median_ns",
            x="blocks",
            run="wave_blocks",
            rise="wave_ns",
            most=3,
        ),
    ),
)
