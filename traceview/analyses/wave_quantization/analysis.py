"""Time that kernels lose because their last wave of blocks does not fill the GPU.

A GPU holds `blocks_per_sm` × SMs blocks of a kernel at once: a wave. Where all blocks take equal
time, 1 − waves ÷ ceil(waves) of all block slots stay unused, and `tail_loss_ns` is that fraction of
the kernel's time. It is an upper bound: blocks of unequal length, or that compete within their SM,
end at different times and lose less. In less than a wave, unused slots cost no time, as the blocks
that are there have more of their SM. Only idle SMs count then, and only of the time beyond the
shortest kernel of the trace. Where the trace has several grids of a kernel, selected or not, their
times decide: without a step in them nothing is claimed, and no more than what a neighbour measures.
Nor is it for kernels that others run beside, and for persistent GEMMs.

The kernel names of cuBLAS have the tile size of its persistent GEMMs. Where the trace has the
shapes of tensors, table `tiles` counts tiles instead of blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from traceview import units
from traceview.analyses.base import Analysis, Chart, Result, Skipped, TableSpec
from traceview.analyses.graph_wording import AS_NODES
from traceview.analyses.recorder_wording import by_recorder, on_amd
from traceview.analyses.warm_up_wording import OF_WARM_UP
from traceview.analyses.wave_quantization import gemm_table
from traceview.analyses.wave_quantization.findings import (
    FEW_BLOCKS_PER_SM,
    costliest,
    grid_keys,
)
from traceview.analyses.wave_quantization.gemm_waves import TileWaves, tile_waves
from traceview.analyses.wave_quantization.gpu_limits import UnknownLimits, gpu_limits
from traceview.analyses.wave_quantization.grid_waves import (
    CONFIGURED,
    GridOccupancy,
    LaunchedGrid,
)
from traceview.analyses.wave_quantization.launched_grids import launched_grids, sweeps
from traceview.analyses.wave_quantization.losses import grid_losses, tile_losses
from traceview.analyses.wave_quantization.sweeps import GridSweep
from traceview.facts.operations.cuda_graphs import cuda_graphs
from traceview.facts.operations.hosts import HOST, gpu_cells
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.work.from_ranges import shaped_gemms
from traceview.tables import Cell, Column, Table
from traceview.trace import Trace
from traceview.trace.recording_options import recording_options

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
            "the shortest kernel × fraction of idle SMs; absent where no loss is claimed, see "
            "note",
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
_MUCH = 0.05


def compute(trace: Trace) -> Result | Skipped:
    grids, limits = launched_grids(trace), gpu_limits(trace)
    devices = sorted({each.configuration.device for each in grids})
    unknown = [each for device in devices if isinstance(each := limits[device], UnknownLimits)]
    if devices and unknown and on_amd(trace):
        return Skipped(
            "occupancy of AMD GPUs is not computed, and their kernels are recorded without "
            "registers and shared memory",
            "use rocprof-compute on the kernels that kernel-share lists first",
        )
    if devices and len(unknown) == len(devices):
        return Skipped("; ".join(each.reason for each in unknown), _remedy(unknown))
    reported = costliest(trace, grid_losses(trace), tile_losses(trace))
    missing = (f"{each.reason}. {_remedy([each])}" for each in unknown)
    return Result(
        {
            "kernels": _kernels(trace, grids),
            "tiles": gemm_table.table(trace, tile_waves(trace)),
            "grids": _grids(sweeps(trace)),
        },
        tuple(finding for _, finding in reported),
        _summary(grids, tile_waves(trace)),
        (*missing, *_notes(trace, grids), *_warm_up_notes([early for early, _ in reported])),
    )


def _remedy(unknown: Sequence[UnknownLimits]) -> str:
    examples = {"sms": "sms=132", "capability": "capability=9.0"}
    options = dict.fromkeys(option for each in unknown for option in each.options)
    return f"give its figures: --peak {' --peak '.join(examples[option] for option in options)}"


def _kernels(trace: Trace, grids: Sequence[LaunchedGrid]) -> Table:
    ranked = sorted(grids, key=lambda each: (-(each.lost_ns or 0), -each.configuration.total_ns))
    rows = ({**_row(each), **gpu_cells(trace, each.configuration.device)} for each in ranked)
    return Table.from_rows(KERNELS.columns, rows)


def _row(each: LaunchedGrid) -> dict[str, Cell]:
    of = each.configuration
    return {
        "short_name": of.short_name,
        "label": of.label,
        **grid_keys(of),
        "calls": of.calls,
        "median_ns": of.median_ns,
        "blocks": of.blocks,
        **_occupancy_cells(each.occupancy),
        "tail_loss_ns": each.lost_ns,
        "note": "; ".join(_remarks(each)) or None,
    }


def _occupancy_cells(occupancy: GridOccupancy | None) -> dict[str, Cell]:
    names = (
        *("blocks_per_sm", "limiter", "theoretical_occupancy_pct"),
        *("waves", "tail_idle_pct", "blocks_to_fill"),
    )
    if occupancy is None:
        return dict.fromkeys(names)
    waves = occupancy.waves
    values = (
        *(occupancy.blocks_per_sm, occupancy.limiter, occupancy.theoretical_occupancy_pct),
        *(waves.waves, 100 * waves.idle_fraction, units.either(waves.fills)),
    )
    return dict(zip(names, values, strict=True))


def _remarks(each: LaunchedGrid) -> Iterator[str]:
    waves, of = each.waves, each.configuration
    if waves is None:
        yield "blocks per SM unknown"
        return
    if each.concurrent:
        part = units.percent(100 * of.beside_ns / of.total_ns)
        yield f"concurrent: other kernels run beside it for {part} of its time"
    if of.green_sms:
        yield f"in a green context of {units.counted(of.green_sms, 'SM')}"
    per_sm = waves.blocks / waves.sm_count
    if each.persistent_gemm:
        yield "persistent: each block computes several tiles (see tiles)"
    elif waves.evenly_resident and waves.idle_fraction:
        yield f"one wave, {units.counted(round(per_sm), 'block')} on each SM"
    elif waves.idle_sms:
        yield f"smaller than the GPU: {waves.idle_sms} of {waves.sm_count} SMs idle"
    elif waves.idle_fraction and waves.whole == 1:
        yield f"one wave, {per_sm:.1f} blocks per SM: no SM idle"
    elif waves.idle_fraction and per_sm < FEW_BLOCKS_PER_SM:
        yield f"{per_sm:.1f} blocks per SM, fewer than {FEW_BLOCKS_PER_SM}"
    if each.verdict:
        yield f"measured: {each.verdict}"


def _grids(found: Sequence[GridSweep]) -> Table:
    labelled = zip(found, _labels(found), strict=True)
    rows = (row for sweep, label in labelled for row in _sweep_rows(sweep, label))
    return Table.from_rows(GRIDS.columns, rows)


def _labels(found: Sequence[GridSweep]) -> list[str]:
    """A unique name for each sweep."""
    seen: Counter[str] = Counter()
    labels = []
    for sweep in found:
        label = f"{sweep.grids[0].configuration.label}, {sweep.at_once:,} per wave"
        seen[label] += 1
        labels.append(f"{label} ({seen[label]})" if seen[label] > 1 else label)
    return labels


def _sweep_rows(sweep: GridSweep, label: str) -> Iterator[dict[str, Cell]]:
    """One row per grid; the first has none before it to be compared with."""
    for each, step in zip(sweep.grids, (None, *sweep.steps), strict=True):
        waves = each.waves
        if waves:
            yield {
                "kernel": label,
                "blocks": waves.blocks,
                "waves": waves.waves,
                "calls": each.configuration.calls,
                "median_ns": each.configuration.median_ns,
                "predicted_ns": waves.whole * sweep.wave_ns,
                "predicted_ratio": step.predicted if step else None,
                "measured_ratio": step.measured if step else None,
                "measured": step.verdict if step else None,
                "wave_blocks": sweep.at_once,
                "wave_ns": sweep.wave_ns,
            }


def _summary(grids: Sequence[LaunchedGrid], tiled: Sequence[TileWaves]) -> dict[str, Cell]:
    """Sums of the claimed losses, and of the time in grids of fewer blocks than SMs."""
    if not grids:
        return {}
    small_ns = sum(
        each.configuration.total_ns
        for each in grids
        if each.waves and each.waves.idle_sms and not each.persistent_gemm
    )
    lost_ns = sum(each.lost_ns or 0 for each in grids) + sum(each.lost_ns or 0 for each in tiled)
    return {"tail_loss_ns": lost_ns, "in_grids_smaller_than_the_gpu_ns": small_ns}


_SHAPES = "traceview record --shapes"
_TORCH_SHAPES = "torch.profiler.profile(record_shapes=True)"


def _notes(trace: Trace, grids: Sequence[LaunchedGrid]) -> Iterator[str]:
    graphs = int((selected_operations(trace) & cuda_graphs(trace).whole).sum())
    if graphs:
        launches = units.counted(graphs, "CUDA graph launch", "CUDA graph launches")
        yield (
            f"{launches} recorded as a whole: the kernels inside are not in these tables. "
            f"{AS_NODES}"
        )
    hidden = [each.configuration for each in grids if _may_be_persistent_gemm(each)]
    total_ns = max(sum(each.configuration.total_ns for each in grids), 1)
    hidden_fraction = sum(of.total_ns for of in hidden) / total_ns
    unknown = shaped_gemms(trace) is None and not recording_options(trace).shapes
    if hidden_fraction >= _MUCH and unknown:
        kernels = units.counted(len({of.name for of in hidden}), "kernel")
        yield (
            f"{units.percent(100 * hidden_fraction)} of kernel time is in {kernels} that may be "
            "persistent GEMMs, whose last tile wave is not visible without the shapes of tensors: "
            f"{by_recorder(trace, _SHAPES, _TORCH_SHAPES, _SHAPES)}"
        )
    configured = sum(
        bool(each.occupancy and each.occupancy.limiter == CONFIGURED) for each in grids
    )
    if configured:
        rows = units.counted(configured, "row")
        yield (
            f"{CONFIGURED} ({rows}): the driver configured less shared memory than the SM has, "
            "as it does where something else, such as named barriers, limits the blocks. "
            "Recordings do not show barriers; only kernel code does."
        )


def _may_be_persistent_gemm(each: LaunchedGrid) -> bool:
    """At most one wave of cuBLAS's newer kernels; older ones launch one block per tile."""
    return each.waves is not None and each.waves.whole == 1 and "nvjet" in each.configuration.name


def _warm_up_notes(early_calls: Sequence[int]) -> Iterator[str]:
    if early := sum(early_calls):
        calls = units.counted(early, "call")
        yield f"{calls} {OF_WARM_UP} count in the tables but not in the losses of findings."


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
            (
                "Time per call by number of blocks: measured points, and the stairs that "
                "waves predict"
            ),
            "kernel",
            "median_ns",
            x="blocks",
            run="wave_blocks",
            rise="wave_ns",
            most=3,
        ),
    ),
)
