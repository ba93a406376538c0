"""Time that kernels lose because their last wave of blocks does not fill the GPU.

A GPU holds `blocks_per_sm` × SMs blocks of a kernel at once: a wave. Where all blocks take equal
time, 1 − waves ÷ ceil(waves) of all block slots stay unused, and `tail_loss_ns` is that fraction of
the kernel's time. It is an upper bound: blocks of unequal length, or that compete within their SM,
end at different times and lose less. No loss is claimed for kernels that run beside others, or for
persistent GEMMs.

In a grid of less than a wave, unused slots cost no time, as the blocks share their SM with fewer
others. Only SMs without a block count there, and only for the time beyond that of the shortest
kernel of the trace, or beyond 100 µs where that is less.

Where the trace has several grids of a kernel, selected or not, their measured times decide: no loss
is claimed unless the times rise in a step, and no more than a neighbouring grid shows.

A warp has 32 lanes: blocks whose threads are not a multiple of 32 leave some idle, and an SM holds
a limited number of blocks, however small. Where at least a quarter of the lanes are idle, in grids
of at least one block per SM, the time lost is at most the fraction of threads that an SM could hold
in addition, in larger blocks.

The kernel names of cuBLAS have the tile size of its persistent GEMMs. Where the trace has the
shapes of tensors, table `tiles` counts tiles instead of blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from traceview.base import groups, units
from traceview.base.tables import Cell, Table, TableSpec, Texts, column_list
from traceview.base.tables.arrays import NULL, Array, Integers, Mask
from traceview.traces.analyses import base, wording
from traceview.traces.analyses.wave_quantization import findings, losses
from traceview.traces.analyses.wave_quantization.findings import GridTexts
from traceview.traces.analyses.wave_quantization.sweeps import (
    MEASURED,
    GridSweeps,
    every_sweep,
    launched_grids,
    selected_sweeps,
)
from traceview.traces.facts.grid_waves import CONFIGURED, LaunchedGrids, UnknownLimits, gpu_limits
from traceview.traces.facts.launches import cuda_graphs
from traceview.traces.facts.operations import HOST, device_hosts
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.facts.work.from_ranges import shaped_gemms
from traceview.traces.trace import Trace, model

KERNELS = TableSpec(
    "kernels",
    "one row per kernel, grid, block, registers and shared memory; most time lost first",
    column_list(f"""
        short_name text: base name of the kernel
        label text: base name, with what distinguishes it from others of that name
        grid text: blocks along x, y and z
        block text: threads per block along x, y and z
        registers_per_thread int64: registers per thread
        shared_memory_bytes int64: static and dynamic, per block
        calls int64: launches
        total_ns int64: GPU time of all calls
        median_ns int64: median time per call
        blocks int64: blocks of the grid
        blocks_per_sm int64?: blocks that an SM holds at once
        limiter text?: what keeps it from holding more: warps, blocks, registers, shared memory,
            shared memory config (as configured by the driver), barriers or clusters
        theoretical_occupancy_pct float64?: warps of these blocks ÷ those that an SM can hold
        waves float64?: blocks ÷ blocks that the GPU holds at once
        tail_idle_pct float64?: tail effect, 1 − waves ÷ ceil(waves): block slots that stay unused
        tail_loss_ns int64?: upper bound over all calls: time × tail_idle_pct; below one wave, time
            beyond the shortest kernel (at most 100 µs) × fraction of idle SMs; absent where no loss
            is claimed, see note
        blocks_to_fill text?: nearest grid sizes that fill whole waves
        note sentence?: remarks
        name text: demangled, whole
        device_id int64: GPU
        {HOST}
    """),
    brief=(
        "label blocks waves tail_idle_pct tail_loss_ns total_ns blocks_to_fill "
        "theoretical_occupancy_pct limiter note blocks_per_sm"
    ),
    adds="calls total_ns tail_loss_ns",
)
GRIDS = TableSpec(
    "grids",
    "kernels that ran with several grid sizes, and whether their times rise in steps",
    column_list("""
        kernel text: label and blocks per wave
        blocks int64: blocks of the grid
        waves float64: blocks ÷ blocks that the GPU holds at once
        calls int64: launches
        median_ns int64: median time per call
        predicted_ns int64: waves, rounded up × time of a wave
        predicted_ratio float64?: predicted time ÷ that of the previous row
        measured_ratio float64?: median ÷ that of the previous row
        measured text?: across waves: step (within 10 % of the prediction) or no step; within a
            wave: level or rises; absent where the two rows do not show it
        wave_blocks int64: blocks that the GPU holds at once
        wave_ns int64: time of a wave, from grids of whole waves
    """),
    brief="kernel blocks waves median_ns predicted_ratio measured_ratio",
    detail=True,
)


_MUCH = 0.05


def compute(trace: Trace) -> base.Result | base.Skipped:
    grids, limits = launched_grids(trace), gpu_limits(trace)
    devices = groups.different(grids.configurations.device).tolist()
    unknown = [each for device in devices if isinstance(each := limits[device], UnknownLimits)]
    if devices and unknown and wording.on_amd(trace):
        return base.Skipped(
            "occupancy of AMD GPUs is not computed, and their kernels are recorded without "
            "registers and shared memory",
            "use rocprof-compute on the kernels that kernel-share lists first",
        )
    if devices and len(unknown) == len(devices):
        return base.Skipped("; ".join(each.reason for each in unknown), _remedy(unknown))
    reported = findings.costliest(trace)
    missing = (f"{each.reason}. {_remedy([each])}" for each in unknown)
    return base.Result(
        base.Deferred(
            lambda: {
                "kernels": _kernels(trace, grids),
                "tiles": losses.tile_table(trace),
                "grids": _grids(every_sweep(trace), selected_sweeps(trace)),
            }
        ),
        tuple(finding for _, finding in reported),
        _summary(grids, losses.tile_waves(trace)),
        (*missing, *_notes(trace, grids), *_warm_up_notes([early for early, _ in reported])),
    )


def _remedy(unknown: Sequence[UnknownLimits]) -> str:
    examples = {"sms": "sms=132", "capability": "capability=9.0"}
    options = dict.fromkeys(option for each in unknown for option in each.options)
    return f"give its figures: --peak {' --peak '.join(examples[option] for option in options)}"


def _kernels(trace: Trace, grids: LaunchedGrids) -> Table:
    of = grids.configurations
    ranked = np.lexsort((-of.total_ns, -np.maximum(grids.lost_ns, 0)))
    texts = GridTexts(grids, ranked)
    hosts, devices = device_hosts(trace), trace.devices["device_id"]
    columns: dict[str, Array | Texts] = {
        "short_name": of.short_name.take(ranked),
        "label": of.label.take(ranked),
        "grid": texts.grid,
        "block": texts.block,
        "registers_per_thread": of.registers[ranked],
        "shared_memory_bytes": (of.static_bytes + of.dynamic_bytes)[ranked],
        "calls": of.calls[ranked],
        "total_ns": of.total_ns[ranked],
        "median_ns": of.median_ns[ranked],
        "blocks": grids.blocks[ranked],
        "tail_loss_ns": np.where(grids.lost_ns < 0, NULL, grids.lost_ns)[ranked],
        "blocks_to_fill": texts.fills,
        "note": texts.notes,
        "name": of.name.take(ranked),
        "device_id": devices[of.device[ranked]].astype(np.int64),
        "host_id": hosts[of.device[ranked]].astype(np.int64),
        **_occupancy_columns(grids, ranked),
    }
    return Table(KERNELS.columns, columns)


def _occupancy_columns(grids: LaunchedGrids, rows: Integers) -> dict[str, Array | Texts]:
    every, place = grids.occupancies, grids.occupancy[rows]
    known = place >= 0
    per_sm = np.array([*(each.blocks_per_sm for each in every), NULL], np.int64)
    percent = np.array([*(each.theoretical_occupancy_pct for each in every), np.nan])
    limiters = Texts.of(each.limiter for each in every)
    limiter = np.append(limiters.codes, np.int32(-1))
    idle_pct = 100 * grids.idle_fraction[rows]
    return {
        "blocks_per_sm": per_sm[place],
        "limiter": Texts(limiter[place], limiters.values),
        "theoretical_occupancy_pct": percent[place],
        "waves": np.where(known, grids.blocks[rows] / grids.at_once[rows], np.nan),
        "tail_idle_pct": np.where(known, idle_pct, np.nan),
    }


def _grids(sweeps: GridSweeps, chosen: Integers) -> Table:
    """One row per grid of the chosen sweeps; the first grid of a sweep has none to compare with."""
    size = (sweeps.end - sweeps.first)[chosen]
    sweep = np.repeat(np.arange(len(chosen)), size)
    last = np.cumsum(size)
    place = np.arange(len(sweep)) - np.repeat(last - size, size) + sweeps.first[chosen][sweep]
    grids, row, wave_ns = sweeps.grids, sweeps.rows[place], sweeps.wave_ns[chosen][sweep]
    leads = groups.opens(sweep) if len(sweep) else np.zeros(0, bool)
    labels = Texts.of(_labels(sweeps, chosen))
    verdicts = Texts.of(name for name in MEASURED if name)
    columns: dict[str, Array | Texts] = {
        "kernel": Texts(labels.codes[sweep], labels.values),
        "blocks": grids.blocks[row],
        "waves": grids.blocks[row] / grids.at_once[row],
        "calls": grids.configurations.calls[row],
        "median_ns": grids.configurations.median_ns[row],
        "predicted_ns": grids.whole[row] * wave_ns,
        "predicted_ratio": np.where(leads, np.nan, sweeps.predicted[place]),
        "measured_ratio": np.where(leads, np.nan, sweeps.measured[place]),
        "measured": Texts(sweeps.verdict[place].astype(np.int32) - np.int32(1), verdicts.values),
        "wave_blocks": sweeps.at_once[chosen][sweep],
        "wave_ns": wave_ns,
    }
    return Table(GRIDS.columns, columns)


def _labels(sweeps: GridSweeps, chosen: Integers) -> list[str]:
    """A unique name for each sweep."""
    seen: Counter[str] = Counter()
    labels = []
    kernels = sweeps.grids.configurations.label.take(sweeps.rows[sweeps.first[chosen]]).decode()
    for kernel, at_once in zip(kernels, sweeps.at_once[chosen].tolist(), strict=True):
        label = f"{kernel}, {at_once:,} per wave"
        seen[label] += 1
        labels.append(f"{label} ({seen[label]})" if seen[label] > 1 else label)
    return labels


def _summary(grids: LaunchedGrids, tiled: Sequence[losses.TileWaves]) -> dict[str, Cell]:
    """Sums of the claimed losses, and of the time in grids of fewer blocks than SMs."""
    if not len(grids):
        return {}
    small = grids.known & (grids.idle_sms > 0) & ~grids.persistent_gemm
    lost_ns = int(grids.lost_ns.clip(0).sum()) + sum(each.lost_ns or 0 for each in tiled)
    small_ns = int(grids.configurations.total_ns[small].sum())
    return {"tail_loss_ns": lost_ns, "in_grids_smaller_than_the_gpu_ns": small_ns}


def _notes(trace: Trace, grids: LaunchedGrids) -> Iterator[str]:
    graphs = int((selected_operations(trace) & cuda_graphs(trace).whole).sum())
    if graphs:
        launches = units.counted(graphs, "CUDA graph launch", "CUDA graph launches")
        yield (
            f"{launches} recorded as a whole: the kernels inside are not in these tables. "
            f"{wording.AS_NODES}"
        )
    of = grids.configurations
    # True for grids of newer cuBLAS kernels of at most one wave.
    #
    # Older ones launch one block per tile.
    names = grids.configurations.name
    newer = names.isin(name for name in map(str, names.values) if "nvjet" in name)
    hidden: Mask = grids.known & (grids.whole == 1) & newer
    hidden_fraction = int(of.total_ns[hidden].sum()) / max(int(of.total_ns.sum()), 1)
    unknown = shaped_gemms(trace) is None and not model.recording_options(trace).shapes
    if hidden_fraction >= _MUCH and unknown:
        kernels = units.counted(len(groups.different(of.name.codes[hidden])), "kernel")
        yield (
            f"{units.percent(100 * hidden_fraction)} of kernel time is in {kernels} of possibly "
            "persistent GEMMs, whose last tile wave is not visible without the shapes of tensors: "
            f"{wording.to_record_shapes(trace)}"
        )
    is_configured = [each.limiter == CONFIGURED for each in grids.occupancies]
    configured = int(np.array([*is_configured, False])[grids.occupancy].sum())
    if configured:
        rows = units.counted(configured, "row")
        yield (
            f"{CONFIGURED} ({rows}): the driver configured less shared memory than the SM has, "
            "as it does where something else, such as named barriers, limits the blocks. "
            "Recordings do not show barriers; only kernel code does."
        )


def _warm_up_notes(early_calls: Sequence[int]) -> Iterator[str]:
    if early := sum(early_calls):
        calls = units.counted(early, "call")
        yield f"{calls} {wording.OF_WARM_UP} count in the tables but not in the losses of findings."


ANALYSIS = base.Analysis(
    name="wave-quantization",
    title="Wave quantization and occupancy",
    question="Which kernels lose time because their last wave of blocks does not fill the GPU?",
    needs=("kernels",),
    tables=(KERNELS, losses.TILES, GRIDS),
    compute=compute,
    charts=(
        base.Chart(
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
