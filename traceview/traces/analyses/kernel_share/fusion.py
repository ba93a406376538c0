"""Kernels that should not be launched one by one: memsets, elementwise chains, attention."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import Subject
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, picked
from traceview.base.units import Value
from traceview.base.vocabulary.libraries import tile
from traceview.traces.analyses.wording import work_time
from traceview.traces.facts import operations, savings
from traceview.traces.facts.idle.gaps import steady_spans_ns
from traceview.traces.facts.kernel_classes import (
    KernelClass,
    KernelOwner,
    kernel_classes,
    kernel_owners,
    terms,
)
from traceview.traces.facts.savings import Effect
from traceview.traces.facts.steps import steps
from traceview.traces.rules import (
    FindingRule,
    TimeClaim,
    class_claim,
    costliest_gpu,
    gained,
    gpu_subject,
    named,
    steady,
    whole_claim,
)
from traceview.traces.trace import Trace, fact

# Kernels that should not be launched one by one: memsets, tensor updates, chains to be fused.
#
# Memsets: nearly every kernel of the program waits for one before it. Libraries clear their own
# workspaces, which nobody can change: only memsets that come right before a kernel of the program
# count.
#
# Updates: an average of weights, scaled gradients or a hand-written optimizer is a loop over
# parameters. It launches the same few elementwise kernels for each, at as many sizes as the
# parameters have. One that only casts or copies them updates nothing.
#
# Fusion: elementwise kernels are bound by memory, so a fused kernel takes about as long as the
# longest of those it replaces. On an H200, nanoGPT's kernels took 3.72 ms per step, of which this
# rule says that 0.917 ms can be saved; with torch.compile they took 2.80 ms, 0.925 ms less.

_MANY, _LEAST_FRACTION = 1_000, 0.25
_LARGE_BYTES, _LEAST_BUSY_FRACTION = 1 << 20, 0.05
"""Larger memsets take bandwidth, smaller ones cost a launch: each is claimed as one of the two."""


def _storms(trace: Trace) -> Iterator[TimeClaim]:
    """The GPU with most small memsets right before kernels of the program."""
    ops, order = operations.operations(trace), operations.operations_by_stream(trace)
    rows = _memsets(trace, large=False)
    following = np.full(len(ops), -1, np.int64)
    following[order[:-1]] = order[1:]
    rows = rows[following[rows] >= 0]
    after = following[rows]
    own = (ops.stream[rows] == ops.stream[after]) & (ops.kind[after] == operations.Kind.KERNEL)
    own[own] = kernel_owners(trace)[ops.row[after[own]]] == KernelOwner.PROGRAM
    rows, after = rows[own], after[own]
    if len(rows) < _MANY:
        return
    device = int(np.argmax(np.bincount(ops.device[rows])))
    on_device = ops.device[rows] == device
    rows, after = rows[on_device], after[on_device]
    every = int((steps.steady_operations(trace) & (ops.device == device)).sum())
    if len(rows) < max(_MANY, _LEAST_FRACTION * every):
        return
    kind = KernelClass(int(np.argmax(np.bincount(kernel_classes(trace)[ops.row[after]]))))
    longest = int(np.argmax(ops.duration_ns[rows]))
    window = int(ops.start_ns[rows[longest]]), int(ops.end_ns[after[longest]])
    values = {
        "memsets": len(rows),
        "operations_pct": 100.0 * len(rows) / every,
        "total_ns": int(ops.duration_ns[rows].sum()),
    }
    yield _claim_of(trace, device, rows, values, {"class": kind.label}, window)


MEMSETS = FindingRule(
    _storms,
    "{memsets} kernels of the program each follow a memset ({operations_pct} of all operations). "
    "These memsets take {total_ns}.",
    "Clear the values in the kernel before the memset, or many of them with one memset: each is a "
    "launch of its own.",
)


def _large_memsets(trace: Trace) -> Iterator[TimeClaim]:
    """The GPU with most time in large memsets."""
    ops, rows = operations.operations(trace), _memsets(trace, large=True)
    if not len(rows):
        return
    device = int(np.argmax(np.bincount(ops.device[rows], ops.duration_ns[rows])))
    rows = rows[ops.device[rows] == device]
    # On several streams some may run at once.
    total_ns = intervals.covered(ops, rows).total()
    on_gpu = steps.steady_operations(trace) & (ops.device == device)
    busy_ns = intervals.covered(ops, on_gpu).total()
    runs_kernels = (on_gpu & (ops.kind == operations.Kind.KERNEL)).any()
    if total_ns < _LEAST_BUSY_FRACTION * busy_ns or not runs_kernels:
        return
    longest = int(rows[np.argmax(ops.duration_ns[rows])])
    size = trace.recorded("sets")["bytes"][ops.row[rows]]
    values = {
        "memsets": len(rows),
        "total_ns": total_ns,
        "busy_pct": 100.0 * total_ns / busy_ns,
        "median_bytes": int(np.median(size)),
    }
    window = int(ops.start_ns[longest]), int(ops.end_ns[longest])
    # Some of it has to be cleared.
    yield replace(_claim_of(trace, device, rows, values, {}, window), saving="at-most")


LARGE_MEMSETS = FindingRule(
    _large_memsets,
    "{memsets:memset} of {median_bytes} (median) take {total_ns}, {busy_pct} of the time that the "
    "GPU is busy.",
    "Allocate less, or clear only what the last pass used: a kernel that writes every element "
    "needs no memset before it.",
)


def _memsets(trace: Trace, *, large: bool) -> RowNumbers:
    """Rows of the steady memsets that are large, or of the others."""
    ops, size = operations.operations(trace), trace.recorded("sets")["bytes"]
    rows = np.flatnonzero(
        steps.steady_operations(trace) & (ops.kind == operations.Kind.SET)
    ).astype(np.int32)
    return rows[(size[ops.row[rows]] >= _LARGE_BYTES) == large]


def _claim_of(
    trace: Trace,
    device: int,
    rows: RowNumbers,
    values: Mapping[str, Value],
    kind: Mapping[str, Value],
    window: tuple[int, int],
) -> TimeClaim:
    """The claim that memsets of a GPU go."""
    gain = savings.of_operations(trace, rows)
    return TimeClaim(
        gpu_subject(trace, device),
        {**values, "saved_ns": gain.saved_ns},
        "classes",
        {**operations.gpu_cells(trace, device), **kind},
        **gained(gain),
        span_ns=steady_spans_ns(trace).get(device, 0),
        window=window,
        work=work_time(trace, rows),
    )


_OF_ONE_TENSOR = r"\bat::native::\w*elementwise_kernel<(?!.*\bFillFunctor\b)"
_OPTIMIZER = r"elementwise_kernel<.*\baddcdiv_cuda_kernel"
"""Only optimizers like Adam call addcdiv."""
_MANY_TENSORS = 20
_MOST_KINDS, _LEAST_SIZES = 3, 3


@record
class TensorLoops:
    """Kernels of loops over tensors, in order of stream and start, and the loop of each.

    `optimizer` is True in loops like Adam's, which have more kinds of kernels than others.
    """

    rows: RowNumbers
    loop: Integers
    optimizer: Mask

    def of(self, chosen: Mask) -> TensorLoops:
        """Those of some kernels."""
        return TensorLoops(self.rows[chosen], self.loop[chosen], self.optimizer[chosen])


def _loops(trace: Trace) -> Iterator[TimeClaim]:
    """The GPU with most time in loops over tensors that run in half of the steps."""
    loops = tensor_loops(trace)
    loops = loops.of(~loops.optimizer)
    by_device = groups.rows_of(trace.recorded("kernels")["device"][loops.rows])
    claims = [
        _updates_of(trace, device, loops.rows[own], loops.loop[own])
        for device, own in by_device.items()
    ]
    worst = max(filter(None, claims), key=lambda each: each.saved_ns, default=None)
    if worst:
        yield worst


def _updates_of(trace: Trace, device: int, rows: RowNumbers, run: Integers) -> TimeClaim | None:
    kernels, by_run = trace.recorded("kernels"), groups.group(run)
    in_steps = groups.different(
        steps.step_of_operations(trace)[operations.kernel_operations(trace)[rows]]
    )
    if by_run.size < 2 or 2 * np.count_nonzero(in_steps >= 0) < len(steps.steps(trace)) - 1:
        return None
    first, last = by_run.first, np.append(by_run.first[1:], len(run)) - 1
    time = intervals.union(kernels["start_ns"][rows[first]], kernels["end_ns"][rows[last]])
    values = {
        "updates": len(rows),
        "runs": by_run.size,
        "per_run": len(rows) // by_run.size,
        "total_ns": time.total(),
    }
    return whole_claim(trace, device, rows, values, time, _of_all_tensors(trace, rows, run))


def _of_all_tensors(trace: Trace, rows: RowNumbers, loop: Integers) -> Effect:
    """A kernel for all tensors of a loop: all time beyond that of its shortest kernel stays.

    The shortest one has next to nothing to do: what it takes is paid once.
    """
    duration_ns, by_loop = trace.recorded("kernels").duration_ns[rows], groups.group(loop)
    shortest_ns = groups.stats(by_loop, duration_ns).least
    left_ns = duration_ns - shortest_ns[by_loop.ids]
    left_ns[by_loop.first] += shortest_ns
    return savings.become_one(by_loop.ids, duration_ns, left_ns)


TENSOR_UPDATES = FindingRule(
    _loops,
    "Tensors are updated one by one: {updates} elementwise kernels in {runs:loop}, {per_run} in a "
    "row, take {total_ns} with the gaps between them.",
    "Update all tensors together: torch._foreach_lerp_ or AveragedModel with "
    "get_ema_multi_avg_fn for an average of weights, torch._foreach_mul_ and the like for "
    "gradients, foreach=True or fused=True for optimizers.",
)


def _tensor_by_tensor(trace: Trace) -> Iterator[TimeClaim]:
    """Adam-like optimizers that update each tensor alone, on the GPU with most such updates."""
    kernels, rows = trace.recorded("kernels"), steady(trace, named(trace, _OPTIMIZER))
    if len(rows) < _MANY_TENSORS * max(len(steps.steps(trace)), 1):
        return
    name, device = str(kernels.texts("name")[rows[0]]), int(kernels["device"][rows[0]])
    values: dict[str, Value] = {"updates": len(rows), "device": device}
    claim = TimeClaim(Subject("kernel", name), values, "kernels", {"name": name}, severity="low")
    loops = tensor_loops(trace)
    loops = loops.of(loops.optimizer & (kernels["device"][loops.rows] == device))
    if len(loops.rows):
        effect = _of_all_tensors(trace, loops.rows, loops.loop)
        whole = whole_claim(trace, device, loops.rows, values, effect=effect)
        subject = replace(whole.subject, kind="kernel", name=name)
        claim = replace(whole, subject=subject, table="kernels", row=claim.row, at_least="low")
    yield claim


TENSOR_BY_TENSOR = FindingRule(
    _tensor_by_tensor,
    "The optimizer updates its tensors one by one, {updates:update} in all, each of several "
    "kernels.",
    "Use foreach=True, or fused=True (Adam, AdamW): a few kernels update all tensors.",
)


@fact
def tensor_loops(trace: Trace) -> TensorLoops:
    """The loops over tensors after warm-up that launch a kernel or two for each, or an update."""
    kernels = trace.recorded("kernels")
    found = named(trace, _OF_ONE_TENSOR)
    rows, opens = steady_in_order(trace) if found.any() else (groups.NO_ROWS, found[:0])
    single = found[rows]
    stretch = np.cumsum(opens | groups.opens(single)) - 1
    at = np.flatnonzero(single)
    kind = groups.group(picked(stretch, at), picked(kernels.texts("name").codes, picked(rows, at)))
    often = np.zeros(len(rows), bool)
    often[at] = np.bincount(kind.ids)[kind.ids] >= _MANY_TENSORS
    run = np.cumsum(opens | groups.opens(often)) - 1
    rows, run = rows[often], run[often]
    by_run = groups.group(run)
    kinds = groups.distinct(by_run, kernels.texts("name").codes[rows])
    sizes = groups.distinct(by_run, kernels["grid_x"][rows])
    computes = groups.count(by_run, kernel_classes(trace)[rows] != KernelClass.CAST_COPY) > 0
    optimizer = groups.count(by_run, named(trace, _OPTIMIZER)[rows]) >= _MANY_TENSORS
    loops = computes & (groups.count(by_run) >= _MANY_TENSORS)
    # Layers that are alike give an optimizer tensors of one or two sizes.
    loops &= optimizer | ((kinds <= _MOST_KINDS) & (sizes >= _LEAST_SIZES))
    return TensorLoops(rows, run, optimizer[by_run.ids]).of(loops[by_run.ids])


# Kernels of eager operators: those of compilers and of hand-written code are fused already.
_TORCH, _CUPY = r"\bat::native::", r"^cupy_"
_FUSES = (
    KernelClass.ELEMENTWISE,
    KernelClass.CAST_COPY,
    KernelClass.NORMALIZATION,
    KernelClass.REDUCTION,
    KernelClass.SOFTMAX,
    KernelClass.RANDOM,
)
_FUSED_OPTIMIZER = r"Fused\w*Optimizer|Fused(?:Adam|SGD|Adagrad)\w*|LpNorm|lpnorm"


Merge = Callable[[Integers, Integers], savings.Effect]
_COMPILES: Merge = partial(savings.merged, launches_part=0.5)
"""Part of the launches' time that goes where a compiler makes one kernel of several: its code has a
cost, too. Of 4.4 ms per step that nanoGPT's launches in chains and the time between
them took, torch.compile won 2.2 (docs/accuracy.md)."""
_UPDATES: Merge = partial(savings.merged, prepares=True)
"""Between two foreach kernels, Python goes through all tensors for the next one, which the fused
optimizer does in C++."""


def unfused_kernels(trace: Trace, others: Mask) -> Iterator[TimeClaim]:
    """A claim on the runs of eager kernels that could be one kernel each, without the `others`."""
    kinds = kernel_classes(trace)
    eager = named(trace, _TORCH) & np.isin(kinds, _FUSES)
    # cupy.fuse takes no reduction but the last operation of a chain.
    eager |= named(trace, _CUPY) & np.isin(kinds, _FUSES[:2])
    return _runs(trace, eager & ~others, np.arange(len(eager)), _COMPILES)


def unfused_optimizer(trace: Trace) -> Iterator[TimeClaim]:
    """A claim on the runs of foreach kernels of optimizers; norms of gradients are left out.

    An operation over all tensors takes several launches, so the longest operation of a run counts
    instead of the longest kernel.
    """
    foreach = kernel_classes(trace) == KernelClass.OPTIMIZER
    if foreach.any():
        foreach &= ~named(trace, _FUSED_OPTIMIZER)
    return _runs(trace, foreach, trace.recorded("kernels").texts("name").codes, _UPDATES)


def _runs(trace: Trace, wanted: Mask, operation: Array, merge: Merge) -> Iterator[TimeClaim]:
    """Runs of the wanted kernels, on the GPU where fusing them saves most.

    Kernels of equal `operation` are one operation. A run has two kernels or more, and ends with its
    step, or where the CPU reads a value: nothing fuses kernels of two steps, or across a read.
    """
    if not wanted.any():
        return
    rows, opens = steady_in_order(trace)
    is_wanted = picked(wanted, rows)
    run = np.cumsum(opens | groups.opens(is_wanted, picked(_reads_before(trace), rows))) - 1
    run, rows = run[is_wanted], rows[is_wanted]
    if not len(rows):
        return
    several = np.bincount(run)[run] > 1
    run, rows = run[several], rows[several]
    by_run, names = groups.group(run), trace.recorded("kernels").texts("name").codes
    # One kernel again and again is a loop around it, of a benchmark or over tensors, no chain.
    of_one = (groups.distinct(by_run, names[rows]) == 1) & (groups.count(by_run) >= _MANY_TENSORS)
    run, rows = run[~of_one[by_run.ids]], rows[~of_one[by_run.ids]]
    by_device = groups.rows_of(trace.recorded("kernels")["device"][rows])
    claims = [
        _of_device(trace, device, run[own], rows[own], operation, merge)
        for device, own in by_device.items()
    ]
    if claims:
        yield max(claims, key=lambda each: each.gain)


@fact
def _reads_before(trace: Trace) -> Integers:
    """Of each kernel, how many copies to the CPU come before it on its stream."""
    ops, order = operations.operations(trace), operations.operations_by_stream(trace)
    copies, result = (
        ops.kind == operations.Kind.COPY,
        np.zeros(len(trace.recorded("kernels")), np.int64),
    )
    to_cpu = trace.recorded("copies").texts("direction").isin(["D2H"])
    reads = np.zeros(len(ops), bool)
    reads[copies] = to_cpu[ops.row[copies]]
    number, is_kernel = np.cumsum(reads[order]), ops.kind[order] == operations.Kind.KERNEL
    result[ops.row[order[is_kernel]]] = number[is_kernel]
    return result


@fact
def steady_in_order(trace: Trace) -> tuple[RowNumbers, Mask]:
    """The steady kernels by stream and start, and where another stream or step begins."""
    ops, order = operations.operations(trace), operations.operations_by_stream(trace)
    order = order[picked(ops.kind, order) == operations.Kind.KERNEL]
    order = order[picked(steps.steady_kernels(trace), picked(ops.row, order))]
    stream, step = picked(ops.stream, order), picked(steps.step_of_operations(trace), order)
    return picked(ops.row, order), groups.opens(stream, step)


def _of_device(
    trace: Trace,
    device: int,
    run: Integers,
    rows: RowNumbers,
    operation: Array,
    merge: Merge,
) -> TimeClaim:
    kernels = trace.recorded("kernels")
    duration_ns = kernels.duration_ns[rows]
    by_run = groups.group(run)
    by_operation = groups.group(by_run.ids, operation[rows])
    time, of_run = groups.sums(by_operation, duration_ns), by_run.ids[by_operation.first]
    longest_last = np.lexsort((time, of_run))
    longest = longest_last[np.append(groups.opens(of_run[longest_last])[1:], True)]
    stays = np.isin(by_operation.ids, longest)
    less_ns = np.where(stays, 0, duration_ns)
    most = by_run.ids == int(np.argmax(groups.sums(by_run, duration_ns)))
    window = int(kernels["start_ns"][rows[most]].min()), int(kernels["end_ns"][rows[most]].max())
    values = {
        "kernels": len(rows),
        "runs": by_run.size,
        "total_ns": int(duration_ns.sum()),
        "less_ns": int(less_ns.sum()),
    }
    effect = merge(by_run.ids, less_ns)
    return replace(class_claim(trace, device, rows, values, effect), window=window)


# Attention whose softmax runs between two matrix products: fused kernels keep it on the chip.
#
# Unfused, the scores of all pairs of positions are written and read several times: scaled,
# masked, cast, normalized, dropped. A fused kernel does this between its two products, so the
# kernels between the GEMMs disappear. With bf16 or fp16 products at least their time is saved,
# with fp32 products at most that, since fused kernels multiply fp32 more slowly (measured:
# docs/accuracy.md).

# Kernels of scaling, masks, casts and dropout.
_BETWEEN = (KernelClass.ELEMENTWISE, KernelClass.CAST_COPY, KernelClass.RANDOM, KernelClass.SOFTMAX)
_MOST_BETWEEN = 8
_LEAST_SOFTMAXES = 2
_NARROW = re.compile(r"b?f\d?16|[fsu]8|e\dm\d")
_IN_FP32 = " In bf16 or fp16 that saves more than in fp32."
# Of a loss or of a sampler.
_NOT_ATTENTION = (
    r"(?i)log_?soft|nll_loss|cross_?entropy|softmax_warp_(?:forward|backward)<[^<>]*, "
    r"(?:\(bool\)1|true), (?:\(bool\)[01]|true|false)>"
)
_SOFTMAX_BACKWARD = r"(?i)softmax_?(?:warp_?)?backward"
_IN_PROGRAM = (
    (
        "torch/nn/functional.py",
        "multi_head_attention_forward",
        "Call nn.MultiheadAttention with need_weights=False where its weights are not used: then "
        "it runs a fused kernel.",
    ),
    (
        "transformers/",
        "eager_attention_forward",
        'Load the model with attn_implementation="sdpa" (or "flash_attention_2").',
    ),
)


def _unfused(trace: Trace) -> Iterator[TimeClaim]:
    kernels = trace.recorded("kernels")
    for device, rows in costliest_gpu(trace, steady(trace, unfused_attention(trace))):
        softmaxes = rows[kernel_classes(trace)[rows] == KernelClass.SOFTMAX]
        forward = softmaxes[~named(trace, _SOFTMAX_BACKWARD)[softmaxes]]
        parts = _attention(trace).of(kernels["device"] == device)
        left_ns = np.where(parts.product, kernels.duration_ns[parts.rows], 0)
        one = savings.become_one(parts.call, kernels.duration_ns[parts.rows], left_ns)
        values = {"softmaxes": len(softmaxes)}
        claim = class_claim(trace, device, rows, values, one, parts.rows, forward)
        # The type that most products of attention multiply, as their kernels name it.
        names = kernels.texts("name")
        codes = names.codes[parts.rows[parts.product]]
        of = tile(str(names.values[np.argmax(np.bincount(codes))]))
        narrow = _NARROW.match((of and of.inputs) or "")
        yield replace(
            claim,
            row={**claim.row, "class": KernelClass.SOFTMAX.label},
            window=(int(kernels["start_ns"][rows].min()), int(kernels["end_ns"][rows].max())),
            remedy=_remedy(trace) + ("" if narrow else _IN_FP32),
            saving="at-least" if narrow else "at-most",
        )


UNFUSED_ATTENTION = FindingRule(
    _unfused,
    "Attention is not fused. {softmaxes:softmax|softmaxes} run between two GEMMs each, and the "
    "{kernels:kernel} between these take {total_ns} ({total_pct} of kernel time after warm-up). A "
    "fused kernel needs none of them.",
)


def unfused_attention(trace: Trace) -> Mask:
    """True for the steady kernels between the two products of an attention that is not fused."""
    parts = _attention(trace)
    return groups.marked(parts.rows[~parts.product], len(trace.recorded("kernels")))


@record
class AttentionParts:
    """Kernels of attention that is not fused, in order: products and what runs between them.

    `call` is that of each: two products forward, four backward.
    """

    rows: RowNumbers
    call: Integers
    product: Mask

    def of(self, chosen: Mask) -> AttentionParts:
        """Those of some rows of kernels."""
        own = chosen[self.rows]
        return AttentionParts(self.rows[own], self.call[own], self.product[own])


@fact
def _attention(trace: Trace) -> AttentionParts:
    rows, opens = steady_in_order(trace)
    kinds = kernel_classes(trace)[rows]
    if not (kinds == KernelClass.SOFTMAX).any():
        return AttentionParts(rows[:0], np.zeros(0, np.int64), opens[:0])
    between, gemm = np.isin(kinds, _BETWEEN), kinds == KernelClass.GEMM
    run = np.cumsum(opens | groups.opens(between)) - 1
    first = np.flatnonzero(groups.opens(run))
    count = np.diff(np.append(first, len(run)))
    softmax = np.bincount(run, kinds == KernelClass.SOFTMAX)
    other = np.bincount(run, named(trace, _NOT_ATTENTION)[rows])
    last = first + count - 1
    # A product before and after it, on the same stream and in the same step.
    after = np.minimum(last + 1, len(rows) - 1)
    products = (
        gemm[first - 1]
        & gemm[after]
        & ~opens[first]
        & ~opens[after]
        & (first > 0)
        & (last + 1 < len(rows))
    )
    unfused = between[first] & products & (softmax == 1) & (other == 0) & (count <= _MOST_BETWEEN)
    # A copy of results, or of the next input, separates two passes.
    start = trace.recorded("kernels")["start_ns"][rows]
    unfused &= ~_copied(trace, start[first - 1], start[after])
    if np.count_nonzero(unfused) < _LEAST_SOFTMAXES:
        unfused[:] = False
    call: Integers = np.where(unfused[run], run, -1).astype(np.int64)
    found = np.flatnonzero(unfused)
    call[first[found] - 1] = call[after[found]] = found
    # The derivatives of a product are two products.
    back = found[np.bincount(run, named(trace, _SOFTMAX_BACKWARD)[rows])[found] > 0]
    for one, end, joins in ((first - 2, first - 1, first - 1), (after + 1, after, after + 1)):
        near = back[(one[back] >= 0) & (one[back] < len(rows))]
        near = near[gemm[one[near]] & ~opens[joins[near]] & (call[end[near]] == near)]
        call[one[near]] = near
    at = np.flatnonzero(call >= 0)
    return AttentionParts(rows[at], call[at], gemm[at])


def _copied(trace: Trace, start: Integers, end: Integers) -> Mask:
    """True for the times [start, end) in which a copy between host and GPU begins."""
    copies = trace.recorded("copies")
    begun = np.sort(copies["start_ns"][copies.texts("direction").isin(["H2D", "D2H"])])
    return np.searchsorted(begun, end) > np.searchsorted(begun, start)


def _remedy(trace: Trace) -> str:
    """The remedy, by the attention function that Python samples show, if any."""
    frames = trace.recorded("python_frames")
    for folder, function, remedy in _IN_PROGRAM:
        named = np.flatnonzero(frames.texts("function").isin([function]))
        if any(folder in str(file) for file in set(frames.texts("file").take(named).decode())):
            return remedy
    return terms(trace).attention
