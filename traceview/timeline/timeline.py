"""The timeline of a trace: all lanes and counters on one clock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from traceview.records import record
from traceview.timeline.counters import Counter, counters
from traceview.timeline.lanes import Lane
from traceview.timeline.names import RowNames
from traceview.timeline.run_lanes import phase_lanes, step_lanes
from traceview.timeline.stream_lanes import (
    LaunchConfigurations,
    idle_lanes,
    launch_configurations,
    migration_lanes,
    stream_lanes,
)
from traceview.timeline.thread_lanes import thread_lanes
from traceview.timeline.tracks import Track
from traceview.trace import Trace


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


def timeline(trace: Trace, most_points: int | None = None) -> Timeline:
    """The timeline of the whole recording, whatever is selected.

    With `most_points`, counters with more points are reduced to that many.
    """

    def counted_points() -> tuple[Counter, ...]:
        return tuple(each.reduced(most_points) if most_points else each for each in counters(trace))

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
