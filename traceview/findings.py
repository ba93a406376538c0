"""A finding: what is wrong, what it is about, what shows it, and what acting on it can save.

Traces and kernels share it. A program reads the fields; a person reads `message` and `action`,
which are templates over the evidence, so that every number in a sentence is also a named value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from traceview import display, units
from traceview.units import Value

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")

SubjectKind = Literal[
    "kernel", "range", "line", "call", "stream", "process", "device", "rank", "collective",
    "recording",
]  # fmt: skip

LONGEST_NAME = 80
_PLACE = re.compile(r"\{(\w+)(?::([^{}|]*)(?:\|([^{}]*))?)?\}")


@dataclass(frozen=True)
class Subject:
    """What a finding is about. `file` and `line` name its place in the user's program.

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

    `values` are its figures; their names end in their unit, as those of columns do. `table` is a
    result table of the analysis and `row` the cells that identify one of its rows. `start_ns` and
    `end_ns` bound the time in which it shows, on the clock of the recording. `basis` says what a
    statement about code stands on: `recompiled with num_warps=4: 128 bits instead of 32`.
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
    `147 ms`, `{gaps:gap}` becomes `135 gaps`, `{launches:launch|launches}` names its own plural.
    `remedy` is the action, an imperative, in the same form. `time_at_stake_ns` is an upper bound
    of what acting on it saves, `share_of_step_pct` the same as a share of the steady time of its
    GPU, None where no time is claimed.
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


def filled(template: str, values: Mapping[str, Value]) -> str:
    """A template with its values; braces around anything else stay as they are."""

    def value_of(place: re.Match[str]) -> str:
        name, one, many = place[1], place[2], place[3]
        if name not in values:
            return place[0]
        value = values[name]
        if isinstance(value, str):
            return shortened(value)
        if one is not None and isinstance(value, int):
            return units.counted(value, one, many or "")
        return units.quantity(name, value)

    return _PLACE.sub(value_of, template)


def shortened(text: str | None, limit: int = LONGEST_NAME) -> str:
    """A name from a trace, short enough for a sentence."""
    text = text or ""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


HIGH, MEDIUM, LOW = 0.20, 0.05, 0.01


def severity_of(at_stake_ns: int, span_ns: int) -> Severity | None:
    """Severity of a loss by its share of a span of device time; None below 1 %."""
    share = at_stake_ns / span_ns if span_ns else 0.0
    if share < LOW:
        return None
    return "high" if share >= HIGH else "medium" if share >= MEDIUM else "low"


def share_pct(at_stake_ns: int, span_ns: int) -> float | None:
    """The share that a time has of a span, in percent; None of an empty span."""
    return 100.0 * at_stake_ns / span_ns if span_ns > 0 else None
