"""Findings of traces and kernels: what is wrong, what shows it, what to do, what that can save.

A program reads the fields; a person reads `message` and `action`, which are templates over the
evidence, so that every number in a sentence is also a named value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from traceview.base import display, intervals, units
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.units import Value

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")

SubjectKind = Literal[
    "kernel", "range", "line", "call", "stream", "process", "device", "rank", "collective",
    "recording",
]  # fmt: skip

Saving = Literal["at-most", "about", "at-least"]
"""Whether acting on a finding saves at most, about or at least the time that it names."""

Edit = Callable[[Any], None]
"""A remedy as a change of the replayed run: see facts.dependencies.replay."""

SUBJECT_KINDS: tuple[SubjectKind, ...] = get_args(SubjectKind)

LONGEST_NAME = 80
_LONGEST = {"printed": 240}
"""Of what a program printed, the cause and the line may come late."""
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

    @classmethod
    def of_line(cls, file: str, line: int) -> Subject:
        """A line of the program, named such as `train.py:31`."""
        return cls("line", f"{file.rpartition('/')[2]}:{line}", file, line)


RECORDING = Subject("recording")


@dataclass(frozen=True)
class Evidence:
    """The evidence for a finding.

    `values` are its figures; their names end in their unit, as column names do. `table` is a
    result table of the analysis and `row` the cells that identify one of its rows. `start_ns` and
    `end_ns` bound the time window that shows it, on the clock of the recording. `basis` is the
    proof of a statement about code: `recompiled with num_warps=4: 128 bits instead of 32`.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    table: str | None = None
    row: Mapping[str, Value] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int | None = None
    basis: str = ""


@record
class LostTime:
    """The intervals, disjoint and ascending, in which a device (row in devices) lost time."""

    device: int
    time: Intervals


UNEVEN = 1.5
"""Mean ÷ median step time above which savings are stated for the mean step: if every eighth step
writes a checkpoint, the median step has none."""


@record
class LoopTime:
    """The steady steps of one loop, `steps` of them.

    `time` is the union of these steps, `total_ns` their time without first uses and compilation,
    `median_ns` and `mean_ns` the time of one step. `devices` (rows in devices) run work of the
    steps. `name` is the pattern of their ranges, such as `replay_#`.
    """

    time: Intervals
    total_ns: int
    median_ns: int
    devices: frozenset[int] = frozenset()
    name: str = ""
    mean_ns: int = 0
    steps: int = 0

    @property
    def is_uneven(self) -> bool:
        """Whether the mean step takes much longer than the median step."""
        return self.mean_ns > UNEVEN * self.median_ns

    @property
    def step_ns(self) -> int:
        """The step time that savings refer to: the mean of uneven steps, else the median."""
        return self.mean_ns if self.is_uneven else self.median_ns

    def is_all_of(self, steady_ns: float) -> bool:
        """Whether its steps are all of this steady time."""
        return _ARE_ALL * steady_ns <= self.total_ns <= steady_ns / _ARE_ALL

    def is_as(self, other: LoopTime) -> bool:
        """Whether it is the other loop in another process: of one name, and about as long steps."""
        apart_ns = abs(self.step_ns - other.step_ns)
        return self.name == other.name and apart_ns <= _ALIKE * other.step_ns


_ALIKE = 0.05
"""Steps of the ranks of a job last equally long, but for where each begins."""


@dataclass(frozen=True, repr=False)
class Finding(display.Drawn):
    """What is wrong, what shows it, what to do, and how much time that can save.

    `template` is the message with the names of evidence values in braces: `{idle_ns}` becomes
    `147 ms`, `{gaps:gap}` becomes `135 gaps`, `{launches:launch|launches}` gives its own plural.
    `remedy` is the action, an imperative, in the same form. `time_at_stake_ns` is the time that
    acting on it saves, `share_of_step_pct` that time as a share (0 to 100) of the steady time of
    its GPU; None where no time is claimed, or time that is not steady. `edit` is the remedy as a
    change of the run, whose replay saves that time ± `error_ns`; both are None where nothing was
    replayed, and the time is an upper bound unless `saving` says otherwise.

    `cause` names what loses the time, such as `launch-late`, where several analyses see the same
    loss: a report keeps the severity of the largest of their findings. Empty where unknown.
    `lost` has the intervals of that time, None where the finding claims none of its own: of
    findings on mostly the same intervals, a report keeps the severity of the first. `work` has the
    intervals of the work it is about, which it does not claim. `general` is True for a finding
    that sums up a cause and names no single thing to change: one remedy seldom saves all of its
    time. `saving` says whether `time_at_stake_ns` is an estimate or a bound. `outside` is True of
    waits for what the recording does not show, as a camera or a display that sets the pace makes
    nothing faster, and of remedies that make no step shorter but let it do more, as a larger batch
    does: no saving is claimed, and none is planned. `severities` are the
    least and the most severe that it may be, whatever it saves.
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
    edit: Edit | None = field(default=None, compare=False, repr=False)
    error_ns: int | None = None
    severities: tuple[Severity, Severity] = ("info", "high")
    outside: bool = False

    @property
    def message(self) -> str:
        """The template with the values of the evidence in place."""
        return filled(self.template, self.evidence.values)

    @property
    def action(self) -> str:
        """The remedy with the values of the evidence in place."""
        return filled(self.remedy, self.evidence.values)


def field_names(template: str) -> list[str]:
    """The names in braces in a template, in order of appearance."""
    return [match[1] for match in FIELD.finditer(template)]


def prefixed(template: str, prefix: str) -> str:
    """The template with another beginning of the names in braces."""
    return FIELD.sub(lambda field: f"{{{prefix}{field[0][1:]}", template)


def filled(template: str, values: Mapping[str, Value]) -> str:
    """The template with its fields replaced by `values`; other braces stay as they are.

    `{site:at}` is the place of a line, `at train.py:31`, or in a function, `in step (train.py:9)`.
    """

    def text_of(field: re.Match[str]) -> str:
        name, one, many = field[1], field[2], field[3]
        if name not in values:
            return field[0]
        value = values[name]
        if isinstance(value, str):
            text = shortened(units.quantity(name, value), _LONGEST.get(name, LONGEST_NAME))
            at = "at" if _LINE.search(value) else "in"
            return f"{at} {text}" if one == "at" else text
        if one is not None and isinstance(value, int):
            return units.counted(value, one, many or "")
        return units.quantity(name, value)

    return FIELD.sub(text_of, template)


_LINE = re.compile(r":\d+$")


def shortened(text: str | None, limit: int = LONGEST_NAME) -> str:
    """A name from a trace, cut to `limit` characters so that it fits into a sentence."""
    text = text or ""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


HIGH, MEDIUM, LOW = 0.20, 0.05, 0.01
"""Fractions of the span from which on a loss is of high, medium and low severity."""
LEAST_HIGH_NS, LEAST_MEDIUM_NS, LEAST_LOW_NS = 1_000_000, 100_000, 10_000
"""A loss below these times is one severity less, whatever its share: nobody gains from the 1.23 µs
of a recording that lasts 5 µs. They apply to the sum over the recording: a loss of 2 µs per step
counts fully after 500 steps."""


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


_ARE_ALL, _MOSTLY = 0.95, 0.5
"""Steps are all of the steady time from the first part of it on."""


@dataclass(frozen=True)
class Forecast:
    """The time that acting on a finding saves: at most, about or at least (`saving`).

    `error_ns` is the error (±) of that time per step, or of the run without steps; None where the
    remedy was not replayed.
    `step_ns` is the median step of the loop that the finding is about, its mean where `is_mean`, or
    that of the main loop where this is the same in another process and takes about as long;
    `saved_per_step_ns` is saved in each. Both are None without steps, where the time is lost
    outside them, and where that loop has less than half of the loss and of the steady time.
    `share_of_step_pct` is the saving as a share of that step, `share_of_run_pct` of the steady
    time. `loop` names the loop unless it is the one that takes most of the time. `speedup_at_most`
    is old ÷ new time of the step, or of the run without steps; None above MOST_SPEEDUP, where
    nothing but the loss itself is left to measure. `is_partial` is True where a smaller loss is
    reported before this one, because one change seldom saves all of it, and of waits for what lies
    outside of the recording. `after_warm_up` is True of
    the run with steps, of which the first are warm-up.
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
    error_ns: int | None = None
    after_warm_up: bool = False


def forecast(
    finding: Finding, loops: Sequence[LoopTime] = (), when: LostTime | None = None
) -> Forecast | None:
    """The forecast for a finding that claims a share of the steady time; None for any other.

    `when` is the steady time that the finding is about, None where that is all of it. The forecast
    is for the loop with most of that time, and only what lies within its steps counts. If that is
    less than half, and the loop runs for less than half of the steady time, or if it is next to
    nothing, the forecast is for the whole run. By Amdahl's law, removing a loss of the fraction f
    makes the loop or the run at most 1 / (1 - f) times as fast.
    """
    share = finding.share_of_step_pct
    if not finding.time_at_stake_ns or share is None:
        return None
    of_run = Forecast(
        None,
        None,
        _speedup(share),
        finding.saving,
        share_of_run_pct=share,
        error_ns=finding.error_ns,
        after_warm_up=bool(loops),
    )
    if not loops:
        return of_run
    loop, part = loops[0], 1.0
    if when and (whole_ns := when.time.total()):
        candidates = [one for one in loops if when.device in one.devices] or loops
        inside = [intervals.intersection(one.time, when.time).total() for one in candidates]
        loop, part = candidates[inside.index(max(inside))], max(inside) / whole_ns
    steady_ns = 100.0 * finding.time_at_stake_ns / share
    # Nor is it of a step where next to none of it is in the steps.
    most = _MOSTLY if loop.total_ns < _MOSTLY * steady_ns else 1 - _ARE_ALL
    if 0 < part < most:
        return of_run
    of_step = share
    if part < _ARE_ALL or not loop.is_all_of(steady_ns):
        # Else the steps are the steady time: a share of it is a share of a step.
        of_step = min(100.0 * part * finding.time_at_stake_ns / max(loop.total_ns, 1), 100.0)
    if not of_step:
        return replace(of_run, speedup_at_most=None)
    told = loops[0] if loop.is_as(loops[0]) else loop
    saved = min(round(told.step_ns * of_step / 100.0), finding.time_at_stake_ns)
    of_step = min(100.0 * saved / max(told.step_ns, 1), 100.0)
    error = finding.error_ns
    return Forecast(
        saved,
        told.step_ns,
        _speedup(of_step),
        finding.saving,
        share_of_step_pct=of_step,
        share_of_run_pct=share,
        loop=None if loop is loops[0] or loop.name == loops[0].name else loop.name,
        is_mean=loop.is_uneven,
        error_ns=None if error is None else round(error * saved / finding.time_at_stake_ns),
    )


def of_step(
    told: Forecast, saved_ns: int, step_ns: int, error_ns: int | None, *, per_step: bool
) -> Forecast:
    """The forecast with what a replay saves of each step, or of the run where not `per_step`."""
    share = min(100.0 * saved_ns / max(step_ns, 1), 100.0)
    if not per_step:
        return replace(
            told, share_of_run_pct=share, speedup_at_most=_speedup(share), error_ns=error_ns
        )
    return replace(
        told,
        saved_per_step_ns=saved_ns,
        step_ns=step_ns,
        share_of_step_pct=share,
        speedup_at_most=_speedup(share),
        error_ns=error_ns,
    )


def _speedup(share: float) -> float | None:
    left = 1.0 - share / 100.0
    return 1.0 / left if left * units.MOST_SPEEDUP >= 1.0 else None


# Sentences that stand whole in one place, with what depends on their figures marked in them.
#
# `{gaps:gap}` and `{idle_ns}` are fields of a finding's template (see `findings.Finding`). Three
# more forms are settled before, so that no sentence is put together elsewhere:
# `{calls?takes|take}` is the first word for one and the second for any other number, `[ of
# {dimension}]` is said only where all that it names is known, and `{line_ns/idle_ns}` is a part of
# a time: `3 ms of that`, or `All of it`.

_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_PART = re.compile(r"\{(\w+)/(\w+)\}")
_BY_NUMBER = re.compile(r"\{(\w+)\?([^{}|]*)\|([^{}]*)\}")


@record
class Clause:
    """A sentence that is said where its figures are known.

    With `least`, only where the first of them is at least that fraction of `of_ns`, a time that
    the claim has measured.
    """

    text: str
    least: float = 0.0
    of_ns: str = "total_ns"

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether to say it, by the figures of a claim."""
        names = field_names(_OPTIONAL.sub("", self.text))
        first, whole = (values.get(name) or 0 for name in (names[0], self.of_ns))
        if not self.least:
            return all(values.get(name) for name in names)
        enough = self.least * float(whole)
        return all(values.get(name) for name in names) and float(first) >= enough


def sentence(text: str, values: Mapping[str, Value]) -> str:
    """The template of a finding: `text` with its optional parts and words of number settled."""

    def part(match: re.Match[str]) -> str:
        return match[1] if all(values.get(name) for name in field_names(match[1])) else ""

    def word(match: re.Match[str]) -> str:
        return match[2] if values[match[1]] == 1 else match[3]

    def amount(match: re.Match[str]) -> str:
        time, whole = values[match[1]], values[match[2]]
        if time == whole:
            return "All of it"
        alike = units.quantity(match[1], time) == units.quantity(match[2], whole)
        return "Nearly all of it" if alike else f"{{{match[1]}}} of that"

    return _PART.sub(amount, _BY_NUMBER.sub(word, _OPTIONAL.sub(part, text)))
