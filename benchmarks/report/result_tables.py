"""Render the results of tool_comparison.py as Markdown tables.

    python -m benchmarks.report.result_tables RESULTS.json [--into docs/performance.md]

Without --into the tables are printed; with it they take the place of those in the page.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report.compared_tools import OURS
from benchmarks.report.machine import sentence

Trace = Mapping[str, Any]
_HEAD = ("trace", "tool", "runs", "wall s", "least", "CPU s", "peak MiB", "sums of kernels")
_TEXTS = (0, 1, len(_HEAD) - 1)
UNUSABLE = ("failed", "wrong")
"""Why a tool that ran has no time: a command failed, or its answers differ from those of SQLite."""
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"


def markdown(results: Mapping[str, Any]) -> str:
    traces = [trace for trace in results["traces"] if trace["tools"]]
    plain = [trace for trace in traces if trace["shape"] == "plain"]
    help_s = _median(results["help_s"])
    parts = [
        f"{sentence(results['machine'])}. `traceview --help` takes {help_s:.2f} s.",
        "Seconds from start to exit, medians of as many runs as the first line says:",
        _table(*_seconds(traces)),
        "Times as long as `traceview report`, the whole of it, as text:",
        _table(*_ratios(traces)),
        "Linear? Time of `traceview report` by kernel:",
        _table(*_linearity(plain)),
        _steepness(plain),
        "Beside the cost of the bytes alone, the file in the cache of the system:",
        _table(*_bytes(traces)),
        "<details><summary>All figures</summary>",
        _table(_HEAD, (row for trace in traces for row in _cells(trace)), _TEXTS),
        "</details>",
    ]
    return "\n\n".join(part for part in parts if part)


def rows_of(trace: Trace) -> list[str]:
    """The lines of the last table for one trace."""
    return [_line(cells) for cells in _cells(trace)]


def wall_s(trace: Trace, tool: str) -> float | None:
    """The median; None for a tool that was skipped."""
    row = _row(trace, tool)
    return _median(row["wall_s"]) if "wall_s" in row else None


def _row(trace: Trace, tool: str) -> Mapping[str, Any]:
    return next((row for row in trace["tools"] if row["tool"] == tool), {})


def _cells(trace: Trace) -> Iterator[tuple[str, ...]]:
    for tool in trace["tools"]:
        name = (_named(trace), tool["tool"])
        if "wall_s" not in tool:
            yield (*name, "", _without(tool), "", "", "", "")
            continue
        wall = tool["wall_s"]
        figures = (f"{_median(wall):.2f}", f"{min(wall):.2f}", f"{_median(tool['cpu_s']):.2f}")
        yield (*name, str(len(wall)), *figures, f"{max(tool['peak_mib']):.0f}", tool["sums"])


def _without(row: Mapping[str, Any]) -> str:
    return next((reason for reason in UNUSABLE if reason in row), str(row.get("left_out", "")))


def _seconds(traces: Sequence[Trace]) -> tuple[Sequence[str], Iterator[tuple[str, ...]]]:
    """One line per trace and one column per tool, after the number of runs of each."""

    def lines() -> Iterator[tuple[str, ...]]:
        yield ("runs", *(_runs(traces, tool) for tool in tools))
        for trace in traces:
            cells = (_row(trace, tool) for tool in tools)
            yield (_named(trace), *map(_cell, cells))

    tools = _tools(traces)
    return ("trace", *tools), lines()


def _cell(row: Mapping[str, Any]) -> str:
    return f"{_median(row['wall_s']):.2f}" if "wall_s" in row else _without(row)


def _runs(traces: Sequence[Trace], tool: str) -> str:
    rows = (_row(trace, tool) for trace in traces)
    runs = sorted({len(row["wall_s"]) for row in rows if "wall_s" in row})
    return " to ".join(map(str, dict.fromkeys((runs[0], runs[-1])))) if runs else ""


def _tools(traces: Sequence[Trace]) -> list[str]:
    return list(dict.fromkeys(row["tool"] for trace in traces for row in trace["tools"]))


def _named(trace: Trace) -> str:
    return f"{trace['kernels']:,}{'' if trace['shape'] == 'plain' else ' ' + trace['shape']}"


def _ratios(traces: Sequence[Trace]) -> tuple[Sequence[str], Iterator[tuple[str, ...]]]:
    others = [tool for tool in _tools(traces) if tool != OURS]
    rows = (
        (_named(trace), *(_times(wall_s(trace, tool), wall_s(trace, OURS)) for tool in others))
        for trace in traces
    )
    return ("trace", *others), rows


def _times(theirs: float | None, ours: float | None) -> str:
    if theirs is None or not ours:
        return ""
    return f"{theirs / ours:.{2 if theirs < 10 * ours else 1}f}"


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
    return ("kernels", "µs per kernel", f"less {start_up:.2f} s of start-up"), rows


def _steepness(traces: Sequence[Trace]) -> str:
    """Greatest ÷ least time per kernel, over traces whose time is not mostly start-up."""
    long = [trace for trace in traces if trace["kernels"] >= 100_000]
    if len(long) < 2:
        return ""
    start_up = min(wall_s(trace, OURS) or 0.0 for trace in traces)
    figures = []
    for less, name in ((0.0, "whole"), (start_up, "less start-up")):
        each = [((wall_s(trace, OURS) or 0.0) - less) / trace["kernels"] for trace in long]
        ratio = f"{max(each) / min(each):.2f}" if min(each) > 0 else "unknown"
        figures.append(f"{name} {ratio}")
    return f"Greatest by least from {long[0]['kernels']:,} kernels on: {', '.join(figures)}."


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


def _table(
    head: Sequence[str], rows: Iterator[tuple[str, ...]], texts: Sequence[int] = (0,)
) -> str:
    """A table whose columns are numbers, on the right, but for `texts`."""
    ruler = ("---|" if column in texts else "---:|" for column in range(len(head)))
    return "\n".join([_line(head), "|" + "".join(ruler), *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def into(page: str, tables: str) -> str:
    """The page with these tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"the page lacks {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Results of a benchmark as Markdown.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--into", type=Path, metavar="PAGE.md")
    options = parser.parse_args()
    tables = markdown(json.loads(options.results.read_text("utf-8")))
    if options.into:
        options.into.write_text(into(options.into.read_text("utf-8"), tables), "utf-8")
    else:
        print(tables)


if __name__ == "__main__":
    main()
