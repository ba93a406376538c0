"""Phases of each process, from its first event to its last.

Compilation comes from `compilation`. Before the first launch is start-up, after the last GPU work
shut-down: CPU work where the run is about what the CPU does then, as the verdict says. What is
launched in between tells the rest apart:

1. Training: around launches of autograd's threads and kernels of an optimizer.
2. Replay: around launches of CUDA graphs.
3. Generation: attention or sampling once per token, without a backward pass.
4. Evaluation: in a process that trains, passes of training's kernels without a backward pass.
5. Other GPU work before training is start-up; in a process without training it is compute.

The phase in which the first steady step begins is warm-up until then.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import numpy as np

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import Array, ColumnRecord, Integers, Mask, RowNumbers, arrays, picked
from traceview.traces.analyses.gpu_idle.beside_work import beside_gpu_work
from traceview.traces.facts import compilation, operations
from traceview.traces.facts.idle.gaps import busy_by_process
from traceview.traces.facts.kernel_classes import KernelClass, kernel_classes
from traceview.traces.facts.ranges.selection import issued_ns, selected_operations
from traceview.traces.facts.steps.steps import steps, warm_up_end_ns
from traceview.traces.trace import Trace, fact


class Phase(IntEnum):
    """What a process does; `label` is the published name."""

    START_UP = 0
    COMPILATION = 1
    WARM_UP = 2
    TRAINING = 3
    EVALUATION = 4
    GENERATION = 5
    REPLAY = 6
    COMPUTE = 7
    SHUT_DOWN = 8
    CPU_WORK = 9

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


WITHOUT_WORK = (Phase.START_UP, Phase.SHUT_DOWN, Phase.CPU_WORK)
_OPTIMIZER_BURST = 8
_PASSES = 3
_LEAST_PASSES = 1.5
# A pass may hold several bursts, as of two optimizers: the longer distances count.
_USUAL = 0.75
_LEAST_ALIKE = 0.5
_AUTOGRAD = "pt_autograd"
_SAMPLING = ("ArgMax", "argmax", "multinomial", "Multinomial", "sampling", "Sampling")
# Tokens of generation: fewer are a program that samples once.
_LEAST_TOKENS = 4
SHORTEST_NS = 1_000_000
"""A shorter phase is merged into the one before it."""


@record
class Phases(ColumnRecord):
    """One row per stretch of one phase, by process and start; they adjoin.

    `phase` is a `Phase`. `busy_ns` is the time within the stretch in which the process's GPUs ran
    its work, divided by the number of these GPUs.
    """

    process: RowNumbers
    phase: Array
    start_ns: Integers
    end_ns: Integers
    busy_ns: Integers


@fact
def phases(trace: Trace) -> Phases:
    """The phases of the processes with GPU work."""
    # First and last time at which each process occurs in the recording; shape (processes, 2).
    limits, count = np.iinfo(np.int64), len(trace.processes)
    first, last = np.full(count, limits.max), np.full(count, limits.min)
    for name in ("api_calls", "ranges", "kernels", "copies", "sets", "graph_launches", "overheads"):
        table = trace.recorded(name)
        for part in groups.parts(len(table)):
            process, start, end = (table[c][part] for c in ("process", "start_ns", "end_ns"))
            # The recorder's own cost may belong to no process.
            known = slice(None) if name != "overheads" else process >= 0
            np.minimum.at(first, process[known], start[known])
            # One that never ended is NULL, the least value, there.
            np.maximum.at(last, process[known], np.maximum(start, end)[known])
    samples = trace.recorded("python_samples")
    np.minimum.at(first, samples["process"], samples["time_ns"])
    np.maximum.at(last, samples["process"], samples["time_ns"])
    lives = np.stack((first, last), axis=1)
    rows = [
        (process, *stretch)
        for process in compilation.working_processes(trace)
        for stretch in _phases_of(trace, process, *lives[process].tolist())
    ]
    process, phase, start, end = np.array(rows, np.int64).reshape(-1, 4).T
    launching = operations.operations(trace).process
    works = Counter[tuple[int | None, int | None]]()
    for work in beside_gpu_work(trace):
        works[work.window] += work.saved_ns
    for window, worked_ns in works.items():
        middle = sum(time or 0 for time in window) // 2
        own = (process == np.bincount(launching[launching >= 0]).argmax()) & (start <= middle)
        own &= (middle < end) & np.isin(phase, WITHOUT_WORK)
        phase[own & (2 * worked_ns > end - start)] = Phase.CPU_WORK
    busy = np.zeros(len(process), np.int64)
    for each, own in groups.rows_of(process).items():
        busy[own] = _busy_ns(trace, each, start[own], end[own])
    return Phases(process.astype(np.int32), phase.astype(np.uint8), start, end, busy)


def _busy_ns(trace: Trace, process: int, start: Integers, end: Integers) -> Integers:
    by_device = busy_by_process(trace).get(process, {})
    total = np.zeros(len(start), np.int64)
    for covered in by_device.values():
        total += intervals.overlap(covered, start, end)
    return total // max(len(by_device), 1)


def _phases_of(trace: Trace, process: int, first: int, last: int) -> list[tuple[int, int, int]]:
    """Phase, start and end of each stretch of a process recorded from `first` to `last`."""
    ops, compiled = operations.operations(trace), compilation.compilation(trace).of(process)
    own = operations.operations_by_process(trace).get(process, groups.NO_ROWS)
    issued = picked(issued_ns(trace), own)
    order = np.argsort(issued, kind="stable")
    own, issued = own[order], issued[order]
    ended = int(np.clip(compilation.last_work_ns(trace, process), first, last))
    bounds = np.array([first, ended, last])
    kinds = np.array([Phase.START_UP, Phase.SHUT_DOWN], np.uint8)
    if len(own):
        worked = int(ops.end_ns[own].max())
        # What a compiler launches is a trial.
        kept = ~intervals.inside(compiled, issued)
        begins, kinds = _by_launches(trace, process, own[kept], issued[kept])
        bounds = np.concatenate([[first], begins, [worked, max(last, worked)]])
        kinds = np.concatenate([[Phase.START_UP], kinds, [Phase.SHUT_DOWN]]).astype(np.uint8)
        bounds, kinds = _with_warm_up(trace, process, bounds, kinds)
    # Let the windows of compilation replace the other phases.
    edges = groups.different(np.concatenate([bounds, compiled.start, compiled.end]))
    edges = edges[(edges >= bounds[0]) & (edges <= bounds[-1])]
    kind = kinds[np.clip(np.searchsorted(bounds, edges[:-1], side="right") - 1, 0, len(kinds) - 1)]
    kind = np.where(intervals.inside(compiled, edges[:-1]), Phase.COMPILATION, kind)
    return _joined(edges, kind)


def _by_launches(
    trace: Trace, process: int, own: RowNumbers, issued: Integers
) -> tuple[Integers, Array]:
    """Times at which the kind of work of a process changes, and the kind from each of them on.

    `own` are the rows of its operations in the order in which they were `issued`.
    """
    backward, graphs = picked(_backward(trace), own), picked(_of_graphs(trace), own)
    training, usual = passes_around(backward)
    launches = len(groups.different(operations.operations(trace).call[own[graphs]]))
    replay, _ = passes_around(graphs if launches > 1 else graphs & False)
    kind = np.full(len(own), Phase.COMPUTE, np.uint8)
    kind[replay] = Phase.REPLAY
    kind[training] = Phase.TRAINING
    if training.any():
        _tell_evaluation(kind, _kernel_names(trace)[own], int(usual * _LEAST_PASSES))
    edges = np.flatnonzero(np.append(True, kind[1:] != kind[:-1])) if len(kind) else kind[:0]
    kinds, ends = kind[edges], np.append(edges[1:], len(kind))
    for number in np.flatnonzero(kinds == Phase.COMPUTE).tolist():
        rows = slice(int(edges[number]), int(ends[number]))
        if _generates(trace, process, own[rows], issued[rows]):
            kinds[number] = Phase.GENERATION
    return issued[edges], kinds


def _tell_evaluation(kind: Array, name: RowNumbers, least: int) -> None:
    """Assign phases, in place, to the stretches of other work in a process that trains.

    `name` numbers the kernel of each operation, −1 for other operations. Before training a stretch
    is start-up until the first kernel that training has as well. The rest is evaluation if it has
    at least `least` operations, else a part of training.
    """
    training = kind == Phase.TRAINING
    alike = np.isin(name, name[training]) & (name >= 0)
    first = int(np.argmax(training))
    edges = np.flatnonzero(np.append(True, kind[1:] != kind[:-1]))
    for begin, end in zip(edges.tolist(), np.append(edges[1:], len(kind)).tolist(), strict=True):
        if kind[begin] != Phase.COMPUTE:
            continue
        if end <= first:
            start = _settled(alike[begin:end]) + begin
            kind[begin:start] = Phase.START_UP
            begin = start
        shared = float(np.mean(alike[begin:end])) if end > begin else 0.0
        if end - begin < least:
            kind[begin:end] = Phase.TRAINING
        elif shared >= _LEAST_ALIKE:
            kind[begin:end] = Phase.EVALUATION


def _settled(alike: Mask) -> int:
    """The row from which on alike entries most outnumber the others."""
    gain = np.cumsum(np.where(alike, 1, -1)[::-1])[::-1]
    return int(np.argmax(gain)) if len(gain) and gain.max() > 0 else len(alike)


def passes_around(evidence: Mask) -> tuple[Mask, int]:
    """The operations of passes that hold evidence, and the usual distance between two bursts of it.

    Between two bursts of evidence lies the rest of a pass; a distance of several times the usual
    one lies between loops. The first pass begins one usual distance before its evidence.
    """
    result = np.zeros(len(evidence), bool)
    rows = np.flatnonzero(evidence)
    if not len(rows):
        return result, 0
    apart = np.diff(rows)
    far = apart[apart > _OPTIMIZER_BURST]
    usual = int(arrays.quantile(far, _USUAL)) if len(far) else _OPTIMIZER_BURST
    breaks = apart > _PASSES * max(usual, _OPTIMIZER_BURST)
    first, last = rows[np.append(True, breaks)], rows[np.append(breaks, True)]
    before = np.append(-1, last[:-1])
    edges = np.zeros(len(evidence) + 1, np.int64)
    np.add.at(edges, np.maximum(first - usual + 1, before + 1), 1)
    np.add.at(edges, last + 1, -1)
    result[:] = np.cumsum(edges[:-1]) > 0
    return result, usual


def selected_phases(trace: Trace) -> Mask:
    """True for the phases of processes that launched selected work."""
    every = phases(trace)
    if not trace.selection:
        return np.ones(len(every), bool)
    working = groups.different(operations.operations(trace).process[selected_operations(trace)])
    return np.isin(every.process, working)


@fact
def _backward(trace: Trace) -> Mask:
    """True for the operations that a backward pass or an optimizer launched."""
    ops, calls = operations.operations(trace), trace.recorded("api_calls")
    threads = trace.recorded("threads").texts("name")
    names = [name for name in threads.values if str(name).startswith(_AUTOGRAD)]
    by_thread = np.append(threads.isin(names), False)
    result = np.zeros(len(ops), bool)
    result[ops.launched] = picked(by_thread, picked(calls["thread"], ops.call[ops.launched]))
    optimizer = np.flatnonzero(kernel_classes(trace) == KernelClass.OPTIMIZER)
    result[operations.kernel_operations(trace)[optimizer]] = True
    return result


@fact
def _of_graphs(trace: Trace) -> Mask:
    """True for the operations of CUDA graphs."""
    ops = operations.operations(trace)
    result: Mask = ops.kind == operations.Kind.GRAPH
    result[ops.launched] |= picked(operations.graph_launch_calls(trace), ops.call[ops.launched])
    return result


@fact
def _kernel_names(trace: Trace) -> RowNumbers:
    """The name of the kernel of each operation as a number; −1 for other operations."""
    result = np.full(len(operations.operations(trace)), -1, np.int32)
    result[operations.kernel_operations(trace)] = trace.recorded("kernels").texts("name").codes
    return result


def _generates(trace: Trace, process: int, own: RowNumbers, issued: Integers) -> bool:
    """Whether a process generates: by its Python samples, else by whether it draws tokens.

    It draws tokens where attention and a choice of the next token alternate.
    """
    share = _generating_samples(trace, process, int(issued[0]), int(issued[-1]))
    if share is not None:
        return share >= _LEAST_ALIKE
    ops = operations.operations(trace)
    rows = picked(ops.row, own[picked(ops.kind, own) == operations.Kind.KERNEL])
    drawn = int(picked(_draws_token(trace), rows).sum())
    if drawn < _LEAST_TOKENS:
        return False
    return int((picked(kernel_classes(trace), rows) == KernelClass.ATTENTION).sum()) >= drawn


@fact
def _draws_token(trace: Trace) -> Mask:
    """True for the kernels that choose the next token."""
    names = trace.recorded("kernels").texts("name")
    draws = np.zeros(len(names.values) + 1, bool)
    for code in groups.different(names.codes[names.codes >= 0]).tolist():
        draws[code] = any(word in str(names.values[code]) for word in _SAMPLING)
    return draws[names.codes]


def _generating_samples(trace: Trace, process: int, start: int, end: int) -> float | None:
    """The share of the samples in [start, end] that are inside a `generate`; None without any."""
    if "python_samples" not in trace.tables:
        return None
    samples, frames = trace.tables["python_samples"], trace.tables["python_frames"]
    rows = (samples["process"] == process) & (samples["time_ns"] >= start)
    rows &= samples["time_ns"] <= end
    rows &= np.isin(samples["thread"], groups.different(trace.recorded("api_calls")["thread"]))
    if not rows.any():
        return None
    generates = np.zeros(int(frames["stack"].max(initial=-1)) + 1, bool)
    generates[frames["stack"][frames.texts("function").isin(["generate"])]] = True
    return float(np.mean(generates[samples["stack"][rows]]))


def _with_warm_up(
    trace: Trace, process: int, bounds: Integers, kinds: Array
) -> tuple[Integers, Array]:
    """Split the stretch in which the first steady step begins; its part before is warm-up."""
    warm = warm_up_end_ns(trace)
    known = steps(trace)
    if not len(known) or not (known.process == process).any():
        return bounds, kinds
    at = int(np.searchsorted(bounds, warm, side="right")) - 1
    if not 0 <= at < len(kinds) or kinds[at] in (Phase.START_UP, Phase.SHUT_DOWN):
        return bounds, kinds
    bounds = np.insert(bounds, at + 1, warm)
    kinds = np.insert(kinds, at, Phase.WARM_UP)
    return bounds, kinds


def _joined(bounds: Integers, kinds: Array) -> list[tuple[int, int, int]]:
    """Stretches, with neighbours of one phase merged and too short ones added to the one before."""
    rows: list[tuple[int, int, int]] = []
    for kind, start, end in zip(
        kinds.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
    ):
        if end <= start:
            continue
        if rows and (rows[-1][0] == kind or end - start < SHORTEST_NS):
            rows[-1] = (rows[-1][0], rows[-1][1], end)
        else:
            rows.append((kind, start, end))
    return rows
