"""Draw the results of tool_comparison.py: wall time over kernels, on logarithmic axes.

python -m benchmarks.report.chart RESULTS.json docs/performance.svg
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.report.compared_tools import NSYS, NSYS_AI, NSYS_AI_DIRECT, OURS, PANDAS
from benchmarks.report.machine import sentence
from benchmarks.report.result_tables import wall_s

matplotlib.use("svg")
COLORS = {OURS: "#0b6e4f", NSYS: "#b3541e", NSYS_AI: "#6a4c93", PANDAS: "#4a6fa5"}
COLORS[NSYS_AI_DIRECT] = "#b58bd6"
BYTES = "the bytes alone (cat)"
INK, QUIET = "#1c1c1c", "#767676"


def draw(results: Mapping[str, Any]) -> str:
    """The results as an SVG; the same figures give the same bytes."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "traceview", "font.size": 10}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(8, 5), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        _lines(axes, [trace for trace in results["traces"] if trace["shape"] == "plain"])
        _dress(axes)
        figure.supxlabel(_wrapped(sentence(results["machine"])), fontsize=6.5, color=QUIET)
        written = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", metadata=nothing)
    # Matplotlib ends lines with a blank, which text tools remove.
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def _lines(axes: Axes, traces: list[Mapping[str, Any]]) -> None:
    for tool, color in COLORS.items():
        points = [(t["kernels"], wall) for t in traces if (wall := wall_s(t, tool)) is not None]
        if points:
            _line(axes, tool, points, color, width=2.4 if tool == OURS else 1.4)
    cats = [(t["kernels"], sorted(t["cat_s"])[len(t["cat_s"]) // 2]) for t in traces]
    _line(axes, BYTES, cats, QUIET, width=1.0, style="--")


def _line(
    axes: Axes,
    name: str,
    points: list[tuple[int, float]],
    color: str,
    *,
    width: float,
    style: str = "-",
) -> None:
    kernels, seconds = zip(*points, strict=True)
    shown = f"{name}: {seconds[-1]:.2g} s for {kernels[-1]:,}"
    axes.plot(
        kernels,
        seconds,
        style,
        marker="o",
        markersize=4,
        color=color,
        linewidth=width,
        label=shown,
    )


def _dress(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title("Wall time of a whole report, start to exit", loc="left", color=INK)
    axes.set_xlabel("kernels in the trace", color=INK)
    axes.set_ylabel("seconds", color=INK)
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    axes.grid(True, which="major", color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _wrapped(text: str) -> str:
    head, _, tail = text.partition("; load")
    return f"{head}\nload{tail}"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text("utf-8"))), "utf-8")
