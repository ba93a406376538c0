"""Render the results of a benchmark as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from surroundings import sentence
from tools import OURS

Trace = Mapping[str, Any]
_HEAD = ("trace", "tool", "wall s", "least", "CPU s", "peak MiB", "sums of kernels")


def markdown(found: Mapping[str, Any]) -> str:
    traces = found["traces"]
    plain = [trace for trace in traces if trace["shape"] == "plain"]
    parts = [
        f"{sentence(found['machine'])}. Medians of {found['runs']}.",
        f"`traceview --help` takes {_median(found['help_s']):.2f} s.",
        _table(_HEAD, (row for trace in traces for row in _cells(trace))),
        "Times as long as `traceview report`, the whole of it:",
        _table(*_ratios(traces)),
        "Linear? Time of `traceview report` by kernel:",
        _table(*_linearity(plain)),
        _steepness(plain),
        "Beside the cost of the bytes alone, the file in the cache of the system:",
        _table(*_bytes(traces)),
    ]
    return "\n\n".join(part for part in parts if part)


def rows_of(trace: Trace) -> Iterator[str]:
    """The lines of the first table for one trace."""
    return (_line(cells) for cells in _cells(trace))


def wall_s(trace: Trace, tool: str) -> float | None:
    """The median; None for a tool that was skipped."""
    return next((_median(t["wall_s"]) for t in trace["tools"] if t["tool"] == tool), None)


def _cells(trace: Trace) -> Iterator[tuple[str, ...]]:
    for tool in trace["tools"]:
        wall = tool["wall_s"]
        figures = (f"{_median(wall):.2f}", f"{min(wall):.2f}", f"{_median(tool['cpu_s']):.2f}")
        peak = f"{max(tool['peak_mib']):.0f}"
        yield (_named(trace), tool["tool"], *figures, peak, tool["sums"])


def _named(trace: Trace) -> str:
    return f"{trace['kernels']:,}{'' if trace['shape'] == 'plain' else ' ' + trace['shape']}"


def _ratios(traces: Sequence[Trace]) -> tuple[Sequence[str], Iterator[tuple[str, ...]]]:
    others = list(
        dict.fromkeys(
            tool["tool"]
            for trace in traces
            for tool in trace["tools"]
            if not tool["tool"].startswith(OURS)
        )
    )
    rows = (
        (_named(trace), *(_times(wall_s(trace, tool), wall_s(trace, OURS)) for tool in others))
        for trace in traces
    )
    return ("trace", *others), rows


def _times(theirs: float | None, ours: float | None) -> str:
    return f"{theirs / ours:.1f}" if theirs is not None and ours else ""


def _linearity(traces: Sequence[Trace]) -> tuple[Sequence[str], Iterator[tuple[str, ...]]]:
    """Growth of the time, with and without that of the shortest trace, which is start-up."""
    start_up = min((wall_s(trace, OURS) or 0.0 for trace in traces), default=0.0)
    rows = (
        (
            _named(trace),
            f"{1e6 * wall / trace['kernels']:.2f}",
            f"{1e6 * (wall - start_up) / trace['kernels']:.2f}",
        )
        for trace in traces
        if (wall := wall_s(trace, OURS)) is not None
    )
    return ("kernels", "µs a kernel", f"less {start_up:.2f} s of start-up"), rows


def _steepness(traces: Sequence[Trace]) -> str:
    """Greatest ÷ least time per kernel, over traces whose time is not mostly start-up."""
    long = [trace for trace in traces if trace["kernels"] >= 100_000]
    if len(long) < 2:
        return ""
    start_up = min(wall_s(trace, OURS) or 0.0 for trace in traces)
    said = []
    for less, name in ((0.0, "whole"), (start_up, "less start-up")):
        each = [((wall_s(trace, OURS) or 0.0) - less) / trace["kernels"] for trace in long]
        said.append(f"{name} {max(each) / min(each):.2f}" if min(each) > 0 else f"{name} unknown")
    return f"Greatest by least from {long[0]['kernels']:,} kernels on: {', '.join(said)}."


def _bytes(traces: Sequence[Trace]) -> tuple[Sequence[str], Iterator[tuple[str, ...]]]:
    head = ("trace", "MB", "`cat` s", "numpy sum s", "report s", "report MB/s", "times `cat`")
    return head, (_bytes_of(trace) for trace in traces)


def _bytes_of(trace: Trace) -> tuple[str, ...]:
    size, wall = trace["file_bytes"] / 1e6, wall_s(trace, OURS) or float("nan")
    cat, added = _median(trace["cat_s"]), _median(trace["numpy_s"])
    times = (f"{cat:.3f}", f"{added:.3f}", f"{wall:.2f}", f"{size / wall:.0f}", f"{wall / cat:.0f}")
    return (_named(trace), f"{size:.0f}", *times)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    return "\n".join([_line(head), "|" + "---|" * len(head), *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
