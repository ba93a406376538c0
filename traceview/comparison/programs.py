"""Two programs of few kernels in common, such as two engines: their parts by class and by range."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from traceview.comparison.comparison import PartDifference
from traceview.comparison.figures import PartKey, RunFigures, StepPart, total
from traceview.comparison.matching import without_counters

ALIKE_PROGRAMS = 0.1
"""Of the kernel time of a side. Recordings of one program share a quarter, also if compiled."""
_NUMBERS = re.compile(r"[#\d_\W]+")


def shared_kernels(parts: Sequence[PartDifference]) -> tuple[Fraction, Fraction] | None:
    """Of the kernel time before and after, the share of the kernels that both sides run.

    A kernel that replaced another in its place counts as run by both, so does one that its compiler
    numbered otherwise. None where a graph may hide the kernels of a side, or one has none.
    """
    kernels = [part for part in parts if part.kind in ("kernel", "communication")]
    runs = [
        {without_counters(part.name) for part in kernels if getattr(part, calls)}
        for calls in ("calls_before", "calls_after")
    ]
    both = runs[0] & runs[1]
    shared = [
        part
        for part in kernels
        if (part.calls_before and part.calls_after) or without_counters(part.name) in both
    ]
    whole = [total(part.before_ns for part in kernels), total(part.after_ns for part in kernels)]
    if any(part.kind == "graph" for part in parts) or not all(whole):
        return None
    return (
        total(part.before_ns for part in shared) / whole[0],
        total(part.after_ns for part in shared) / whole[1],
    )


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
