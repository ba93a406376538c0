"""Which kernels take the GPU's time, and under which NVTX range they were launched."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Result, TableSpec
from traceview.analyses.kernel_share import fp32_wording
from traceview.analyses.kernel_share.fp32_gemms import fp32_products, steady_kernels
from traceview.analyses.kernel_share.range_totals import entered, inclusive
from traceview.facts.idle.gaps import busy_ns, steady_span_ns
from traceview.facts.operations.cuda_graphs import AS_NODES, cuda_graphs
from traceview.facts.operations.gemm_names import tile
from traceview.facts.operations.kernel_labels import kernel_labels
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.ranges import RangeTree, attributed_operations, range_tree
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.warm_up import launched_in_warm_up
from traceview.findings import Finding, severity_of, shortened
from traceview.tables import NULL, Array, Column, Integers, Mask, RowNumbers, Table, Texts, thrifty
from traceview.trace import Trace

KERNELS = TableSpec(
    "kernels",
    "one row a kernel, most time first",
    (
        Column("name", "text", "demangled, whole"),
        Column("short_name", "text", "base name, without templates and arguments"),
        Column("label", "text", "base name, and what tells it from others"),
        Column(
            "tile",
            "text",
            "of a library's matrix product, from its name: rows x columns that a block computes at "
            "once, in column order; depth x stages in flight; type multiplied",
            nullable=True,
        ),
        Column("calls", "int64", "times it ran"),
        Column("total_ns", "int64", "time on the GPU, all calls"),
        Column("mean_ns", "int64", "mean of a call, rounded"),
        Column("median_ns", "int64", "median of a call"),
        Column("min_ns", "int64", "shortest call"),
        Column("max_ns", "int64", "longest call"),
        Column("share_pct", "float64", "of the time of all kernels"),
        Column("processes", "int64", "processes that it ran in, on all hosts"),
    ),
    brief=("label", "calls", "total_ns", "share_pct", "median_ns", "tile", "max_ns", "min_ns"),
    adds=("calls", "total_ns", "share_pct"),
)
RANGES = TableSpec(
    "ranges",
    "one row a kernel and range; each run counts once, under the innermost range of its launch",
    (
        Column("range_path", "text", "ranges from the outermost down, joined by /"),
        Column("short_name", "text", "base name of the kernel"),
        Column("calls", "int64", "times it ran"),
        Column("total_ns", "int64", "time on the GPU, all calls"),
        Column("share_pct", "float64", "of the time of all kernels"),
        Column(
            "inferred_calls",
            "int64",
            "runs launched by a thread without ranges, such as autograd's, and counted under the "
            "range open on the main thread at the launch; none with --strict",
        ),
        Column("inferred_ns", "int64", "their time on the GPU"),
        Column("processes", "int64", "processes that it ran in, on all hosts"),
    ),
    brief=("range_path", "short_name", "calls", "total_ns", "share_pct", "inferred_calls"),
    detail=True,
    adds=("calls", "total_ns", "share_pct", "inferred_calls", "inferred_ns"),
)
PATTERNS = TableSpec(
    "range_patterns",
    "one row a range with its numbers as #, all steps together; each run counts under every range "
    "around it, so shares overlap",
    (
        Column("range_pattern", "text", "range path with its numbers as #"),
        Column("instances", "int64", "times a range of that pattern was entered", nullable=True),
        Column("calls", "int64", "kernels that ran"),
        Column("total_ns", "int64", "time of these kernels on the GPU"),
        Column("share_pct", "float64", "of the time of all kernels"),
        Column("per_instance_ns", "int64", "time by instance, rounded", nullable=True),
    ),
    brief=("range_pattern", "instances", "total_ns", "share_pct", "per_instance_ns", "calls"),
)
INCLUSIVE = TableSpec(
    "ranges_inclusive",
    "one row a range; each run counts under every range around it, so shares overlap",
    (
        Column("range_path", "text", "ranges from the outermost down, joined by /"),
        Column("calls", "int64", "kernels that ran"),
        Column("total_ns", "int64", "time of these kernels on the GPU"),
        Column("share_pct", "float64", "of the time of all kernels"),
    ),
    brief=("range_path", "calls", "total_ns", "share_pct"),
    detail=True,
)


_PRODUCTS_FROM = 0.10


def compute(trace: Trace) -> Result:
    chosen = selected_operations(trace)[kernel_operations(trace)]
    places = kernel_operations(trace)[chosen]
    kernels = trace.kernels.take(chosen)
    took = kernels.duration_ns
    labels = kernel_labels(trace).take(chosen)
    return Result(
        {
            "kernels": _by_name(kernels, labels, took),
            **_by_range(trace, chosen, kernels, took),
        },
        (
            *_of_products(trace),
            *_of_the_largest(kernels, labels, took, ~launched_in_warm_up(trace)[places]),
        ),
        {
            "kernel_calls": len(kernels),
            "kernel_total_ns": int(took.sum()),
            **_attributed(trace, chosen, took),
        },
        _unseen(trace),
    )


def _attributed(trace: Trace, chosen: Mask, took: Integers) -> dict[str, int]:
    """Of the kernels' time, what is in some range, and what of that was inferred."""
    found = attributed_operations(trace)
    places = kernel_operations(trace)[chosen]
    within, inferred = found.range[places] >= 0, found.inferred[places]
    return {"attributed_ns": int(took[within].sum()), "inferred_ns": int(took[inferred].sum())}


def _unseen(trace: Trace) -> tuple[str, ...]:
    """What graphs recorded whole keep from these tables."""
    graphs = selected_operations(trace) & cuda_graphs(trace).whole
    if not graphs.any():
        return ()
    launches = units.counted(int(graphs.sum()), "CUDA graph launch", "CUDA graph launches")
    return (
        f"{launches} ({units.duration(busy_ns(trace, graphs))} of GPU time) recorded whole: the "
        f"kernels inside are not in these tables, and shares are of the others. {AS_NODES}",
    )


def _by_name(kernels: Table, labels: Texts, took: Integers) -> Table:
    found = groups.group(kernels.texts("name").codes)
    figures = groups.stats(found, took)
    table = Table(
        KERNELS.columns,
        {
            "name": kernels.texts("name").take(found.first),
            "short_name": kernels.texts("short_name").take(found.first),
            "label": labels.take(found.first),
            "tile": _tiles(kernels.texts("name").take(found.first)),
            "calls": figures.calls,
            "total_ns": figures.total,
            "mean_ns": np.rint(figures.total / np.maximum(figures.calls, 1)).astype(np.int64),
            "median_ns": figures.median,
            "min_ns": figures.least,
            "max_ns": figures.most,
            "share_pct": _share(figures.total, took),
            "processes": groups.distinct(found, kernels["process"]),
        },
    )
    return table.take(np.argsort(-figures.total, kind="stable"))


def _tiles(names: Texts) -> Texts:
    """What the names of matrix products tell of their tiles."""
    told = [tile(str(name)) for name in names.values]
    return names.map([None if one is None else str(one) for one in told])


def _by_range(trace: Trace, chosen: Mask, kernels: Table, took: Integers) -> dict[str, Table]:
    tree = range_tree(trace)
    attribution = attributed_operations(trace)
    places = kernel_operations(trace)[chosen]
    path = attribution.path(tree)[places]
    calls, total = inclusive(tree, path, took)
    return {
        "range_patterns": _patterns(trace, path, calls, total, took),
        "ranges": _exclusive(tree, kernels, path, attribution.inferred[places], took),
        "ranges_inclusive": _inclusive_table(tree, calls, total, took),
    }


def _exclusive(
    tree: RangeTree, kernels: Table, path: RowNumbers, inferred: Mask, took: Integers
) -> Table:
    found = groups.group(path, kernels.texts("short_name").codes)
    total = groups.sums(found, took)
    table = Table(
        RANGES.columns,
        {
            "range_path": tree.paths.texts(path[found.first]),
            "short_name": kernels.texts("short_name").take(found.first),
            "calls": groups.count(found),
            "total_ns": total,
            "share_pct": _share(total, took),
            "inferred_calls": thrifty(groups.count(found, inferred)),
            "inferred_ns": thrifty(groups.sums(found, np.where(inferred, took, 0))),
            "processes": thrifty(groups.distinct(found, kernels["process"])),
        },
    )
    return table.take(groups.most_first(total))


def _inclusive_table(tree: RangeTree, calls: Integers, total: Integers, took: Integers) -> Table:
    rows = np.flatnonzero(calls)
    rows = rows[groups.most_first(total[rows])]
    return Table(
        INCLUSIVE.columns,
        {
            "range_path": tree.paths.texts(rows),
            "calls": calls[rows],
            "total_ns": total[rows],
            "share_pct": _share(total[rows], took),
        },
    )


def _patterns(
    trace: Trace, path: RowNumbers, calls: Integers, total: Integers, took: Integers
) -> Table:
    """The inclusive sums once more, the steps of a series together, and what is in no range."""
    tree = range_tree(trace)
    mine = entered(trace, tree)
    kinds = len(tree.patterns)
    times = np.bincount(tree.path_pattern[tree.path[mine]], minlength=kinds)
    instances = np.append(times, NULL)
    outside = path < 0
    ran, time = (np.zeros(kinds + 1, np.int64) for _ in range(2))
    np.add.at(ran, tree.path_pattern, calls)
    np.add.at(time, tree.path_pattern, total)
    ran[-1], time[-1] = outside.sum(), took[outside].sum()
    each = np.rint(time / np.maximum(instances, 1)).astype(np.int64)
    rows = np.flatnonzero(ran)
    rows = rows[np.argsort(-time[rows], kind="stable")]
    return Table(
        PATTERNS.columns,
        {
            "range_pattern": tree.patterns.texts(np.where(rows < kinds, rows, -1)),
            "instances": instances[rows],
            "calls": ran[rows],
            "total_ns": time[rows],
            "share_pct": _share(time[rows], took),
            "per_instance_ns": np.where(instances == NULL, NULL, each)[rows],
        },
    )


def _share(part: Integers, took: Integers) -> Array:
    return 100.0 * part / max(int(took.sum()), 1)


def _of_the_largest(
    kernels: Table, labels: Texts, took: Integers, steady: Mask
) -> Iterator[Finding]:
    """The kernel to begin with, of those that a longer run would launch more of."""
    early = bool(steady.any() and not steady.all())
    rows = np.flatnonzero(steady) if early else np.arange(len(steady))
    found = groups.group(kernels.texts("name").codes[rows])
    total = groups.sums(found, took[rows])
    if not total.any():
        return
    order = groups.most_first(total)
    yield Finding(
        "info",
        _largest_in_words(
            shortened(labels[int(rows[found.first[order[0]]])]),
            _share(total[order], total),
            "the time of kernels launched after set-up" if early else "kernel time",
        ),
        "Start with that kernel: make it faster, or fuse it with its neighbours; what it takes "
        "is the most that can be won.",
        int(total[order[0]]),
    )


def _largest_in_words(name: str, share: Array, whole: str) -> str:
    few = int(np.searchsorted(np.cumsum(share), 80.0)) + 1
    if len(share) > few > 1:
        together = f"{few} kernels of {len(share)} take {share[:few].sum():.0f} % of {whole}"
        return f"{together}; {name} alone takes {share[0]:.0f} %"
    return f"{name} alone takes {share[0]:.0f} % of {whole}"


def _of_products(trace: Trace) -> Iterator[Finding]:
    """Products that tensor cores could do, where they take enough of the time after set-up."""
    found = fp32_products(trace)
    if not found:
        return
    kernels, mine = trace.recorded("kernels"), steady_kernels(trace)
    total = int(kernels.duration_ns[mine].sum())
    saved = sum(each.saved_ns or 0 for each in found)
    known = any(each.kind for each in found)
    severity = severity_of(saved, steady_span_ns(trace)) if known else "info"
    if severity and sum(each.time_ns for each in found) >= _PRODUCTS_FROM * total:
        yield Finding(
            severity, fp32_wording.message(found, total), fp32_wording.action(found), saved
        )


ANALYSIS = Analysis(
    name="kernel-share",
    title="Kernel share",
    question="Which kernels take the GPU's time, and which part of the program launched them?",
    needs=("kernels",),
    tables=(KERNELS, PATTERNS, RANGES, INCLUSIVE),
    compute=compute,
    charts=(
        Chart("bars", "kernels", "Time on the GPU by kernel", "label", "total_ns"),
        Chart("bars", "range_patterns", "Time on the GPU by range", "range_pattern", "total_ns"),
    ),
)
