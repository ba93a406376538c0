"""Kernels that a CUDA graph replays, where the process also launches them one by one.

Both are passes of the same kernels in the same order, so their times compare directly. Graphs
recorded whole do not show their kernels and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.facts.operations.cuda_graphs import cuda_graphs
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.warm_up import operations_in_warm_up
from traceview.records import record
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact

LEAST_KERNELS = 4
"""Shorter sequences recur by chance."""
MOST_GRAPHS = 64
_BASE, _SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(0xD6E8_FEB8_6659_FD93)
Hashes = npt.NDArray[np.uint64]


@record
class Replayed:
    """A sequence of kernels that ran both ways; the spans are from first start to last end.

    `launched` is, as a row of operations, the first kernel of each pass that was launched kernel by
    kernel, `launched_ns` the span of the pass; `steady` is False for passes of warm-up.
    """

    process: int
    kernels: int
    launched: Integers
    launched_ns: Integers
    steady: Mask
    replays: int
    replay_ns: int
    kernel_ns: int

    @property
    def median_ns(self) -> int:
        return int(np.median(self.launched_ns))


@fact
def replayed_sequences(trace: Trace) -> tuple[Replayed, ...]:
    """The sequences that the selected work ran both ways, by process and most replays."""
    ops = operations(trace)
    chosen = (ops.kind == Kind.KERNEL) & selected_operations(trace) & ops.launched
    node = cuda_graphs(trace).node
    sequences: list[Replayed] = []
    for process in groups.different(ops.process[chosen & node]).tolist():
        own = chosen & (ops.process == process)
        sequences += _of_process(trace, int(process), np.flatnonzero(own & node), own & ~node)
    return tuple(sequences)


def _of_process(trace: Trace, process: int, nodes: Integers, alone: Mask) -> Iterator[Replayed]:
    """Yield the sequences of one process.

    `nodes` are rows of operations launched by graphs; `alone` is the mask of those launched singly.
    """
    ops, names = operations(trace), _names(trace)
    nodes = nodes[np.argsort(ops.call[nodes], kind="stable")]
    replay = groups.group(ops.call[nodes])
    place = np.arange(len(nodes)) - replay.first[replay.ids]
    hashes = np.zeros(replay.size, np.uint64)
    np.add.at(hashes, replay.ids, names[nodes] * _powers(int(place.max()) + 1)[place])
    length = groups.count(replay)
    end = np.full(replay.size, np.iinfo(np.int64).min)
    np.maximum.at(end, replay.ids, ops.end_ns[nodes])
    span, busy = (
        end - ops.start_ns[nodes][replay.first],
        groups.sums(replay, ops.duration_ns[nodes]),
    )
    sequences, which, count = np.unique(
        np.stack((length.astype(np.uint64), hashes)),
        axis=1,
        return_inverse=True,
        return_counts=True,
    )
    rows = np.flatnonzero(alone)
    sums = _prefix_hashes(names[rows])
    for number in groups.most_first(count)[:MOST_GRAPHS].tolist():
        kernels, own = int(sequences[0, number]), which.reshape(-1) == number
        starts = _passes(sums, kernels, sequences[1, number])
        if kernels < LEAST_KERNELS or not len(starts):
            continue
        first, last = rows[starts], rows[starts + kernels - 1]
        yield Replayed(
            process,
            kernels,
            first,
            ops.end_ns[last] - ops.start_ns[first],
            ~operations_in_warm_up(trace)[first],
            int(count[number]),
            int(np.median(span[own])),
            int(np.median(busy[own])),
        )


def _names(trace: Trace) -> Hashes:
    """A number per operation, equal for kernels of one name and grid; undefined for others."""
    ops, kernels = operations(trace), trace.recorded("kernels")
    grid = tuple(kernels[f"grid_{axis}"] for axis in "xyz")
    alike = groups.group(kernels.texts("name").codes, *grid).ids
    result = np.zeros(len(ops), np.uint64)
    is_kernel = ops.kind == Kind.KERNEL
    result[is_kernel] = (alike[ops.row[is_kernel]].astype(np.uint64) + np.uint64(1)) * _SPREAD
    return result


def _powers(count: int) -> Hashes:
    """Powers of the base from 0 on, modulo 2^64."""
    result = np.full(max(count, 1), _BASE)
    result[0] = 1
    return np.cumprod(result, dtype=np.uint64)


def _prefix_hashes(names: Hashes) -> Hashes:
    terms = names * _powers(len(names))[: len(names)]
    return np.concatenate((np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)))


def _passes(sums: Hashes, kernels: int, sought: np.uint64) -> Integers:
    """Starts of the occurrences, without overlap, of the sequence whose hash is `sought`."""
    windows = len(sums) - kernels
    if windows <= 0:
        return np.zeros(0, np.int64)
    hit = np.flatnonzero(sums[kernels:] - sums[:windows] == sought * _powers(windows)[:windows])
    starts, after = [], 0
    while (place := int(np.searchsorted(hit, after))) < len(hit):
        starts.append(int(hit[place]))
        after = starts[-1] + kernels
    return np.array(starts, np.int64)
