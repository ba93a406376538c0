"""The runs of one side of a comparison: recordings, baselines, and folders of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from traceview.base.errors import ComparisonRefusedError, TraceFormatError, unreadable
from traceview.base.records import record
from traceview.traces.comparison import environment, run_figures
from traceview.traces.comparison.figures import RunFigures
from traceview.traces.trace import Trace
from traceview.traces.trace.load import USE_RECORDINGS, recordings_in

# Baselines: the figures of several runs in one small JSON file, so that no recording is kept.

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
    return runs


Input = str | Path | Trace
Recording = Path | Trace


@record
class Run:
    """The figures of a run, and its recording, to draw its timeline.

    `rank` is the recording's rank in a job of several ranks, else None.
    """

    figures: RunFigures
    recording: Recording | None
    rank: int | None = None


def side(
    given: Input | Sequence[Input],
    load: Callable[[Path], Trace],
    *,
    force: bool = False,
    may_force: bool = True,
) -> list[Run]:
    """The runs of a side. Recordings are read one at a time and not kept in memory.

    Raises ComparisonRefusedError for a side without a recording or, unless `force`, with a file
    named twice or several ranks of a job, and what `load` raises. With `force`, a file named twice
    is read once and counts twice. `may_force` says whether the caller offers `force`.
    """
    inputs = [given] if isinstance(given, str | Path | Trace) else list(given)
    sources = [source for named in inputs for source in _sources(named)]
    # Equal for a file and links to it.
    identities: list[Hashable] = [
        id(each) if isinstance(each, Trace) else os.path.realpath(each) for each in sources
    ]
    if not force:
        # Before any is read: reading takes long.
        names: dict[Hashable, str] = {}
        for source, identity in zip(sources, identities, strict=True):
            name = Path(source.path if isinstance(source, Trace) else source).name
            if identity in names:
                raise environment.same_capture(names[identity], name, may_force=may_force)
            names[identity] = name
    by_identity: dict[Hashable, list[Run]] = {}
    for source, identity in zip(sources, identities, strict=True):
        if identity not in by_identity:
            by_identity[identity] = list(_runs(source, load))
    runs = [run for identity in identities for run in by_identity[identity]]
    ranked = {run.rank: run.figures.name for run in runs if run.rank is not None}
    if not force and len(ranked) > 1:
        # Ranks wait for each other in every step: they differ less than repeated runs would.
        one, other, *_ = sorted(ranked)
        raise ComparisonRefusedError(
            f"{ranked[one]} and {ranked[other]} are ranks {one} and {other} of a job, not "
            "repeated runs of it",
            "pass recordings of one rank, the same on both sides",
        )
    return runs


def _sources(named: Input) -> Sequence[Recording]:
    if isinstance(named, Trace):
        return [named]
    path = Path(named)
    if not path.is_dir():
        return [path]
    recordings = recordings_in(path)
    if not recordings:
        raise ComparisonRefusedError(f"{path} has no recordings", USE_RECORDINGS)
    return recordings


def _rank_of(trace: Trace) -> int | None:
    identity = trace.rank
    return identity.rank if identity and (identity.world_size or 1) > 1 else None


def _runs(source: Recording, load: Callable[[Path], Trace]) -> Iterator[Run]:
    if isinstance(source, Trace):
        yield Run(run_figures.figures_of(source), source, _rank_of(source))
    elif is_baseline(source):
        yield from (Run(figures, None) for figures in read_baseline(source))
    else:
        trace = load(source)
        # Under the file name that the user gave: unpacking or exporting changes the path.
        figures = replace(run_figures.figures_of(trace), name=source.name)
        yield Run(figures, source, _rank_of(trace))


def median_recording(runs: Sequence[Run]) -> Recording | None:
    """The recording with the median step of a side; the faster of two. None for baselines."""
    recorded = [run for run in runs if run.recording is not None]
    recorded.sort(key=lambda run: run.figures.mean_step_ns)
    return recorded[(len(recorded) - 1) // 2].recording if recorded else None
