"""Which kernels take the GPU's time, and under which NVTX range they were launched.

The time of a call is end − start of its kernel; `share_pct` is 100 × the sum of a name ÷ the sum of
all kernels, so kernels that run side by side both count. The range is the innermost one open on the
launching thread when the launch call starts, or on the main thread where that has none.
"""

from __future__ import annotations

import numpy as np

from traceview.base import groups, units
from traceview.base.tables import Column, Share, Table, TableSpec, Texts, column_list
from traceview.base.tables.arrays import (
    NULL,
    Array,
    Integers,
    Mask,
    RowNumbers,
    picked,
    thrifty,
    unbroken,
)
from traceview.base.vocabulary.libraries import tile
from traceview.traces.analyses.base import Analysis, Chart, Deferred, Result
from traceview.traces.analyses.kernel_share.rules import LAST, RULES
from traceview.traces.analyses.wording import AS_NODES
from traceview.traces.facts import kernel_classes, module_lines, operations
from traceview.traces.facts.idle.gaps import busy_ns
from traceview.traces.facts.launches import cuda_graphs
from traceview.traces.facts.ranges.ranges import RangeTree, attributed_operations, range_tree
from traceview.traces.facts.ranges.selection import selected_operations, selected_ranges
from traceview.traces.facts.steps.steps import steady_kernels
from traceview.traces.rules import findings
from traceview.traces.trace import Trace

KERNELS = TableSpec(
    "kernels",
    "one row per kernel, longest total time first",
    column_list("""
        name text: demangled, whole
        short_name text: base name, without templates and arguments
        label text: base name, with what distinguishes it from others of that name
        tile text?: tile of a library GEMM, from its name: rows x columns per block (column-major),
            depth x pipeline stages, input type
        calls int64: launches
        total_ns int64: GPU time of all calls
        mean_ns int64: mean time per call, rounded
        median_ns int64: median time per call
        min_ns int64: shortest call
        max_ns int64: longest call
        share_pct float64: percentage of the time of all kernels
        processes int64: processes that launched it, on all hosts
        steady_total_ns int64: part of total after warm-up
    """),
    brief="label calls total_ns share_pct median_ns max_ns min_ns",
    adds="calls total_ns share_pct steady_total_ns",
)
CLASSES = TableSpec(
    "classes",
    "one row per GPU and kernel class, inferred from kernel names; longest total time first",
    column_list(f"""
        device_id int64: GPU
        {operations.HOST}
        class text: gemm, attention, convolution, normalization, elementwise, cast-copy, reduction,
            softmax, gather-scatter, sort-scan, optimizer (all foreach kernels of torch), random,
            communication, autotuner, other
        calls int64: launches
        total_ns int64: GPU time of all calls
        median_ns int64: median time per call
        share_pct float64: percentage of the time of all kernels of this GPU
        steady_total_ns int64: part of total after warm-up
    """),
    brief="device_id class calls total_ns share_pct median_ns",
    adds="calls total_ns steady_total_ns",
)
RANGES = TableSpec(
    "ranges",
    "one row per kernel and range; each call counts once, under the innermost range around its "
    "launch",
    column_list("""
        range_path text: range names, outermost first, joined by /
        short_name text: base name of the kernel
        calls int64: launches
        total_ns int64: GPU time of all calls
        share_pct float64: percentage of the time of all kernels
        inferred_calls int64: calls launched from a thread without ranges (autograd's, say) and
            attributed to the range open on the main thread at that moment; 0 with --strict
        inferred_ns int64: GPU time of the inferred calls
        processes int64: processes that launched it, on all hosts
    """),
    brief="range_path short_name calls total_ns share_pct inferred_calls",
    detail=True,
    adds="calls total_ns share_pct inferred_calls inferred_ns",
)
PATTERNS = TableSpec(
    "range_patterns",
    "one row per range pattern (numbers become #, so that all steps add up); a call counts under "
    "every range around it, so shares overlap",
    column_list("""
        range_pattern text: range path with # for numbers
        instances int64?: times such a range was entered
        calls int64: kernel launches
        total_ns int64: GPU time of these kernels
        share_pct float64: percentage of the time of all kernels
        per_instance_ns int64?: GPU time per instance, rounded
    """),
    brief="range_pattern instances total_ns share_pct per_instance_ns calls",
)
INCLUSIVE = TableSpec(
    "ranges_inclusive",
    "one row per range; a call counts under every range around it, so shares overlap",
    column_list("""
        range_path text: range names, outermost first, joined by /
        calls int64: kernel launches
        total_ns int64: GPU time of these kernels
        share_pct float64: percentage of the time of all kernels
    """),
    brief="range_path calls total_ns share_pct",
    detail=True,
)
MODULES = TableSpec(
    "modules",
    "one row per kernel and module of a torch model under which it was launched, forward or "
    "backward; empty unless recorded with --annotate modules",
    column_list("""
        module text: path of the module, with # for numbers: layers alike are one
        file text: source file of the line that calls it
        line int64: the line
        function text: function that contains the line
        short_name text: base name of the kernel
        calls int64: launches
        total_ns int64: GPU time of all calls
        share_pct float64: percentage of the time of all kernels
    """),
    brief="module file line short_name calls total_ns share_pct",
    detail=True,
    adds="calls total_ns share_pct",
)


def inclusive(
    tree: RangeTree, path: RowNumbers, duration_ns: Integers
) -> tuple[Integers, Integers]:
    """Calls and time of each path and all paths below it.

    `path` and `duration_ns` have one entry per launch; path is -1 outside all ranges.
    """
    paths = tree.paths
    calls = groups.added(path, np.ones(len(path), np.int64), len(paths))
    total = groups.added(path, duration_ns, len(paths))
    for numbers in (calls, total):
        paths.add_up(numbers)
    return calls, total


def entered_ranges(trace: Trace, tree: RangeTree) -> Mask:
    """True for selected ranges and for ranges around selected work."""
    chosen = selected_ranges(trace)
    ranges = attributed_operations(trace).range[selected_operations(trace)]
    has_work = np.zeros(len(chosen), bool)
    has_work[ranges[ranges >= 0]] = True
    return chosen | tree.around(has_work)


def compute(trace: Trace) -> Result:
    chosen = selected_operations(trace)[operations.kernel_operations(trace)]
    found = tuple(findings(trace, RULES))
    last = () if any(each.severity != "info" for each in found) else findings(trace, (LAST,))
    return Result(
        Deferred(lambda: _tables(trace, chosen)),
        (*found, *last),
        Deferred(lambda: _summary(trace, chosen)),
        _whole_graph_notes(trace),
    )


def _tables(trace: Trace, chosen: Mask) -> dict[str, Table]:
    kernels = trace.kernels.take(chosen)
    labels = kernel_classes.kernel_labels(trace).take(chosen)
    duration_ns = kernels.duration_ns
    steady_ns = np.where(steady_kernels(trace)[chosen], duration_ns, 0)
    tree = range_tree(trace)
    attribution = attributed_operations(trace)
    ops = operations.kernel_operations(trace)[chosen]
    path = picked(attribution.path(tree), ops)
    calls, total = inclusive(tree, path, duration_ns)
    # Kernel time of each GPU by class.
    device, kind = kernels["device"], kernel_classes.kernel_classes(trace)[chosen]
    by_class = groups.group(device, kind)
    figures = groups.stats(by_class, duration_ns)
    of_device = groups.added(device, duration_ns, len(trace.devices))
    devices = device[by_class.first]
    names = [kernel_classes.KernelClass(number).label for number in kind[by_class.first].tolist()]
    table = Table(
        CLASSES.columns,
        {
            "device_id": trace.devices["device_id"][devices].astype(np.int64),
            "host_id": operations.device_hosts(trace)[devices],
            "class": Texts.of(names),
            "calls": figures.calls,
            "total_ns": figures.total,
            "median_ns": figures.median,
            "share_pct": 100.0 * figures.total / np.maximum(of_device[devices], 1),
            "steady_total_ns": groups.sums(by_class, steady_ns),
        },
    )
    return {
        "kernels": _by_name(kernels, labels, duration_ns, steady_ns),
        "classes": table.take(np.lexsort((-figures.total, devices))),
        "range_patterns": _patterns(trace, path, calls, total, duration_ns),
        "ranges": _exclusive(tree, kernels, path, attribution.inferred[ops], duration_ns),
        "ranges_inclusive": _inclusive_table(tree, calls, total, duration_ns),
        "modules": _by_module(trace, chosen, kernels, duration_ns),
    }


def _summary(trace: Trace, chosen: Mask) -> dict[str, int]:
    """Kernel time, that inside any range, and the part of it whose range is inferred."""
    attribution, duration_ns = attributed_operations(trace), trace.kernels.duration_ns[chosen]
    ops = operations.kernel_operations(trace)[chosen]
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
    names = kernels.texts("name").take(by_kernel.first)
    tiles = [tile(str(name)) for name in names.values]
    table = Table(
        KERNELS.columns,
        {
            "name": names,
            "short_name": kernels.texts("short_name").take(by_kernel.first),
            "label": labels.take(by_kernel.first),
            "tile": names.map([None if one is None else str(one) for one in tiles]),
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


def _by_module(trace: Trace, chosen: Mask, kernels: Table, duration_ns: Integers) -> Table:
    work = module_lines.module_work(trace)
    of = work.of_operation[operations.kernel_operations(trace)[chosen]]
    inside = np.flatnonzero(of >= 0)
    each = groups.group(of[inside], kernels.texts("short_name").codes[inside])
    total = groups.sums(each, duration_ns[inside])
    lines = [work.lines[number] for number in of[inside][each.first].tolist()]
    table = Table(
        MODULES.columns,
        {
            "module": Texts.of(line.module for line in lines),
            "file": Texts.of(line.file for line in lines),
            "line": np.array([line.line for line in lines], np.int64),
            "function": Texts.of(line.function for line in lines),
            "short_name": kernels.texts("short_name").take(inside[each.first]),
            "calls": groups.count(each),
            "total_ns": total,
            "share_pct": _pct_of(total, duration_ns),
        },
    )
    return table.take(np.argsort(-total, kind="stable"))


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
    tables=(KERNELS, CLASSES, PATTERNS, MODULES, RANGES, INCLUSIVE),
    compute=compute,
    charts=(
        Chart("bars", "kernels", "GPU time by kernel, after warm-up", "label", "steady_total_ns"),
        Chart("bars", "classes", "GPU time by class, after warm-up", "class", "steady_total_ns"),
        Chart("bars", "range_patterns", "GPU time by range", "range_pattern", "total_ns"),
    ),
)
