"""Loops within loops: whether the passes of a launch sequence are steps, or layers of a step.

Identical layers launch the same kernels again and again, as a loop does. What tells them apart is
seen on the host:

1. A pass that waits for the GPU, copies from or to the host or launches a CUDA graph is a step.
2. Where the CPU pauses longer before every k-th pass than before the others, k passes are a step:
   the program returns from its model and calls it again.
3. Where all passes come in groups of k with other launches between them, none of which the host
   sees, k passes are a step: embeddings and heads stand there, and nothing is logged.
4. Otherwise a pass is a step if the CPU pauses in it once, much longer than between its other
   launches, or if layers repeat inside it.
5. If not, and other launches stand between every k passes and the next, k passes are a step. Else
   nothing is known of the steps of a framework's model; in a program without a framework, such as
   a simulation that never waits, each pass is a step.

A profiler inside the program often records one call of a model. There short passes between kernels
that no pass launches, an embedding before and a head after them, are layers, whatever the pauses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.tables import Array, Integers, Mask, arrays
from traceview.base.vocabulary.amounts import DEVIATIONS_PER_MAD
from traceview.traces.facts.ranges.origins import program_ranges, range_name_forms
from traceview.traces.trace import Trace

# Whether passes call the same modules, as steps do, or others, as layers do.
#
# Stacks of torch.profiler number the modules (`nn.Module: Linear_3`), and ranges of FSDP name
# them by their path (`FSDP::pre_forward (blocks.3)`).

_LEAST_SAMPLES, _MOST_SHARED = 100, 0.1
_NUMBERED_MODULE = re.compile(r".*[A-Za-z_]\.[\d#]+[._)]")
_ARGUMENTS = ", op_id = "


def call_other_modules(
    trace: Trace, process: int, thread: int, begin: Integers, end: Integers
) -> bool:
    """Whether few modules of a pass, from its `begin` to its `end`, are in the next pass but one.

    The next pass may begin within a module of this one. False where modules were not recorded in
    all passes, or too few of their stacks.
    """
    if "python_samples" in trace.tables and "python_frames" in trace.tables:
        # Samples of the thread whose stack has modules, by time.
        samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
        of_modules = groups.different(frames["stack"][frames.texts("file").isin([""])])
        inside = groups.isin(samples["stack"], of_modules)
        rows = np.flatnonzero((samples["thread"] == thread) & inside)
        time, stack = samples["time_ns"][rows], samples["stack"][rows]
        if len(time) >= _LEAST_SAMPLES and _are_others(time, stack, begin, end):
            return True
    # Library ranges whose name has a numbered module, by start.
    ranges = trace.recorded("ranges")
    names = ranges.texts("name")
    mask = range_name_forms(trace).matching(_NUMBERED_MODULE)[names.codes]
    rows = np.flatnonzero(mask & ~program_ranges(trace) & (ranges["process"] == process))
    rows = rows[np.argsort(ranges["start_ns"][rows], kind="stable")]
    called = [str(names[row]).partition(_ARGUMENTS)[0] for row in rows.tolist()]
    modules = np.unique(called, return_inverse=True)[1]
    return _are_others(ranges["start_ns"][rows], modules, begin, end)


def _are_others(time: Integers, module: Array, begin: Integers, end: Integers) -> bool:
    edges = np.searchsorted(time, begin), np.searchsorted(time, end)
    of_pass = [module[first:last] for first, last in zip(*edges, strict=True)]
    if not all(map(len, of_pass)):
        return False
    pairs = zip(of_pass, of_pass[2:], strict=False)
    again = np.concatenate([np.isin(one, later) for one, later in pairs])
    return bool(np.mean(again) <= _MOST_SHARED)


_MOST_LAYERS = 256
_LEAST_GROUPS, _LEAST_STEPS = 8, 3
_MOST_LAUNCHES = 1 << 15
# A pause stands out by so many standard errors, this part of the others, and of the next longest.
_ERRORS, _LONGER, _NEXT = 8.0, 0.1, 3.0
_LEAST_PAUSE_NS = 1_000
"""Python takes longer from one call of a model to the next. By the recorder's buffers, a C++ loop
paused for 0.1 µs more before every 17th pass."""
_MARKED, _ALL_BUT_FEW = 0.7, 0.9
_LONGEST_LAYER = 100
_MEDIAN_ERROR = 1.2533


class Grouping(NamedTuple):
    """Every `passes` passes are one step; the first step begins in pass `first`.

    A step begins `offset` launches after the first launch of its first pass.
    """

    passes: int
    first: int
    offset: int


def mostly_marked(first: Integers, end: int, marked: Mask) -> bool:
    """Whether nearly all passes hold a launch that the host sees."""
    hits = np.add.reduceat(marked[:end].astype(np.int64), first)
    return bool(np.mean(hits > 0) >= _ALL_BUT_FEW)


def longest_marked(first: Integers, end: int, marked: Mask) -> tuple[int, int]:
    """Begin and end of the most passes in a row that each hold a launch that the host sees."""
    hits = np.add.reduceat(marked[:end].astype(np.int64), first) > 0
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hits.astype(np.int8), [0]])))
    runs = [(0, 0), *zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)]
    return max(runs, key=lambda run: run[1] - run[0])


def repeats_inside(kind: Integers) -> bool:
    """Whether most launches of a pass repeat at one distance, as those of layers do."""
    return any(
        np.mean(kind[distance:] == kind[:-distance]) >= _MARKED
        for distance in range(2, len(kind) // 3 + 1)
    )


def within_one_call(
    first: Integers, end: int, kind: Integers, marked: Mask, *, is_cut: bool
) -> bool:
    """Whether short passes, not seen by the host, stand between launches that no pass makes.

    Where the recording `is_cut`, those behind the last pass may have lost their work.
    """
    if arrays.median(np.diff(first)) > _LONGEST_LAYER or mostly_marked(first, end, marked):
        return False
    # The first pass may reach back to the start of the model, the last one to its end.
    repeated = kind[first[1] : first[-1]]
    before, after = (
        not np.isin(part, repeated).all() for part in (kind[: first[1]], kind[first[-1] :])
    )
    return before and (after or is_cut)


def between_other_launches(first: Integers, lag: int) -> Integers | None:
    """First launch of each pass after other launches, if these come every k passes; else None."""
    longer = np.flatnonzero(np.diff(first) != lag)
    apart = np.diff(longer)
    if len(apart) < _LEAST_STEPS or arrays.median(apart) < 2:
        return None
    regular = np.mean(apart == arrays.median(apart)) >= _ALL_BUT_FEW
    return first[longer + 1] if regular else None


def in_equal_groups(first: Integers, lag: int, marked: Mask) -> Integers | None:
    """The first launch of each group, where all passes are in groups of k >= 2; else None.

    Launches that no pass repeats stand between the groups; the host sees none of them, but perhaps
    in one group in four (a first wait, the last result).
    """
    longer = np.flatnonzero(np.diff(first) != lag)
    groups = np.diff(np.concatenate([[-1], longer, [len(first) - 1]]))
    if len(longer) < _LEAST_STEPS or groups.min() < 2 or groups.min() < groups.max():
        return None
    begins, ends = first[longer] + lag, first[longer + 1]
    seen = [bool(marked[begin:after].any()) for begin, after in zip(begins, ends, strict=True)]
    return first[:: groups[0]] if np.mean(seen) <= 1 - _MARKED else None


def grouping(first: Integers, lag: int, pause_ns: Integers) -> Grouping | None:
    """How many passes are one step, by pauses that stand out; None where none do.

    `first` is the launch that begins each pass of `lag` launches.
    """
    some = first[: max(_MOST_LAUNCHES // lag, 1)]
    some = some[some + lag <= len(pause_ns)]
    pauses = pause_ns[some + np.arange(lag)[:, None]].astype(float)
    best, most = None, 0.0
    for offset, passes in sorted(_standing_out(pauses)):
        whole = len(some) // passes * passes
        position, errors = _longest(pauses[offset, :whole], passes)
        if errors > most:
            best, most = Grouping(passes, position, offset), errors
    return best


def _standing_out(pauses: Array) -> Iterator[tuple[int, int]]:
    """Yield (offset, k) where, in groups of k passes, one pass pauses far longer than the others.

    The pause is that before launch `offset` of a pass; `pauses` has shape (offsets, passes).
    """
    offsets, count = pauses.shape
    for passes in range(2, min(count // _LEAST_GROUPS, _MOST_LAYERS) + 1):
        groups = count // passes
        table = pauses[:, : groups * passes].reshape(offsets, groups, passes)
        pause = np.sort(arrays.medians(table, 1), axis=1)
        usual, next_longest = arrays.medians(pause[:, :-1], 1), pause[:, -2]
        longer = pause[:, -1] - usual
        far = (longer >= _LONGER * usual) & (longer >= _NEXT * (next_longest - usual))
        far &= longer >= _LEAST_PAUSE_NS
        yield from zip(np.flatnonzero(far).tolist(), repeat(passes))


def _longest(pauses: Array, passes: int) -> tuple[int, float]:
    """The pass of a group that pauses longest, and by how many standard errors; 0.0 if too few."""
    table = pauses.reshape(-1, passes)
    pause = arrays.medians(table, 0)
    place = int(np.argmax(pause))
    usual = arrays.median(np.delete(pause, place))
    longer = float(pause[place]) - usual
    if np.mean(table[:, place] > usual + longer / 2) < _MARKED:
        return place, 0.0
    deviation = DEVIATIONS_PER_MAD * arrays.median(np.abs(table - pause))
    error = max(_MEDIAN_ERROR * deviation / np.sqrt(len(table)), 0.01 * usual, 1.0)
    errors = longer / error
    return place, errors if errors >= _ERRORS else 0.0
