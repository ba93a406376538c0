"""The scoreboard as text, which the terminal, Markdown and the page lay out."""

from __future__ import annotations

from collections.abc import Iterator

from traceview import units
from traceview.analyses.verdict import Scoreboard
from traceview.records import record

_LAUNCH = {
    "gpu-bound": ("GPU-bound", "the CPU launches ahead"),
    "launch-bound": ("launch-bound", "the GPU waits for the CPU to launch work"),
    "data-loading": ("data-bound", "the CPU loads data, then launches late"),
    "sync-drained": ("drained", "the CPU waits, then the GPU runs dry"),
    "queue-full": ("GPU-bound", "the launch queue is full"),
    "unknown": ("unknown", "work was launched that was not recorded"),
    "mixed": ("mixed", "the GPU runs dry for several reasons"),
}
"""Value and detail to show for each verdict on run-ahead."""


@record
class ScoreTile:
    """One figure: name, value, and a detail such as its whole. `field` is its Scoreboard field."""

    field: str
    name: str
    value: str
    detail: str = ""


def tiles(board: Scoreboard) -> tuple[ScoreTile, ...]:
    """GPU busy, step, launches, communication, copies and memory peak, each as text."""
    return tuple(_tiles(board))


def _tiles(board: Scoreboard) -> Iterator[ScoreTile]:
    steady = f"of {units.duration(board.steady_ns)}" if board.steady_ns else ""
    most = f"{steady}, GPU {board.device_id} of {board.devices}" if board.devices > 1 else steady
    lost = board.launch == "unknown"
    busy = "unknown" if lost else units.percent(board.gpu_busy_pct)
    yield ScoreTile("gpu_busy_pct", "GPU busy", busy, most)
    of = f"median of {units.count(board.steps)}" if board.steps else "no steps found"
    yield ScoreTile("step_median_ns", "Step", units.duration(board.step_median_ns), of)
    # Without any recorded GPU work, it is unknown whether there was communication or a copy.
    none = "none" if board.gpu_busy_pct is not None or lost else units.ABSENT
    launch, how = _LAUNCH.get(board.launch or "", (units.ABSENT, ""))
    yield ScoreTile("launch", "Launches", launch, how)
    for field, name, ns, pct in (
        ("communication_pct", "Communication", board.communication_ns, board.communication_pct),
        ("copies_pct", "Copies", board.copies_ns, board.copies_pct),
    ):
        value = units.percent(pct) if ns is not None else none
        exposed = f"{units.duration(ns)} exposed" if ns else "all hidden"
        yield ScoreTile(field, name, value, "" if ns is None else exposed)
    peak, total = board.memory_peak_bytes, board.memory_total_bytes
    if peak is None:
        yield ScoreTile("memory_peak_bytes", "Memory peak", "not recorded")
    else:
        of = f"of {units.size(total)}" if total else "allocated"
        yield ScoreTile("memory_peak_bytes", "Memory peak", units.size(peak), of)
