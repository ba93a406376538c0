"""The timeline of a trace: all lanes and counters on one clock, reduced to fit a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals, Timed
from traceview.base.records import record
from traceview.base.tables import Array, Integers, RowNumbers, Texts, constant, object_array
from traceview.traces.analyses.phases.phases import Phase, phases
from traceview.traces.facts.steps.steps import pace, steps
from traceview.traces.timeline.lanes import (
    Counter,
    LaunchConfigurations,
    counters,
    idle_lanes,
    launch_configurations,
    migration_lanes,
    stream_lanes,
    thread_lanes,
)
from traceview.traces.timeline.tracks import FIRST_PHASE, NUMBER, Lane, RowNames, Track, spread
from traceview.traces.trace import Trace

# Lanes of the run as a whole: its steps and the phases of its processes.


def step_lanes(trace: Trace, names: RowNames) -> Iterator[Lane]:
    """The lane of steps: each from the end of the previous one's GPU work to the end of its own."""
    every, timed = steps(trace), pace(trace)
    rows = np.flatnonzero(timed.timed)
    if not len(rows):
        return
    kind = np.full(len(every), NUMBER["step"])
    kind[timed.warm_up] = NUMBER["step-warm-up"]
    kind[timed.outlier] = NUMBER["step-outlier"]
    name = names.add(every.names.take(rows), kind[rows])
    track = Track.of("steps", timed.begin_ns[rows], timed.end_ns[rows], name, rows)
    yield Lane("steps", "Steps", spread(track))


def phase_lanes(trace: Trace, names: RowNames) -> Iterator[Lane]:
    """A lane per process with GPU work, which shows its phases."""
    every = phases(trace)
    labels = Texts(every.phase.astype(np.int32), object_array([phase.label for phase in Phase]))
    name = names.add(labels, every.phase.astype(np.int64) + FIRST_PHASE)
    processes = groups.different(every.process).tolist()
    for process in processes:
        rows = np.flatnonzero(every.process == process)
        track = Track.of("phases", every.start_ns[rows], every.end_ns[rows], name[rows], rows)
        owner = f", process {trace.processes['process_id'][process]}" if len(processes) > 1 else ""
        yield Lane("phases", f"Phases{owner}", spread(track), process=process)


@record
class Timeline:
    """Everything that happened, from `start_ns` to `end_ns` on the clock of the recording."""

    start_ns: int
    end_ns: int
    lanes: tuple[Lane, ...]
    counters: tuple[Counter, ...]
    names: RowNames
    launches: LaunchConfigurations

    @property
    def tracks(self) -> Iterator[Track]:
        """The tracks of all lanes."""
        return (track for lane in self.lanes for track in lane.tracks)


def timeline(trace: Trace, most_points: int | None = None, of_all: int = 0) -> Timeline:
    """The timeline of the whole recording, whatever is selected.

    With `most_points`, counters with more points are reduced to that many, and many counters to
    `of_all` together.
    """

    def counted_points() -> tuple[Counter, ...]:
        every = tuple(counters(trace))
        if most_points is None:
            return every
        most = min(most_points, of_all // max(len(every), 1))
        return tuple(counter.reduced(most) for counter in every)

    with ThreadPoolExecutor(1) as pool:
        # Counters do not depend on the lanes.
        counting = pool.submit(counted_points)
        names, launches = RowNames(), launch_configurations(trace)
        lanes = (
            *step_lanes(trace, names),
            *phase_lanes(trace, names),
            *thread_lanes(trace, names),
            *idle_lanes(trace, names),
            *stream_lanes(trace, names, launches),
            *migration_lanes(trace, names),
        )
    lanes, counted = tuple(lane for lane in lanes if lane.rows), counting.result()
    tracks = [track for lane in lanes for track in lane.tracks]
    starts = [int(track.take(slice(0, 1)).start_ns[0]) for track in tracks]
    ends = [int(track.end_ns.max()) for track in tracks]
    times = [int(counter.time_ns[-1]) for counter in counted if len(counter.time_ns)]
    return Timeline(
        min(starts, default=0), max([*ends, *times], default=0), lanes, counted, names, launches
    )


# Reduction of a timeline to fit a page: single rows where there is room, elsewhere sums of many.
#
# A page holds a few million rows. Of a longer recording, the windows with most rows are kept
# whole; between them each run of rows becomes one, with their busy time and the name of the
# longest.

MOST_WORK, MOST_OTHER = 2_500_000, 150_000
"""Rows of GPU work and CUDA calls, and of everything else, that a page gets singly."""
_WORK = ("operations", "calls")
_WINDOWS = 512
_LEAST_RUN, _MOST_RUNS = 16, 50_000


@record
class Leaves(Timed):
    """Rows of a track, singly or in runs: one row per leaf, in order of time.

    `first` is the first track row of each leaf, which ends before that of the next leaf; a slice
    where each row is a leaf. `name` is that of its longest row, `busy_ns` the total duration of its
    rows.
    """

    track: Track
    first: Integers | slice
    start_ns: Integers
    end_ns: Integers
    name: RowNumbers
    busy_ns: Integers

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def summed(self) -> bool:
        """Whether some leaves stand for several rows."""
        return len(self) < len(self.track)

    @property
    def count(self) -> Integers:
        """Number of track rows in each leaf."""
        if isinstance(self.first, slice):
            return constant(1, len(self), np.int64)
        return np.diff(np.append(self.first, len(self.track)))

    def sums(self, values: Integers) -> Integers:
        """The sum of `values`, one per track row, over each leaf."""
        if isinstance(self.first, slice):
            return values
        return np.add.reduceat(values, self.first)

    def busy_by_class(self, classes: Array) -> dict[int, Integers]:
        """Duration of the rows of each leaf by class; `classes` has the class of each name."""
        same = self.track.class_of_all(classes)
        if same is not None:
            return {same: self.busy_ns}
        of_row, duration = classes[self.track.name], self.track.duration_ns
        every = groups.different(of_row).tolist()
        return {kind: self.sums(np.where(of_row == kind, duration, 0)) for kind in every}


FIRST_STEPS = 3
"""Steps that a page shows at first."""
_MARGIN_OF_STEPS, _MARGIN = 0.04, 0.02


class OpeningWindow(NamedTuple):
    """The window that a page shows at first, and what of it has all rows."""

    shown: tuple[int, int]
    whole: Intervals


def opening_window(timeline: Timeline) -> OpeningWindow:
    """Steps in the middle of the run, else all GPU work, of which only the busiest windows have
    every row."""
    steps = next((lane.tracks[0] for lane in timeline.lanes if lane.kind == "steps"), None)
    if steps and len(steps) > FIRST_STEPS + 2:
        steady = np.flatnonzero(timeline.names.classes[steps.name] == NUMBER["step"])
        row = int(max(steady[steady <= len(steps) // 2].max(initial=1), 1))
        start, end = steps.start_ns[row : row + FIRST_STEPS], steps.end_ns[row : row + FIRST_STEPS]
        first, last = int(start[0]), int(end[-1])
        # Steps of two loops may lie far apart.
        if 0 < last - first < 3 * FIRST_STEPS * int(end[0] - start[0]):
            first, last = _widened(first, last, _MARGIN_OF_STEPS)
            return OpeningWindow((first, last), intervals.union(*np.array([[first], [last]])))
    worked = [track for track in timeline.tracks if track.content == "operations"]
    first = min((int(track.start_ns[0]) for track in worked), default=timeline.start_ns)
    last = max((int(track.end_ns[-1]) for track in worked), default=timeline.end_ns)
    shown = _widened(first, last, _MARGIN) if worked else (first, last)
    return OpeningWindow(shown, intervals.EMPTY)


def _widened(first: int, last: int, margin: float) -> tuple[int, int]:
    more = round((last - first) * margin)
    return first - more, last + more


def leaves(timeline: Timeline, opening: OpeningWindow) -> list[Leaves]:
    """The leaves of each track of a timeline, in the order of its tracks."""
    tracks, kept = list(timeline.tracks), opening.whole
    work = within([track for track in tracks if track.content in _WORK], MOST_WORK, kept)
    other = within([track for track in tracks if track.content not in _WORK], MOST_OTHER, kept)
    of_track = {id(leaves.track): leaves for leaves in (*work, *other)}
    return [of_track[id(track)] for track in tracks]


def within(tracks: Sequence[Track], most: int, kept: Intervals) -> list[Leaves]:
    """The leaves of tracks, with about `most` single rows: short tracks whole, others in part.

    All rows within `kept` are single."""
    if sum(map(len, tracks)) <= most:
        return [single(track) for track in tracks]
    limit = _longest_whole(list(map(len, tracks)), most // 2)
    long = [track for track in tracks if len(track) > limit]
    short = sum(len(track) for track in tracks if len(track) <= limit)
    densest_ones = densest(long, most - short)
    windows = intervals.union(*map(np.concatenate, zip(densest_ones, kept, strict=True)))
    rows = sum(map(len, long))
    run = max(_LEAST_RUN, -(-rows // _MOST_RUNS))
    return [
        single(track) if len(track) <= limit else in_runs(track, windows, run) for track in tracks
    ]


def _longest_whole(lengths: Iterable[int], most: int) -> int:
    """The length up to which tracks stay whole, so that they have at most `most` rows together."""
    total, longest = 0, 0
    for length in sorted(lengths):
        total += length
        if total > most:
            break
        longest = length
    return longest


def densest(tracks: Sequence[Track], most: int) -> Intervals:
    """The windows with most rows, up to `most` rows in all, of _WINDOWS equal windows."""
    first = min(int(track.take(slice(0, 1)).start_ns[0]) for track in tracks)
    last = max(int(track.take(slice(len(track) - 1, None)).start_ns[0]) for track in tracks) + 1
    edges = np.linspace(first, last, _WINDOWS + 1).astype(np.int64)
    rows = sum(np.diff(track.starting_before(edges)) for track in tracks)
    order = np.argsort(-np.asarray(rows), kind="stable")
    kept = np.sort(order[: int(np.searchsorted(np.cumsum(np.asarray(rows)[order]), most, "right"))])
    return intervals.union(edges[kept], edges[kept + 1])


def single(track: Track) -> Leaves:
    """The leaves of a track, one per row."""
    start, end = track.start_ns, track.end_ns
    return Leaves(track, slice(None), start, end, track.name, end - start)


def in_runs(track: Track, whole: Intervals, run: int) -> Leaves:
    """The leaves of a track: one per row that starts within `whole`, a union, and one per run of
    at most `run` others."""
    edges = track.starting_before(np.stack((whole.start, whole.end), axis=1).ravel())
    stretches = pairwise([0, *edges.tolist(), len(track)])
    first = np.concatenate(
        [np.arange(a, b, (run, 1)[n % 2]) for n, (a, b) in enumerate(stretches) if a < b]
    )
    start, end = track.start_ns, track.end_ns
    duration = end - start
    # The row number of the longest row of each leaf.
    bits = max(len(duration), 1).bit_length()
    key = np.minimum(duration, 1 << (62 - bits))
    key <<= bits
    key |= np.arange(len(duration), dtype=np.int32)
    longest: Integers = np.maximum.reduceat(key, first) & ((1 << bits) - 1)
    return Leaves(
        track,
        first,
        start[first],
        np.maximum.reduceat(end, first),
        track.take(longest).name,
        np.add.reduceat(duration, first),
    )
