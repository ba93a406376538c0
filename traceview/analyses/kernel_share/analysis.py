"""Which kernels take the GPU's time, and under which NVTX range they were launched.

The time of a call is end − start of its kernel; `share_pct` is 100 × the sum of a name ÷ the sum of
all kernels, so kernels that run side by side both count. The range is the innermost one open on the
launching thread when the launch call starts, or on the main thread where that has none.
"""

from __future__ import annotations

import numpy as np

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Deferred, Result, TableSpec
from traceview.analyses.graph_wording import AS_NODES
from traceview.analyses.kernel_share.range_totals import entered_ranges, inclusive
from traceview.analyses.kernel_share.rules import RULES
from traceview.analyses.kernel_share.tables import CLASSES, INCLUSIVE, KERNELS, PATTERNS, RANGES
from traceview.facts.idle.gaps import busy_ns
from traceview.facts.kernel_labels import kernel_labels
from traceview.facts.operations.cuda_graphs import cuda_graphs
from traceview.facts.operations.hosts import device_hosts
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.ranges import RangeTree, attributed_operations, range_tree
from traceview.facts.ranges.selection import selected_kernels, selected_operations
from traceview.facts.steps.warm_up import steady_kernels
from traceview.rules.engine import findings
from traceview.tables import (
    NULL,
    Array,
    Column,
    Integers,
    Mask,
    RowNumbers,
    Share,
    Table,
    Texts,
    picked,
    thrifty,
    unbroken,
)
from traceview.trace import Trace
from traceview.vocabulary.libraries import tile


def compute(trace: Trace) -> Result:
    chosen = selected_kernels(trace)
    return Result(
        Deferred(lambda: _tables(trace, chosen)),
        tuple(findings(trace, RULES)),
        Deferred(lambda: _summary(trace, chosen)),
        _whole_graph_notes(trace),
    )


def _tables(trace: Trace, chosen: Mask) -> dict[str, Table]:
    kernels = trace.kernels.take(chosen)
    labels = kernel_labels(trace).take(chosen)
    duration_ns = kernels.duration_ns
    steady_ns = np.where(steady_kernels(trace)[chosen], duration_ns, 0)
    return {
        "kernels": _by_name(kernels, labels, duration_ns, steady_ns),
        "classes": _by_class(trace, chosen, kernels, duration_ns, steady_ns),
        **_by_range(trace, chosen, kernels, duration_ns),
    }


def _summary(trace: Trace, chosen: Mask) -> dict[str, int]:
    """Kernel time, that inside any range, and the part of it whose range is inferred."""
    attribution, duration_ns = attributed_operations(trace), trace.kernels.duration_ns[chosen]
    ops = kernel_operations(trace)[chosen]
    within, inferred = picked(attribution.range, ops) >= 0, picked(attribution.inferred, ops)
    return {
        "kernel_calls": len(duration_ns),
        "kernel_total_ns": int(duration_ns.sum()),
        "attributed_ns": int(duration_ns[within].sum()),
        "inferred_ns": int(duration_ns[inferred].sum()),
    }


def _whole_graph_notes(trace: Trace) -> tuple[str, ...]:
    """A note on the kernels inside CUDA graphs that were recorded whole."""
    graphs = selected_operations(trace) & cuda_graphs(trace).whole
    if not graphs.any():
        return ()
    launches = units.counted(int(graphs.sum()), "CUDA graph launch", "CUDA graph launches")
    return (
        f"{launches} ({units.duration(busy_ns(trace, graphs))} of GPU time) were recorded whole. "
        f"These tables and their shares leave out the kernels inside. {AS_NODES}",
    )


def _by_name(kernels: Table, labels: Texts, duration_ns: Integers, steady_ns: Integers) -> Table:
    by_kernel = groups.group(kernels.texts("name").codes)
    figures = groups.stats(by_kernel, duration_ns)
    table = Table(
        KERNELS.columns,
        {
            "name": kernels.texts("name").take(by_kernel.first),
            "short_name": kernels.texts("short_name").take(by_kernel.first),
            "label": labels.take(by_kernel.first),
            "tile": _tiles(kernels.texts("name").take(by_kernel.first)),
            "calls": figures.calls,
            "total_ns": figures.total,
            "mean_ns": np.rint(figures.total / np.maximum(figures.calls, 1)).astype(np.int64),
            "median_ns": figures.median,
            "min_ns": figures.least,
            "max_ns": figures.most,
            "share_pct": _pct_of(figures.total, duration_ns),
            "processes": groups.distinct(by_kernel, kernels["process"]),
            "steady_total_ns": groups.sums(by_kernel, steady_ns),
        },
    )
    return table.take(np.argsort(-figures.total, kind="stable"))


def _by_class(
    trace: Trace, chosen: Mask, kernels: Table, duration_ns: Integers, steady_ns: Integers
) -> Table:
    """Kernel time of each GPU by class."""
    device, kind = kernels["device"], kernel_classes(trace)[chosen]
    by_class = groups.group(device, kind)
    figures = groups.stats(by_class, duration_ns)
    of_device = groups.added(device, duration_ns, len(trace.devices))
    devices = device[by_class.first]
    names = [KernelClass(number).label for number in kind[by_class.first].tolist()]
    table = Table(
        CLASSES.columns,
        {
            "device_id": trace.devices["device_id"][devices].astype(np.int64),
            "host_id": device_hosts(trace)[devices],
            "class": Texts.of(names),
            "calls": figures.calls,
            "total_ns": figures.total,
            "median_ns": figures.median,
            "share_pct": 100.0 * figures.total / np.maximum(of_device[devices], 1),
            "steady_total_ns": groups.sums(by_class, steady_ns),
        },
    )
    return table.take(np.lexsort((-figures.total, devices)))


def _tiles(names: Texts) -> Texts:
    """The tiles of library GEMMs, from their names."""
    tiles = [tile(str(name)) for name in names.values]
    return names.map([None if one is None else str(one) for one in tiles])


def _by_range(
    trace: Trace, chosen: Mask, kernels: Table, duration_ns: Integers
) -> dict[str, Table]:
    tree = range_tree(trace)
    attribution = attributed_operations(trace)
    ops = kernel_operations(trace)[chosen]
    path = picked(attribution.path(tree), ops)
    calls, total = inclusive(tree, path, duration_ns)
    return {
        "range_patterns": _patterns(trace, path, calls, total, duration_ns),
        "ranges": _exclusive(tree, kernels, path, attribution.inferred[ops], duration_ns),
        "ranges_inclusive": _inclusive_table(tree, calls, total, duration_ns),
    }


def _exclusive(
    tree: RangeTree, kernels: Table, path: RowNumbers, inferred: Mask, duration_ns: Integers
) -> Table:
    by_kernel = groups.group(path, kernels.texts("short_name").codes)
    total = groups.sums(by_kernel, duration_ns)
    table = Table(
        _without_share(RANGES),
        {
            "range_path": tree.paths.texts(path[by_kernel.first]),
            "short_name": kernels.texts("short_name").take(by_kernel.first),
            "calls": groups.count(by_kernel),
            "total_ns": total,
            "inferred_calls": thrifty(groups.count(by_kernel, inferred)),
            "inferred_ns": thrifty(groups.sums(by_kernel, np.where(inferred, duration_ns, 0))),
            "processes": thrifty(groups.distinct(by_kernel, kernels["process"])),
        },
    )
    return _ordered(table, RANGES, total, duration_ns)


def _inclusive_table(
    tree: RangeTree, calls: Integers, total: Integers, duration_ns: Integers
) -> Table:
    rows = unbroken(np.flatnonzero(calls))
    path = picked(np.arange(len(calls), dtype=np.int32), rows)
    calls, total = picked(calls, rows), picked(total, rows)
    table = Table(
        _without_share(INCLUSIVE),
        {"range_path": tree.paths.texts(path), "calls": calls, "total_ns": total},
    )
    return _ordered(table, INCLUSIVE, total, duration_ns)


def _without_share(spec: TableSpec) -> list[Column]:
    return [column for column in spec.columns if column.name != "share_pct"]


def _ordered(table: Table, spec: TableSpec, total: Integers, duration_ns: Integers) -> Table:
    """The rows of most time first, with `share_pct`."""
    share = Share("total_ns", int(duration_ns.sum()))
    return table.in_order(groups.MostFirst(total), spec.columns, share_pct=share)


def _entries(trace: Trace, tree: RangeTree) -> Integers:
    """Number of ranges of each pattern."""
    path = tree.path[entered_ranges(trace, tree)] if trace.selection else tree.path
    patterns = len(tree.patterns)
    parts = (tree.path_pattern[path[part]] for part in groups.parts(len(path), patterns))
    return sum(
        (np.bincount(each, minlength=patterns) for each in parts), np.zeros(patterns, np.int64)
    )


def _patterns(
    trace: Trace, path: RowNumbers, calls: Integers, total: Integers, duration_ns: Integers
) -> Table:
    """Inclusive sums by range pattern, and in the last row the kernels outside all ranges."""
    tree = range_tree(trace)
    patterns = len(tree.patterns)
    instances = np.append(_entries(trace, tree), NULL)
    outside = path < 0
    launches, time = (groups.added(tree.path_pattern, of, patterns + 1) for of in (calls, total))
    launches[-1], time[-1] = outside.sum(), duration_ns[outside].sum()
    each = np.rint(time / np.maximum(instances, 1)).astype(np.int64)
    rows = np.flatnonzero(launches)
    rows = rows[np.argsort(-time[rows], kind="stable")]
    return Table(
        PATTERNS.columns,
        {
            "range_pattern": tree.patterns.texts(np.where(rows < patterns, rows, -1)),
            "instances": instances[rows],
            "calls": launches[rows],
            "total_ns": time[rows],
            "share_pct": _pct_of(time[rows], duration_ns),
            "per_instance_ns": np.where(instances == NULL, NULL, each)[rows],
        },
    )


def _pct_of(part: Integers, duration_ns: Integers) -> Array:
    share = 100.0 * part
    share /= max(int(duration_ns.sum()), 1)
    return share


ANALYSIS = Analysis(
    name="kernel-share",
    title="Kernel share",
    question="Which kernels take the GPU time, and which part of the program launches them?",
    needs=("kernels",),
    tables=(KERNELS, CLASSES, PATTERNS, RANGES, INCLUSIVE),
    compute=compute,
    charts=(
        Chart("bars", "kernels", "GPU time by kernel, after warm-up", "label", "steady_total_ns"),
        Chart("bars", "classes", "GPU time by class, after warm-up", "class", "steady_total_ns"),
        Chart("bars", "range_patterns", "GPU time by range", "range_pattern", "total_ns"),
    ),
)
