"""The parts of a run's steps: its operations by what they are, and its idle time by cause."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.base import groups, intervals
from traceview.base.groups import Groups
from traceview.base.tables import NULL, Array, Integers
from traceview.base.vocabulary import amounts, causes, kernel_words, libraries
from traceview.traces.analyses.load_widths_findings import width_bounds
from traceview.traces.comparison.figures import AT_START, KernelShape, PartKind, StepPart
from traceview.traces.comparison.window import (
    WindowWork,
    WorkKind,
    hash_of,
    place_texts,
    placed_idle,
    run_window,
    window_work,
    work_places,
)
from traceview.traces.comparison.window import where as only_where
from traceview.traces.facts.grid_waves import gpu_limits, grid_columns
from traceview.traces.facts.idle.gaps import every_gap
from traceview.traces.facts.kernel_classes import KernelClass, kernel_classes, kernel_labels
from traceview.traces.facts.launch_configurations import single_launches
from traceview.traces.facts.operations import Kind, operations
from traceview.traces.trace import Trace, fact

# Idle time of a run's window, by cause and by the place at which the program waits.

MOST_PLACES = 500
"""Of more places than this, those with the least idle time are not told apart."""


def idle_parts(trace: Trace) -> Iterator[StepPart]:
    """Yield the parts of idle time: the gaps of the report, as far as they lie in the window."""
    window, every = run_window(trace), every_gap(trace)
    idle_ns = intervals.overlap(window.covered, every.start_ns, every.end_ns)
    rows = np.flatnonzero((every.device == window.device) & (idle_ns > 0))
    idle = placed_idle(trace, rows)
    rows, place, code = rows[idle.row], idle.place, idle.code
    idle_ns = intervals.overlap(window.covered, idle.start_ns, idle.end_ns)
    by = groups.group(every.cause[rows], place.codes, code.codes)
    if by.size > MOST_PLACES:
        kept = np.zeros(by.size, bool)
        kept[groups.most_first(groups.sums(by, idle_ns))[:MOST_PLACES]] = True
        place, code = (only_where(texts, kept[by.ids]) for texts in (place, code))
        by = groups.group(every.cause[rows], place.codes, code.codes)
    total, calls = groups.sums(by, idle_ns), groups.distinct(by, rows)
    texts, codes = (column.take(by.first).decode() for column in (place, code))
    for part, first in enumerate(rows[by.first].tolist()):
        cause, time = causes.CAUSE_NAMES[every.cause[first]], int(total[part])
        where, symbol = str(texts[part] or ""), str(codes[part] or "")
        yield StepPart("idle", "", cause, where, time, 0, int(calls[part]), symbol=symbol)
    before = window_work(trace).idle.total() - int(total.sum())
    if before:
        yield StepPart("idle", "", AT_START, "", before, 0, 1)


# Launch configurations of the parts of a run, and the widths and types that they work with.

_SIDES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def shapes_of(trace: Trace, by: Groups) -> list[KernelShape | None]:
    """The launch configuration of each part; None for what is not a kernel."""
    work, ops = window_work(trace), operations(trace)
    kernels = np.flatnonzero(ops.kind[work.rows] == Kind.KERNEL)
    result: list[KernelShape | None] = [None] * by.size
    row = ops.row[work.rows[kernels]].astype(np.int64)
    if not len(row):
        return result
    table, (load_bits, store_bits) = trace.recorded("kernels"), _widths(trace)
    part = by.ids[kernels]
    same = groups.group(part, *(table[side][row] for side in _SIDES))
    # Of each part the configuration of most launches, which is the last one in this order.
    owner = part[same.first]
    order = np.lexsort((groups.count(same), owner))
    usual = order[np.append(owner[order][1:] != owner[order][:-1], True)]
    grids = grid_columns(single_launches(trace, row[same.first[usual]]), gpu_limits(trace))
    for place, number in enumerate(owner[usual].tolist()):
        configuration, held = grids.configurations[place], grids.occupancy_at(place)
        launch = int(grids.configurations.row[place])
        # The type in the name of a library's kernel, such as fp32 or bf16; None without one.
        gemm_tile = libraries.tile(configuration.name)
        inputs = gemm_tile.inputs if gemm_tile else None
        short_name = (
            kernel_words.TYPES.get(inputs, inputs)
            if inputs
            else kernel_words.first_type(configuration.name[: amounts.NAME_CHARACTERS])
        )
        result[number] = KernelShape(
            grid=configuration.grid,
            block=configuration.block,
            registers=configuration.registers,
            shared_bytes=configuration.static_bytes + configuration.dynamic_bytes,
            waves=held.waves.waves if held else None,
            load_bits=int(load_bits[launch]) or None,
            dtype=short_name or None,
            store_bits=int(store_bits[launch]) or None,
        )
    return result


@fact
def _widths(trace: Trace) -> tuple[Array, Array]:
    """Bits per thread per instruction of loads and stores of each kernel, 0 where unknown.

    Widths are of the accesses that move most bytes; the narrowest of variants that fit a launch.
    """
    loads, stores = (np.zeros(len(trace.recorded("kernels")), np.int64) for _ in range(2))
    for bound in width_bounds(trace) if "kernel_code" in trace.tables else ():
        for bits, main in ((loads, bound.widths.loads), (stores, bound.widths.stores)):
            width = main.bits if main else 0
            for run in bound.code.runs if width else ():
                before = bits[run.rows]
                bits[run.rows] = np.where(before > 0, np.minimum(before, width), width)
    return loads, stores


MOST_PARTS = 2000
"""Of more than this, the shortest lose their place, then their launch configuration and name."""
MOST_CONFIGURATIONS = 16
"""A kernel launched in more configurations than this is one part per place."""
OTHERS = "other kernels"
_KINDS: tuple[PartKind, ...] = ("kernel", "graph", "communication", "copy", "memset")
"""By WorkKind."""


@fact
def step_parts(trace: Trace) -> tuple[StepPart, ...]:
    """The parts of the window: work as `work_groups` groups it, then idle time."""
    return (*_work_parts(trace), *idle_parts(trace))


@fact
def work_groups(trace: Trace) -> Groups:
    """The operations of `window_work` by part: kind, kernel, launch configuration and place."""
    work = window_work(trace)
    names, ops = _names(trace, work), operations(trace)
    classes = (work.kind * len(KernelClass)).astype(np.int64)
    kernels = np.flatnonzero(ops.kind[work.rows] == Kind.KERNEL)
    classes[kernels] += kernel_classes(trace)[ops.row[work.rows[kernels]]]
    keys = [classes, names, _configurations(trace, work), work_places(trace)]
    by = groups.group(*keys)
    for key in (3, 2, 1):
        if by.size <= MOST_PARTS:
            break
        small = np.ones(by.size, bool)
        small[groups.most_first(groups.sums(by, work.busy_ns))[: MOST_PARTS // 2]] = False
        keys[key] = np.where(small[by.ids], -1, keys[key])
        by = groups.group(*keys)
    return by


def _names(trace: Trace, work: WindowWork) -> Integers:
    """A number per operation, equal for equal names of one kind."""
    ops, result = operations(trace), np.zeros(len(work.rows), np.int64)
    kind, row = ops.kind[work.rows], ops.row[work.rows]
    kernels = kind == Kind.KERNEL
    result[kernels] = trace.recorded("kernels").texts("name").codes[row[kernels]]
    copies = kind == Kind.COPY
    result[copies] = -2 - _copy_kinds(trace).ids[row[copies]]
    graphs = kind == Kind.GRAPH
    result[graphs] = trace.recorded("graph_launches")["graph_exec_id"][row[graphs]]
    return result


@fact
def _copy_kinds(trace: Trace) -> Groups:
    """The rows of copies by direction and memory at both ends."""
    copies = trace.recorded("copies")
    texts = ("direction", "source_memory", "destination_memory")
    return groups.group(*(copies.texts(name).codes for name in texts))


def _configurations(trace: Trace, work: WindowWork) -> Integers:
    """A number per operation for its launch configuration, −1 where a kernel has many."""
    ops, kernels = operations(trace), trace.recorded("kernels")
    result = np.full(len(work.rows), -1, np.int64)
    chosen = np.flatnonzero(ops.kind[work.rows] == Kind.KERNEL)
    row = ops.row[work.rows[chosen]]
    if not len(row):
        return result
    by = groups.group(kernels.texts("name").codes[row], *(kernels[side][row] for side in _SIDES))
    names = kernels.texts("name").codes[row[by.first]]
    several = groups.group(names)
    many = groups.count(several)[several.ids] > MOST_CONFIGURATIONS
    result[chosen] = np.where(many[by.ids], -1, by.ids)
    return result


def _work_parts(trace: Trace) -> Iterator[StepPart]:
    work, by = window_work(trace), work_groups(trace)
    texts = place_texts(trace, np.maximum(_common(by, work_places(trace)), -1))
    shapes = shapes_of(trace, by)
    own, busy = groups.sums(by, work.own_ns), groups.sums(by, work.busy_ns)
    calls, mixed = groups.count(by, work.counted), _common(by, _names(trace, work)) == NULL
    for part, first in enumerate(by.first.tolist()):
        kind = WorkKind(int(work.kind[first]))
        group, name, symbol = _named(trace, kind, int(work.rows[first]))
        if mixed[part]:
            name, symbol = OTHERS, ""
        yield StepPart(
            kind=_KINDS[kind],
            group=group,
            name=name,
            place=texts[part],
            time_ns=int(own[part]),
            busy_ns=int(busy[part]),
            calls=int(calls[part]),
            shape=shapes[part],
            symbol=symbol,
        )


def _common(by: Groups, number: Integers) -> Integers:
    """The number that all rows of a group have, NULL where they have several."""
    one = number[by.first]
    result = one.copy()
    result[by.ids[number != one[by.ids]]] = NULL
    return result


def _named(trace: Trace, kind: WorkKind, operation: int) -> tuple[str, str, str]:
    """Group, name and symbol of an operation."""
    ops = operations(trace)
    row = int(ops.row[operation])
    if kind is WorkKind.MEMSET:
        return "", "memset", ""
    if kind is WorkKind.GRAPH:
        number = int(trace.recorded("graph_launches")["graph_exec_id"][row])
        return "", _graph_names(trace)[number], ""
    if ops.kind[operation] == Kind.COPY:
        # `H2D`, and `H2D pageable` with the kind of host memory.
        copies = trace.recorded("copies")
        direction = str(copies.texts("direction")[row] or "copy")
        ends = [str(copies.texts(f"{end}_memory")[row] or "") for end in ("source", "destination")]
        host = next((end for end in ends if end not in ("device", "array", "")), "")
        return direction, f"{direction} {host}".rstrip(), ""
    label = str(kernel_labels(trace)[row] or "")
    whole = str(trace.recorded("kernels").texts("name")[row] or "")
    group = KernelClass(int(kernel_classes(trace)[row])).label
    return group, label, hash_of(whole)


@fact
def _graph_names(trace: Trace) -> dict[int, str]:
    """`CUDA graph 1` and so on by graph_exec_id, in order of first launch in the window."""
    work, ops = window_work(trace), operations(trace)
    rows = ops.row[work.rows[work.kind == WorkKind.GRAPH]]
    ids = trace.recorded("graph_launches")["graph_exec_id"][rows]
    ordered = ids[np.sort(groups.group(ids).first)].tolist()
    if len(ordered) == 1:
        return {ordered[0]: "CUDA graph"}
    return {number: f"CUDA graph {place}" for place, number in enumerate(ordered, 1)}
