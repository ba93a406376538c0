"""Findings of traces and kernels: what is wrong, what shows it, what to do, what that can save.

A program reads the fields; a person reads `message` and `action`, which are templates over the
evidence, so that every number in a sentence is also a named value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from traceview import display, intervals, units
from traceview.intervals import Intervals
from traceview.records import record
from traceview.units import Value

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")

SubjectKind = Literal[
    "kernel", "range", "line", "call", "stream", "process", "device", "rank", "collective",
    "recording",
]  # fmt: skip

Saving = Literal["at-most", "about", "at-least"]
"""Whether acting on a finding wins about the time that it names, or at most that."""

SUBJECT_KINDS: tuple[SubjectKind, ...] = get_args(SubjectKind)

LONGEST_NAME = 80
FIELD = re.compile(r"\{(\w+)(?::([^{}|]*)(?:\|([^{}]*))?)?\}")


@dataclass(frozen=True)
class Subject:
    """What a finding is about. `file` and `line` locate it in the user's program.

    `name` is the whole name as recorded: a kernel's, a range's, a CUDA call's; of a device
    `GPU 0`, of a line `gelu.py:31`.
    """

    kind: SubjectKind
    name: str = ""
    file: str | None = None
    line: int | None = None


RECORDING = Subject("recording")


@dataclass(frozen=True)
class Evidence:
    """What shows a finding.

    `values` are its figures, whose names end in their unit, as those of columns do. `table` is a
    result table of the analysis and `row` the cells that identify one of its rows. `start_ns` and
    `end_ns` bound the time in which it shows, on the clock of the recording. `basis` is the proof
    of a statement about code: `recompiled with num_warps=4: 128 bits instead of 32`.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    table: str | None = None
    row: Mapping[str, Value] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int | None = None
    basis: str = ""


@record
class LostTime:
    """When a device (row in devices) lost the time of a finding: disjoint times, in order."""

    device: int
    time: Intervals


UNEVEN = 1.5
"""Mean through median of steps from which on savings are those of the mean: a checkpoint in every
eighth step is no part of the median one."""


@record
class LoopTime:
    """The steady steps of one loop.

    `time` are these steps, `total_ns` how long they take without first uses and compilation,
    `median_ns` one of them, and `mean_ns` one of them where a few take most of the time. `devices`
    (rows in devices) run work of the steps. `name` is the pattern of their ranges, such as
    `replay_#`.
    """

    time: Intervals
    total_ns: int
    median_ns: int
    devices: frozenset[int] = frozenset()
    name: str = ""
    mean_ns: int = 0

    @property
    def is_uneven(self) -> bool:
        """Whether a step takes much longer on average than a usual one does."""
        return self.mean_ns > UNEVEN * self.median_ns

    @property
    def step_ns(self) -> int:
        """The time of a step that its savings are stated of."""
        return self.mean_ns if self.is_uneven else self.median_ns


@dataclass(frozen=True, repr=False)
class Finding:
    """What is wrong, what shows it, what to do, and how much time that can save.

    `template` is the message with the names of evidence values in braces: `{idle_ns}` becomes
    `147 ms`, `{gaps:gap}` becomes `135 gaps`, `{launches:launch|launches}` gives its own plural.
    `remedy` is the action, an imperative, in the same form. `time_at_stake_ns` is an upper bound
    of the time that acting on it saves, `share_of_step_pct` that time as a share (0 to 100) of the
    steady time of its GPU; None where no time is claimed, or time that is not steady.

    `cause` names what loses the time where several analyses see the same loss, such as
    `launch-late`: a report lets the largest of these findings speak. Empty where that is not known.
    `lost` is when that time passed, None where it is not time of its own: of findings on mostly the
    same time a report lets the first speak. `general` is True for a finding that sums up a cause
    and names no single thing to change: one remedy seldom wins all of its time. `saving` tells
    whether its time is an estimate or a bound.
    """

    severity: Severity
    template: str
    remedy: str
    time_at_stake_ns: int = 0
    subject: Subject = RECORDING
    evidence: Evidence = field(default_factory=Evidence)
    share_of_step_pct: float | None = None
    cause: str = ""
    lost: LostTime | None = field(default=None, compare=False)
    general: bool = False
    saving: Saving = "at-most"
    work: LostTime | None = field(default=None, compare=False)

    @property
    def message(self) -> str:
        """The template with the values of the evidence in place."""
        return filled(self.template, self.evidence.values)

    @property
    def action(self) -> str:
        """The remedy with the values of the evidence in place."""
        return filled(self.remedy, self.evidence.values)

    def __repr__(self) -> str:
        return display.text(self)

    def _repr_html_(self) -> str:
        return display.html(self)


def field_names(template: str) -> list[str]:
    """The names in braces, in order of appearance."""
    return [match[1] for match in FIELD.finditer(template)]


def filled(template: str, values: Mapping[str, Value]) -> str:
    """A template with the values of its fields; other braces stay as they are."""

    def text_of(field: re.Match[str]) -> str:
        name, one, many = field[1], field[2], field[3]
        if name not in values:
            return field[0]
        value = values[name]
        if isinstance(value, str):
            return shortened(units.quantity(name, value))
        if one is not None and isinstance(value, int):
            return units.counted(value, one, many or "")
        return units.quantity(name, value)

    return FIELD.sub(text_of, template)


def shortened(text: str | None, limit: int = LONGEST_NAME) -> str:
    """A name from a trace, cut to the length that a sentence bears."""
    text = text or ""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


HIGH, MEDIUM, LOW = 0.20, 0.05, 0.01
"""Fractions of the span from which on a loss is of high, medium and low severity."""
LEAST_HIGH_NS, LEAST_MEDIUM_NS, LEAST_LOW_NS = 1_000_000, 100_000, 10_000
"""A loss below these times is one severity less, whatever its share: nobody gains from the 1.23 µs
of a recording that lasts 5 µs. They are of the whole recording: a loss of 2 µs per step counts
fully after 500 steps."""


def severity_of(at_stake_ns: int, span_ns: int) -> Severity | None:
    """Severity of a loss by its fraction of a span of device time, and by its size.

    None below 1 % of the span. A loss is `high` from 20 % and 1 ms on, `medium` from 5 % and
    100 µs, `low` from 1 % and 10 µs, else `info`.
    """
    fraction = at_stake_ns / span_ns if span_ns else 0.0
    if fraction < LOW:
        return None
    if fraction >= HIGH and at_stake_ns >= LEAST_HIGH_NS:
        return "high"
    if fraction >= MEDIUM and at_stake_ns >= LEAST_MEDIUM_NS:
        return "medium"
    return "low" if at_stake_ns >= LEAST_LOW_NS else "info"


def share_pct(at_stake_ns: int, span_ns: int) -> float | None:
    """A time as a share of a span, in percent; None for an empty span.

    At most 100: the times of kernels that run at once add up to more than the span.
    """
    return min(100.0 * at_stake_ns / span_ns, 100.0) if span_ns > 0 else None


MOST_SPEEDUP = 100.0
_NEARLY_ALL = 0.95


@dataclass(frozen=True)
class Forecast:
    """What acting on a finding wins: at most, about or at least (`saving`).

    `saved_per_step_ns` of the `step_ns` that a step takes (median of the loop that the finding is
    about, its mean where `is_mean`), both None without steps and where the time is lost outside
    them. `share_of_step_pct` is
    the part of that step, `share_of_run_pct` that of the steady time. `loop` names the loop where
    it is not the one that takes most of the time. `speedup_at_most` is the old
    time of the step through the new, or of the run without steps; None above MOST_SPEEDUP, where
    nothing but the loss itself is left to measure. `is_partial` where a smaller loss is reported
    before this one, because one change seldom wins all of it.
    """

    saved_per_step_ns: int | None
    step_ns: int | None
    speedup_at_most: float | None
    saving: Saving = "at-most"
    is_partial: bool = False
    share_of_step_pct: float | None = None
    share_of_run_pct: float | None = None
    loop: str | None = None
    is_mean: bool = False


def forecast(
    finding: Finding, loops: Sequence[LoopTime] = (), when: LostTime | None = None
) -> Forecast | None:
    """The forecast for a finding that claims a share of the steady time; None for any other.

    `when` is the steady time that the finding is about, None where that is all of it. The forecast
    is for the loop with most of that time, and only what lies within its steps counts. By Amdahl's
    law what loses the fraction f runs at most 1 / (1 - f) times as fast without it.
    """
    share = finding.share_of_step_pct
    if not finding.time_at_stake_ns or share is None:
        return None
    if not loops:
        return Forecast(None, None, _speedup(share), finding.saving, share_of_run_pct=share)
    loop, part = _loop_of(loops, when)
    of_step = _share_of_step(finding, share, loop, part)
    if not of_step:
        return Forecast(None, None, None, finding.saving, share_of_run_pct=share)
    saved = min(round(loop.step_ns * of_step / 100.0), finding.time_at_stake_ns)
    return Forecast(
        saved,
        loop.step_ns,
        _speedup(of_step),
        finding.saving,
        share_of_step_pct=of_step,
        share_of_run_pct=share,
        loop=None if loop is loops[0] or loop.name == loops[0].name else loop.name,
        is_mean=loop.is_uneven,
    )


def _speedup(share: float) -> float | None:
    left = 1.0 - share / 100.0
    return 1.0 / left if left * MOST_SPEEDUP >= 1.0 else None


def _loop_of(loops: Sequence[LoopTime], when: LostTime | None) -> tuple[LoopTime, float]:
    """The loop with most of some time, and the fraction of that time within its steps."""
    if when is None or not when.time.total():
        return loops[0], 1.0
    there = [each for each in loops if when.device in each.devices] or loops
    inside = [intervals.intersection(each.time, when.time).total() for each in there]
    most = max(range(len(there)), key=lambda each: inside[each])
    return there[most], inside[most] / when.time.total()


def _share_of_step(finding: Finding, share: float, loop: LoopTime, part: float) -> float:
    """The share of a step, in percent, of the part of a loss that lies within the steps."""
    steady_ns = 100.0 * finding.time_at_stake_ns / share
    if part >= _NEARLY_ALL and loop.total_ns >= _NEARLY_ALL * steady_ns:
        # The steps are the steady time: a share of it is a share of a step.
        return share
    return min(100.0 * part * finding.time_at_stake_ns / max(loop.total_ns, 1), 100.0)
