"""The timeline of a trace: all lanes and counters on one clock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from traceview import groups
from traceview.analyses.phases.phases import Phase, phases
from traceview.facts.steps.steps import pace, steps
from traceview.records import record
from traceview.tables import Texts, object_array
from traceview.timeline import stream_lanes
from traceview.timeline.counters import Counter, counters
from traceview.timeline.names import FIRST_PHASE, NUMBER, RowNames
from traceview.timeline.stream_lanes import LaunchConfigurations
from traceview.timeline.thread_lanes import thread_lanes
from traceview.timeline.tracks import Lane, Track, spread
from traceview.trace import Trace

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


def timeline(trace: Trace, most_points: int | None = None) -> Timeline:
    """The timeline of the whole recording, whatever is selected.

    With `most_points`, counters with more points are reduced to that many.
    """

    def counted_points() -> tuple[Counter, ...]:
        return tuple(
            counter.reduced(most_points) if most_points else counter for counter in counters(trace)
        )

    with ThreadPoolExecutor(1) as pool:
        # Counters do not depend on the lanes.
        counting = pool.submit(counted_points)
        names, launches = RowNames(), stream_lanes.launch_configurations(trace)
        lanes = (
            *step_lanes(trace, names),
            *phase_lanes(trace, names),
            *thread_lanes(trace, names),
            *stream_lanes.idle_lanes(trace, names),
            *stream_lanes.stream_lanes(trace, names, launches),
            *stream_lanes.migration_lanes(trace, names),
        )
    lanes, counted = tuple(lane for lane in lanes if lane.rows), counting.result()
    tracks = [track for lane in lanes for track in lane.tracks]
    starts = [int(track.take(slice(0, 1)).start_ns[0]) for track in tracks]
    ends = [int(track.end_ns.max()) for track in tracks]
    times = [int(counter.time_ns[-1]) for counter in counted if len(counter.time_ns)]
    return Timeline(
        min(starts, default=0), max([*ends, *times], default=0), lanes, counted, names, launches
    )
