"""Lanes of the run as a whole: its steps and the phases of its processes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups
from traceview.analyses.phases.phases import Phase, phases
from traceview.facts.steps.steps import pace, steps
from traceview.tables import Texts, object_array
from traceview.timeline.classes import FIRST_PHASE, NUMBER
from traceview.timeline.lanes import Lane
from traceview.timeline.names import RowNames
from traceview.timeline.tracks import Track, spread
from traceview.trace import Trace


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
    labels = Texts(every.phase.astype(np.int32), object_array([each.label for each in Phase]))
    name = names.add(labels, every.phase.astype(np.int64) + FIRST_PHASE)
    processes = groups.different(every.process).tolist()
    for process in processes:
        rows = np.flatnonzero(every.process == process)
        track = Track.of("phases", every.start_ns[rows], every.end_ns[rows], name[rows], rows)
        owner = f", process {trace.processes['process_id'][process]}" if len(processes) > 1 else ""
        yield Lane("phases", f"Phases{owner}", spread(track), process=process)
