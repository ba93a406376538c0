"""The timelines of both sides, aligned at the start of a typical step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

import numpy as np

from traceview.comparison.extraction.window import run_window
from traceview.facts.steps.inferred import with_steps
from traceview.facts.steps.steps import pace
from traceview.records import record
from traceview.render.timeline.section import TimelineView, timeline_view
from traceview.trace import Trace


@record
class SideTimeline:
    """The timeline of one side, aligned at `anchor_ns` on the clock of its recording."""

    name: str
    title: str
    view: TimelineView
    anchor_ns: int
    length_ns: int


def side_timelines(traces: Sequence[Trace | None]) -> list[SideTimeline]:
    """The timelines of both sides; an empty list if a side has no recording to draw."""
    timelines = list(_timelines(traces))
    return timelines if len(timelines) == len(traces) else []


def _timelines(traces: Sequence[Trace | None]) -> Iterator[SideTimeline]:
    for name, recording in zip(("before", "after"), traces, strict=True):
        if recording is None:
            return
        trace = with_steps(recording)
        view = timeline_view(trace)
        if view is not None:
            title = PurePath(trace.path).name
            yield SideTimeline(name, title, view, *typical_step(trace))


def typical_step(trace: Trace) -> tuple[int, int]:
    """Start and duration of the median step, or without steps of the steady window."""
    window = run_window(trace)
    if not len(window.steps):
        return int(window.covered.start[0]), window.total_ns
    middle = int(np.argsort(window.step_ns, kind="stable")[len(window.step_ns) // 2])
    begin = pace(trace).begin_ns[window.steps[middle]]
    return int(begin), int(window.step_ns[middle])
