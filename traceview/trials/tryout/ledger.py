"""The local table of what remedies were said to save and what they saved: JSON lines, private."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from traceview.base.errors import TraceviewError
from traceview.base.outputs import private_folder
from traceview.base.records import record
from traceview.base.version import __version__
from traceview.trials.tryout.verdict import Trial

NAME = "tried.jsonl"


@record
class Row:
    """One trial. Shares are of the step without the remedy, in percent; a gain is positive.

    `by_hand` is the part of a kept change that no edit of a line makes, and where it lacks.
    `said_pct` and `said_error_pct` are the forecast of the report, None without one, `saving`
    whether it is at most, about or at least so much.
    """

    when_utc: str
    program: str
    device: str
    remedy: str
    outcome: str
    base_ns: float | None = None
    saved_pct: float | None = None
    low_pct: float | None = None
    high_pct: float | None = None
    said_pct: float | None = None
    said_error_pct: float | None = None
    saving: str = ""
    analysis: str = ""
    results: str = ""
    reason: str = ""
    by_hand: str = ""
    traceview: str = __version__

    @property
    def off_pct(self) -> float | None:
        """How far an estimate is off, or by how much a bound is broken, in percent of the step."""
        if self.said_pct is None or self.saved_pct is None:
            return None
        off = self.said_pct - self.saved_pct
        if self.saving == "at-most":
            return min(off, 0.0)
        return max(off, 0.0) if self.saving == "at-least" else off


def path() -> Path:
    """The file, in $XDG_DATA_HOME/traceview or ~/.local/share/traceview. Raises OSError."""
    home = os.environ.get("XDG_DATA_HOME")
    root = Path(home) if home else Path.home() / ".local" / "share"
    return private_folder(root, "traceview") / NAME


def rows_of(
    program: str, device: str, trials: Sequence[Trial], by_hand: Iterable[tuple[str, str]]
) -> list[Row]:
    """A row per trial; `by_hand` is as of `Patch`."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    left = [*by_hand]
    return [
        replace(
            _row(now, program, device, trial),
            by_hand="; ".join(how for name, how in left if name == trial.planned.name),
        )
        for trial in trials
    ]


def _row(now: str, program: str, device: str, trial: Trial) -> Row:
    m, said = trial.measured, trial.planned.said

    def gain(delta_ns: float | None) -> float | None:
        return None if m is None or delta_ns is None else -100 * delta_ns / m.base_ns

    return Row(
        now,
        program,
        device,
        trial.planned.name,
        trial.outcome,
        base_ns=m.base_ns if m else None,
        saved_pct=gain(m.delta_ns) if m else None,
        low_pct=gain(m.high_ns) if m else None,
        high_pct=gain(m.low_ns) if m else None,
        said_pct=said.share_pct if said else None,
        said_error_pct=said.error_pct if said else None,
        saving=said.saving if said else "",
        analysis=said.findings[0].analysis if said else "",
        results=trial.results,
        reason=trial.reason,
    )


def append(rows: Sequence[Row]) -> Path:
    """Append rows, by one write: an interrupt leaves all of them or none. Raises TraceviewError."""
    text = "".join(json.dumps(vars(row)) + "\n" for row in rows)
    try:
        place = path()
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        what = f"cannot write the table of trials: {error.strerror or error}"
        raise TraceviewError(what, "set XDG_DATA_HOME to a folder of yours") from error
    return place


def read() -> list[Row]:
    """All rows, oldest first; lines that are damaged are left out. Raises TraceviewError."""
    try:
        text = path().read_text("utf-8", "replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        what = f"cannot read the table of trials: {error.strerror or error}"
        raise TraceviewError(what, "check $XDG_DATA_HOME") from error
    return list(_parsed(text))


def _parsed(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        try:
            values: dict[str, Any] = json.loads(line)
            yield Row(**values)
        except (ValueError, TypeError):
            continue
