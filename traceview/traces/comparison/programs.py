"""Two programs of few kernels in common, such as two engines: their parts by class and by range."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from traceview.traces.comparison.comparison import PartDifference
from traceview.traces.comparison.figures import PartKey, RunFigures, StepPart, total
from traceview.traces.comparison.matching import without_counters

LEAST_SHARED = 0.01
"""Of the kernel time of both sides: less is a kernel that any program may run, such as a fill."""
ALIKE_PROGRAMS = 0.1
"""Of the kernel time of a side. Recordings of one program share a quarter, also if compiled."""
_NUMBERS = re.compile(r"[#\d_\W]+")


Shares = tuple[Fraction, Fraction]


def shared_by_name(before: Sequence[RunFigures], after: Sequence[RunFigures]) -> Shares | None:
    """Of the kernel time before and after, the share of kernels with a name that both sides have.

    Copies and memsets are in any program; they count where nothing else runs. None where a graph
    may hide the kernels of a side.
    """
    times = _times_by_name(before), _times_by_name(after)
    if any(kind == "graph" for side in times for kind, _ in side):
        return None
    both = times[0].keys() & times[1].keys()
    one, other = (
        Fraction(sum(side[name] for name in both), max(sum(side.values()), 1)) for side in times
    )
    return one, other


def _times_by_name(runs: Sequence[RunFigures]) -> dict[tuple[str, str], int]:
    parts = [part for run in runs for part in run.parts if part.kind != "idle"]
    kernels = [part for part in parts if part.kind not in ("copy", "memset")]
    times: dict[tuple[str, str], int] = defaultdict(int)
    for part in kernels or parts:
        times[part.kind, without_counters(part.name)] += part.time_ns
    return times


def shared_kernels(
    before: Sequence[RunFigures], after: Sequence[RunFigures], parts: Sequence[PartDifference]
) -> Shares | None:
    """As `shared_by_name`; where names are shared, kernels that replaced others are shared, too.

    `parts` are the parts of both sides, matched.
    """
    shares = shared_by_name(before, after)
    if shares is None or max(shares) < Fraction(LEAST_SHARED):
        return shares
    kernels = [part for part in parts if part.kind in ("kernel", "communication")]
    names = _times_by_name(before).keys() & _times_by_name(after).keys()
    both = [
        part
        for part in kernels
        if (part.calls_before and part.calls_after)
        or (part.kind, without_counters(part.name)) in names
    ]
    one, other = (
        total(getattr(part, time) for part in both)
        / max(total(getattr(part, time) for part in kernels), Fraction(1))
        for time in ("before_ns", "after_ns")
    )
    return (one, other) if kernels else None


def by_class(
    before: Sequence[RunFigures], after: Sequence[RunFigures]
) -> tuple[tuple[RunFigures, ...], tuple[RunFigures, ...]]:
    """The runs with one part per class of kernel, and per range that both sides have.

    Ranges are those of one name, whatever is around them and however they are numbered: `decode`,
    `attn`. Idle time keeps its cause, a copy its direction.
    """
    known = _ranges(before) & _ranges(after)
    sides = [tuple(_merged(run, known) for run in side) for side in (before, after)]
    return sides[0], sides[1]


def _ranges(runs: Sequence[RunFigures]) -> set[str]:
    return {name for run in runs for part in run.parts for name in _names(part.place)}


def _names(place: str) -> list[str]:
    """The names of the ranges of a place, the innermost first, without numbers and case."""
    return [_NUMBERS.sub(" ", name).strip().lower() for name in reversed(place.split("/"))]


def _merged(run: RunFigures, known: set[str]) -> RunFigures:
    merged: dict[PartKey, list[StepPart]] = defaultdict(list)
    for part in run.parts:
        place = next((name for name in _names(part.place) if name and name in known), "")
        name = part.name if part.kind in ("idle", "memset") else part.group
        merged[part.kind, part.group, name, place].append(part)
    parts = tuple(
        replace(
            parts[0],
            name="" if parts[0].kind == "kernel" else key[2],
            place=key[3],
            time_ns=sum(part.time_ns for part in parts),
            busy_ns=sum(part.busy_ns for part in parts),
            calls=sum(part.calls for part in parts),
            shape=None,
            symbol=f"class {key[1]}" if parts[0].kind == "kernel" else "",
        )
        for key, parts in merged.items()
    )
    return replace(run, parts=parts, sequence=(), sequence_ns=())
