"""What happened in a window of a recording: per GPU, by kernel, by API call, by line of Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from traceview.base import groups, intervals
from traceview.base.errors import InputError, suggestion
from traceview.base.tables import Cell, Integers, Texts
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.analyses.base import Result
from traceview.traces.facts.idle.gaps import busy, every_gap
from traceview.traces.facts.kernel_classes import kernel_labels
from traceview.traces.facts.operations import gpu_cells
from traceview.traces.facts.samples import stack_lines
from traceview.traces.reporting import Report
from traceview.traces.trace import Trace

Document = dict[str, Any]


def window_of(trace: Trace, start_ns: int, end_ns: int, most: int) -> Document:
    """What ran and waited between two times, clipped to them, the `most` longest of each kind.

    Raises InputError if the window is empty or lies outside the recording.
    """
    gaps, first, last = every_gap(trace), *_ends(trace)
    if start_ns >= end_ns or end_ns <= first or start_ns >= last:
        raise InputError(
            f"the window {start_ns} to {end_ns} holds nothing",
            f"the recording reaches from {first} to {last} ns",
        )
    window = intervals.union(np.array([start_ns]), np.array([end_ns]))
    idle_ns = intervals.overlap(window, gaps.start_ns, gaps.end_ns)
    return {
        "start_ns": start_ns,
        "end_ns": end_ns,
        "gpus": [
            {
                **gpu_cells(trace, device),
                "busy_ns": intervals.intersection(work, window).total(),
                "idle_ns_by_cause": {
                    cause: int(time)
                    for cause, time in zip(
                        CAUSE_NAMES,
                        np.bincount(
                            gaps.cause,
                            np.where(gaps.device == device, idle_ns, 0),
                            len(CAUSE_NAMES),
                        ),
                        strict=True,
                    )
                    if time
                },
            }
            for device, work in busy(trace).items()
        ],
        "kernels": _longest(trace, "kernels", kernel_labels, window, most),
        "calls": _longest(
            trace, "api_calls", lambda of: of.recorded("api_calls").texts("name"), window, most
        ),
        "python_lines": [*_lines(trace, start_ns, end_ns, most)],
    }


def step_of(report: Report, name: str, most: int) -> Document:
    """A step beside the median one, and its window. Raises InputError if there is none so named."""
    outcome = report.outcomes.get("steps")
    rows = [*outcome.tables["steps"].rows()] if isinstance(outcome, Result) else []
    names = [str(row["step"]) for row in rows]
    if name not in names or report.recording is None:
        raise InputError(f"no step is named {name!r}", suggestion(name, names))
    row = rows[names.index(name)]
    # A step lasts from the end of the GPU work of the one before to the end of its own.
    end_ns = _whole(row["cpu_start_ns"]) + _whole(row["cpu_ns"]) + _whole(row["lead_ns"])
    duration_ns = _whole(row["duration_ns"])
    like = sorted(_whole(each["duration_ns"]) for each in rows if each["series"] == row["series"])
    return {
        "step": row,
        "median_step_ns": like[len(like) // 2],
        "window": window_of(report.recording, end_ns - duration_ns, end_ns, most),
    }


def _whole(value: Cell) -> int:
    return int(value or 0)


def _ends(trace: Trace) -> tuple[int, int]:
    tables = [trace.recorded(name) for name in ("kernels", "copies", "sets", "api_calls", "ranges")]
    filled = [table for table in tables if len(table)]
    first = min((int(table["start_ns"].min()) for table in filled), default=0)
    return first, max((int(table["end_ns"].max()) for table in filled), default=0)


def _longest(
    trace: Trace, name: str, texts_of: Any, window: intervals.Intervals, most: int
) -> list[Document]:
    table, texts = trace.recorded(name), texts_of(trace)
    time = intervals.overlap(window, table["start_ns"], table["end_ns"])
    rows = np.flatnonzero(time)
    each = groups.group(texts.codes[rows])
    sums, calls = groups.sums(each, time[rows]), groups.count(each)
    named = texts.take(rows[each.first])
    return [
        {"name": named[place], "calls": int(calls[place]), "time_ns": int(sums[place])}
        for place in np.argsort(-sums, kind="stable")[:most].tolist()
    ]


def _lines(trace: Trace, start_ns: int, end_ns: int, most: int) -> Iterator[Document]:
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    inside = (samples["time_ns"] >= start_ns) & (samples["time_ns"] < end_ns)
    if not inside.any():
        return
    frame: Integers = stack_lines(trace).frame[samples["stack"][inside]]
    frame = frame[frame >= 0]
    files: Texts = frames.texts("file")
    each = groups.group(files.codes[frame], frames["line"][frame])
    count = groups.count(each)
    for place in np.argsort(-count, kind="stable")[:most].tolist():
        row = int(frame[each.first[place]])
        function, source = frames.texts("function")[row], frames.texts("source")[row]
        yield {
            "file": files[row],
            "line": int(frames["line"][row]),
            "function": function,
            "source": source,
            "samples": int(count[place]),
        }
