"""Lanes of CPU threads: ranges, CUDA calls coloured by what they cost, and sampled Python lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from traceview import groups
from traceview.facts.operations import blocking_calls, cuda_api
from traceview.facts.ranges.origins import INFERRED_DOMAIN
from traceview.facts.ranges.ranges import range_tree
from traceview.facts.samples import stack_lines
from traceview.facts.waits.stalls import stalls
from traceview.tables import Integers, Texts, picked, unbroken
from traceview.timeline.names import CLASS_OF_CALL, FIRST_DOING, HARMFUL, NUMBER, RowNames
from traceview.timeline.tracks import Lane, Track, spread
from traceview.trace import Trace

HARMFUL_NS = 5_000
"""Idle time from which a wait is shown as harmful: less costs no more than a kernel launch."""
MOST_DEPTH = 16
"""Ranges nested deeper are left out."""
_MERGED_PERIODS = 3
_LEAST_MAIN = 100
"""Main threads come first if they make at least 1 / _LEAST_MAIN of the busiest thread's calls."""


def thread_lanes(trace: Trace, names: RowNames) -> Iterator[Lane]:
    """A lane per thread with ranges, calls or samples: main threads first, then by CUDA calls."""
    tracks: dict[int, list[Track]] = {}
    for part in (_range_tracks, _call_tracks, _python_tracks):
        for thread, track in part(trace, names):
            tracks.setdefault(thread, []).append(track)
    calls = np.bincount(cuda_api.api_calls(trace).thread, minlength=len(trace.threads))
    main = trace.threads["thread_id"] == trace.processes["process_id"][trace.threads["process"]]
    most = int(calls.max(initial=0))
    used = main & (calls >= most // _LEAST_MAIN)
    for thread in sorted(tracks, key=lambda row: (not used[row], -int(calls[row]))):
        process = int(trace.threads["process"][thread])
        yield Lane(
            "thread", thread_title(trace, thread), tuple(tracks[thread]), -1, process, thread
        )


def thread_title(trace: Trace, thread: int) -> str:
    """The title of a thread, such as `python3, thread 4242`."""
    name, number = trace.threads.texts("name")[thread], int(trace.threads["thread_id"][thread])
    return f"{name}, thread {number}" if name else f"Thread {number}"


def _range_tracks(trace: Trace, names: RowNames) -> Iterator[tuple[int, Track]]:
    """The ranges of each thread, one track per depth, without inferred steps: see step_lanes."""
    tree, ranges = range_tree(trace), trace.recorded("ranges")
    if not len(tree.row):
        return
    nesting = tree.nesting
    name = names.add(ranges.texts("name").take(tree.row), NUMBER["range"])
    # The depth of each range of the tree, −1 for inferred steps.
    inferred = trace.recorded("ranges").texts("domain").isin([INFERRED_DOMAIN])
    depth = tree.nesting.depth
    depths = np.where(inferred[tree.row], np.int32(-1), depth) if inferred.any() else depth
    for thread, (first, last) in enumerate(pairwise(nesting.bounds.tolist())):
        for deep, at in groups.rows_of(depths[first:last]).items():
            if 0 <= deep < MOST_DEPTH:
                at += np.int32(first)
                track = Track.some("ranges", nesting.start, nesting.end, name, at)
                apart = thread not in nesting.walked
                yield from ((thread, part) for part in ((track,) if apart else spread(track)))


def _call_tracks(trace: Trace, names: RowNames) -> Iterator[tuple[int, Track]]:
    """The tracks of each thread's calls: runtime calls, and below them the calls they make."""
    calls = cuda_api.api_calls(trace)
    if not len(calls):
        return
    classes = np.array(CLASS_OF_CALL, np.int16)[calls.does]
    classes[harmful_calls(trace)] = HARMFUL
    name = names.add(trace.api_calls.texts("name"), classes)
    for thread, own in cuda_api.calls_by_thread(trace).items():
        at = unbroken(own)
        start, end = picked(calls.start_ns, at), picked(calls.end_ns, at)
        if (end <= start).any():
            end = np.maximum(end, start + 1)
        track = Track.of("calls", start, end, picked(name, at), own)
        if (start[1:] < start[:-1]).any():
            track = track.take(np.argsort(start, kind="stable"))
        yield from ((thread, part) for part in spread(track))


def harmful_calls(trace: Trace) -> Integers:
    """Rows of api_calls that left a GPU idle for HARMFUL_NS or more."""
    cost = stalls(trace)
    idle = cost.idle_ns(np.ones(len(cost.wait), bool))
    return blocking_calls.waits(trace).call[idle >= HARMFUL_NS]


def _python_tracks(trace: Trace, names: RowNames) -> Iterator[tuple[int, Track]]:
    """A track per sampled thread: the line of the program that consecutive samples agree on."""
    samples = trace.recorded("python_samples")
    if not len(samples):
        return
    lines = stack_lines(trace)
    # Texts such as `train.py:42 in step`, for the frame (row in python_frames) of each stack.
    frames = trace.recorded("python_frames")
    rows = np.maximum(lines.frame, 0)
    file, function = (frames.texts(n).take(rows).decode() for n in ("file", "function"))
    numbers = frames["line"][rows].tolist()
    line = Texts.of(
        f"{str(path).rpartition('/')[2]}:{number} in {of}"
        for path, number, of in zip(file, numbers, function, strict=True)
    )
    for thread in groups.different(samples["thread"]).tolist():
        own = np.flatnonzero(samples["thread"] == thread)
        stack = samples["stack"][own]
        own, stack = own[lines.frame[stack] >= 0], stack[lines.frame[stack] >= 0]
        if len(own) < 2:
            continue
        kind = lines.doing[stack].astype(np.int64) + FIRST_DOING
        name = names.add(line.take(stack), kind)
        # Consecutive samples with the same name, and no gap, form one row.
        time = samples["time_ns"][own]
        period = max(int(np.median(np.diff(time))), 1)
        opens = np.append(True, name[1:] != name[:-1])
        opens[1:] |= np.diff(time) > _MERGED_PERIODS * period
        first = np.flatnonzero(opens)
        last = np.append(first[1:], len(time)) - 1
        following = np.append(time[first[1:]], time[-1] + period)
        end = np.minimum(time[last] + period, np.maximum(following, time[last] + 1))
        yield thread, Track.of("python", time[first], end, name[first], own[first])
