"""Findings of traces and kernels: what is wrong, what shows it, what to do, what that can save.

A program reads the fields; a person reads `message` and `action`, which are templates over the
evidence, so that every number in a sentence is also a named value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from traceview import display, units
from traceview.units import Value

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")

SubjectKind = Literal[
    "kernel", "range", "line", "call", "stream", "process", "device", "rank", "collective",
    "recording",
]  # fmt: skip

SUBJECT_KINDS: tuple[SubjectKind, ...] = get_args(SubjectKind)

LONGEST_NAME = 80
_FIELD = re.compile(r"\{(\w+)(?::([^{}|]*)(?:\|([^{}]*))?)?\}")


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


@dataclass(frozen=True, repr=False)
class Finding:
    """What is wrong, what shows it, what to do, and how much time that can save.

    `template` is the message with the names of evidence values in braces: `{idle_ns}` becomes
    `147 ms`, `{gaps:gap}` becomes `135 gaps`, `{launches:launch|launches}` gives its own plural.
    `remedy` is the action, an imperative, in the same form. `time_at_stake_ns` is an upper bound
    of the time that acting on it saves, `share_of_step_pct` that time as a share (0 to 100) of the
    steady time of its GPU; None where no time is claimed.
    """

    severity: Severity
    template: str
    remedy: str
    time_at_stake_ns: int = 0
    subject: Subject = RECORDING
    evidence: Evidence = field(default_factory=Evidence)
    share_of_step_pct: float | None = None

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
    return [match[1] for match in _FIELD.finditer(template)]


def filled(template: str, values: Mapping[str, Value]) -> str:
    """A template with the values of its fields; other braces stay as they are."""

    def text_of(field: re.Match[str]) -> str:
        name, one, many = field[1], field[2], field[3]
        if name not in values:
            return field[0]
        value = values[name]
        if isinstance(value, str):
            return shortened(value)
        if one is not None and isinstance(value, int):
            return units.counted(value, one, many or "")
        return units.quantity(name, value)

    return _FIELD.sub(text_of, template)


def shortened(text: str | None, limit: int = LONGEST_NAME) -> str:
    """A name from a trace, cut to the length that a sentence bears."""
    text = text or ""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


HIGH, MEDIUM, LOW = 0.20, 0.05, 0.01


def severity_of(at_stake_ns: int, span_ns: int) -> Severity | None:
    """Severity of a loss by its fraction of a span of device time; None below 1 %."""
    fraction = at_stake_ns / span_ns if span_ns else 0.0
    if fraction < LOW:
        return None
    return "high" if fraction >= HIGH else "medium" if fraction >= MEDIUM else "low"


def share_pct(at_stake_ns: int, span_ns: int) -> float | None:
    """A time as a share of a span, in percent; None for an empty span.

    At most 100: the times of kernels that run at once add up to more than the span.
    """
    return min(100.0 * at_stake_ns / span_ns, 100.0) if span_ns > 0 else None
