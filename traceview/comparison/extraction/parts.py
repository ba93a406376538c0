"""The parts of a run's steps: its operations by what they are, and its idle time by cause."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups
from traceview.comparison.extraction.gaps import idle_parts
from traceview.comparison.extraction.places import hash_of, place_texts, work_places
from traceview.comparison.extraction.shapes import shapes_of
from traceview.comparison.extraction.work import WindowWork, WorkKind, window_work
from traceview.comparison.figures import PartKind, StepPart
from traceview.facts.kernel_names.kernel_labels import kernel_labels
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import Kind, operations
from traceview.groups import Groups
from traceview.tables import NULL, Array, Integers
from traceview.trace import Trace, fact

MOST_PARTS = 2000
"""Of more than this, the shortest lose their place, then their launch configuration and name."""
MOST_CONFIGURATIONS = 16
"""A kernel launched in more configurations than this is one part per place."""
OTHERS = "other kernels"
_KINDS: dict[WorkKind, PartKind] = {
    WorkKind.KERNEL: "kernel",
    WorkKind.GRAPH: "graph",
    WorkKind.COMMUNICATION: "communication",
    WorkKind.COPY: "copy",
    WorkKind.MEMSET: "memset",
}


@fact
def step_parts(trace: Trace) -> tuple[StepPart, ...]:
    """The parts of the window: work as `work_groups` groups it, then idle time."""
    return (*_work_parts(trace), *idle_parts(trace))


@fact
def work_groups(trace: Trace) -> Groups:
    """The operations of `window_work` by part: kind, kernel, launch configuration and place."""
    work = window_work(trace)
    classes, names = _classes(trace, work), _names(trace, work)
    keys = [classes, names, _configurations(trace, work), work_places(trace)]
    by = groups.group(*keys)
    for key in (3, 2, 1):
        if by.size <= MOST_PARTS:
            break
        small = _small(by, groups.sums(by, work.busy_ns))
        keys[key] = np.where(small[by.ids], -1, keys[key])
        by = groups.group(*keys)
    return by


def _small(by: Groups, time: Integers) -> Array:
    """True for all groups but the longest, MOST_PARTS // 2 of them."""
    small = np.ones(by.size, bool)
    small[groups.most_first(time)[: MOST_PARTS // 2]] = False
    return small


def _classes(trace: Trace, work: WindowWork) -> Integers:
    """A number per operation, equal for equal kind and class."""
    ops, result = operations(trace), work.kind * len(KernelClass)
    kernels = np.flatnonzero(ops.kind[work.rows] == Kind.KERNEL)
    result[kernels] += kernel_classes(trace)[ops.row[work.rows[kernels]]]
    return result.astype(np.int64)


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
    sides = [kernels[f"{what}_{axis}"][row] for what in ("grid", "block") for axis in "xyz"]
    by = groups.group(kernels.texts("name").codes[row], *sides)
    names = kernels.texts("name").codes[row[by.first]]
    several = groups.group(names)
    many = groups.count(several)[several.ids] > MOST_CONFIGURATIONS
    result[chosen] = np.where(many[by.ids], -1, by.ids)
    return result


def _work_parts(trace: Trace) -> Iterator[StepPart]:
    work, by = window_work(trace), work_groups(trace)
    places = place_texts(trace, np.maximum(_common(by, work_places(trace)), -1))
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
            place=places[part],
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
        return _copy_name(trace, row)
    label = str(kernel_labels(trace)[row] or "")
    whole = str(trace.recorded("kernels").texts("name")[row] or "")
    group = KernelClass(int(kernel_classes(trace)[row])).label
    return group, label, hash_of(whole)


def _copy_name(trace: Trace, row: int) -> tuple[str, str, str]:
    """Group, name and symbol of a copy: `H2D`, and `H2D pageable` with the kind of host memory."""
    copies = trace.recorded("copies")
    direction = str(copies.texts("direction")[row] or "copy")
    ends = [str(copies.texts(f"{end}_memory")[row] or "") for end in ("source", "destination")]
    host = next((end for end in ends if end not in ("device", "array", "")), "")
    return direction, f"{direction} {host}".rstrip(), ""


@fact
def _graph_names(trace: Trace) -> dict[int, str]:
    """`CUDA graph 1` and so on by graph_exec_id, in order of first launch in the window."""
    work, ops = window_work(trace), operations(trace)
    rows = ops.row[work.rows[work.kind == WorkKind.GRAPH]]
    ids = trace.recorded("graph_launches")["graph_exec_id"][rows]
    each = groups.group(ids)
    ordered = ids[np.sort(each.first)].tolist()
    if len(ordered) == 1:
        return {ordered[0]: "CUDA graph"}
    return {number: f"CUDA graph {place}" for place, number in enumerate(ordered, 1)}
