"""Baselines: the figures of several runs in one small JSON file, so that no recording is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from traceview.comparison.figures import RunFigures
from traceview.errors import TraceFormatError, unreadable
from traceview.records import record

FORMAT, VERSION = "traceview baseline", 1
_AGAIN = "write it anew with: traceview baseline TRACE... -o base.json"
_START = re.compile(rb'\s*\{\s*"format"\s*:\s*"traceview baseline"')
_LOOK = 200
_MOST_BYTES = 1 << 28


@record
class Baseline:
    """The content of a baseline file."""

    format: str
    version: int
    traceview_version: str
    runs: tuple[RunFigures, ...]


class _Header(msgspec.Struct):
    format: str
    version: int


def baseline_text(runs: Sequence[RunFigures], version: str) -> str:
    """The text of a baseline file for these runs; `version` is traceview's."""
    return msgspec.json.encode(Baseline(FORMAT, VERSION, version, tuple(runs))).decode() + "\n"


def is_baseline(path: Path) -> bool:
    """Whether a file begins like a baseline; False for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            return bool(_START.match(file.read(_LOOK)))
    except OSError:
        return False


def read_baseline(path: Path) -> tuple[RunFigures, ...]:
    """The runs of a baseline. Raises TraceFormatError where it is damaged or of another version."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise TraceFormatError(f"{path} is not a baseline: it is too large", _AGAIN)
        version = msgspec.json.decode(content, type=_Header).version
        if version != VERSION:
            raise TraceFormatError(
                f"{path} is a baseline of version {version}, and this traceview reads {VERSION}",
                _AGAIN,
            )
        runs = msgspec.json.decode(content, type=Baseline).runs
    except OSError as error:
        raise unreadable(path, error, TraceFormatError) from error
    except msgspec.MsgspecError as error:
        raise TraceFormatError(f"{path} is a damaged baseline ({error})", _AGAIN) from error
    _check(path, runs)
    return runs


def _check(path: Path, runs: Sequence[RunFigures]) -> None:
    """Check what the types cannot express: times add up, and indices exist."""
    if not runs:
        raise TraceFormatError(f"{path} is a baseline without runs", _AGAIN)
    for run in runs:
        consistent = (
            run.step_ns
            and min(run.step_ns) >= 0
            and all(part.time_ns >= 0 and part.calls >= 0 for part in run.parts)
            and sum(run.step_ns) == run.window_ns == sum(part.time_ns for part in run.parts)
            and all(0 <= index < len(run.parts) for index in run.sequence)
            and len(run.sequence_ns) == len(run.sequence)
        )
        if not consistent:
            raise TraceFormatError(
                f"{path} is a damaged baseline (the times of {run.name!r} do not add up)", _AGAIN
            )
