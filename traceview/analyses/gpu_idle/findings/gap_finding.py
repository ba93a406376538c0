"""A finding for some idle gaps of one GPU, and which GPU that is.

GPUs that idle at the same time lose the time of the program once. So the time at stake is that of
one GPU, and a share of its own steady time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from traceview import units
from traceview.analyses.lost_time import lost_in
from traceview.facts.idle.gaps import device_work, gaps, steady_spans_ns
from traceview.facts.idle.typical import typical_gap
from traceview.findings import Evidence, Finding, Severity, share_pct
from traceview.rules.gpus import gpu_name, gpu_subject
from traceview.tables import Cell, Mask
from traceview.trace import Trace
from traceview.vocabulary.causes import CAUSE_NAMES

# Message and action of a finding while they are put together.

_LEAST_PART = 0.02


@dataclass
class Wording:
    """Message and action of a finding while they are put together, with their evidence values."""

    template: str
    remedy: str
    values: dict[str, Cell] = field(default_factory=dict)
    names_part: bool = False
    """Whether a sentence names less than all of the idle time: "of that" would refer to it."""

    def add(self, sentence: str, **values: Cell) -> None:
        """Append a sentence, which starts with a blank, and its values."""
        self.template += sentence
        self.values.update(values)

    def add_part(self, name: str, part_ns: int, rest: str, **values: Cell) -> None:
        """Append a sentence on a part of the idle time: `147 ms of that` and the rest.

        Words replace the number where it would read the same as the whole. A part that is too small
        is left out.
        """
        whole = self.values["idle_ns"]
        if part_ns < _LEAST_PART * int(whole or 0):
            return
        self.names_part |= part_ns != whole
        what = f"{{{name}}} of that"
        if part_ns == whole:
            what = "All of it"
        elif units.quantity(name, part_ns) == units.quantity(name, whole):
            what = "Nearly all of it"
        self.add(f" {what} {rest}", **{name: part_ns}, **values)


class LostIdle(NamedTuple):
    """Idle time of one GPU (row in devices): the gaps, and how much of their time counts."""

    device: int
    gaps: Mask
    idle_ns: int


class Shown(NamedTuple):
    """The evidence of a finding: cells of a table row, and a part of a gap, or a typical one."""

    table: str
    row: dict[str, Cell]
    gap: int | None = None


def opening_sentence(trace: Trace, idle: LostIdle, lost: str, action: str) -> Wording:
    """`The GPU sat idle for 147 ms (135 gaps) waiting …`; GPUs are numbered if several worked."""
    device, own, idle_ns = idle
    gpu = "The GPU" if len(device_work(trace)) == 1 else gpu_name(trace, device)
    values: dict[str, Cell] = {"idle_ns": idle_ns, "gaps": gaps(trace).count(own)}
    # Rare samples stand for gaps without samples too, whose number is unknown.
    counted = " ({gaps:gap})" if gaps(trace).idle_ns[own].sum() >= idle_ns else ""
    return Wording(f"{gpu} sat idle for {{idle_ns}}{counted} {lost}.", action, values)


def gap_finding(
    trace: Trace, severity: Severity, wording: Wording, idle: LostIdle, shown: Shown
) -> Finding:
    """The finding for some gaps of one GPU; its window is the gap that shows it.

    Time of warm-up is not part of a step.
    """
    every, (device, own, idle_ns) = gaps(trace), idle
    table, row, gap = shown
    if gap is None and (own & ~every.one_time).any():
        gap = typical_gap(trace, every, own)
    elif gap is None:
        gap = int(np.argmax(np.where(own, every.idle_ns, -1)))
    start_ns, end_ns = int(every.start_ns[gap]), int(every.end_ns[gap])
    steady = not every.one_time[gap]
    return Finding(
        severity,
        wording.template,
        wording.remedy,
        idle_ns,
        gpu_subject(trace, device),
        Evidence(wording.values, table, row, start_ns, end_ns),
        share_pct(idle_ns, steady_spans_ns(trace)[device]) if steady else None,
        CAUSE_NAMES[every.cause[gap]] if steady else "",
        lost_in(every, own) if steady else None,
    )


def most_idle(trace: Trace, chosen: Mask) -> tuple[int, int]:
    """The GPU (row in devices) that idled longest in the chosen gaps, and its time there."""
    every = gaps(trace)
    idle = {
        device: int(every.idle_ns[chosen & (every.device == device)].sum())
        for device in steady_spans_ns(trace)
    }
    device = max(idle, key=lambda each: idle[each], default=-1)
    return device, idle.get(device, 0)
