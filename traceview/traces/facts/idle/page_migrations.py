"""Idle time in which pages of unified memory moved, laid over the parts of idle gaps.

Nothing launches a migration, so no edge of the graph explains it: its time is what was recorded.
"""

from __future__ import annotations

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.tables import Array, Integers, Mask, RowNumbers, row_numbers
from traceview.base.vocabulary import causes
from traceview.traces.facts.dependencies.blame import IdlePart, IdleParts
from traceview.traces.facts.operations import CallKind, migrations
from traceview.traces.trace import Trace

_ASKED_FOR = "user prefetch"
_COVERED = (causes.LAUNCH_LATE, causes.SYNC_DRAIN, causes.DEPENDENCY)
_OF_THREAD = (IdlePart.HOST, IdlePart.CALL, IdlePart.WAKE)


def with_migrations(
    trace: Trace, parts: IdleParts, cause: Array, device: Array, does: Array
) -> tuple[RowNumbers, IdleParts, Array]:
    """The parts, cut where pages moved; also the row of each among those given, and its cause.

    `device` is that of each part, `does` the kind of call that it was spent in. Pages that the CPU
    touched hold its thread up. Prefetches hold up only what waits for them: work on the GPU, and
    synchronizations.
    """
    row = row_numbers(np.arange(len(parts)))
    for gpu, asked, moved in _moved(trace):
        waits = ~np.isin(parts.kind[row], _OF_THREAD) | (does[row] == CallKind.SYNCHRONIZE)
        rows = (device[row] == gpu) & np.isin(cause, _COVERED)
        rows &= waits | (not asked)
        piece, start, end, inside = _cut(moved, parts.start_ns, parts.end_ns, rows)
        row, cause = row[piece], cause[piece]
        cause[inside] = causes.PAGE_MIGRATION
        parts = IdleParts(parts.gap[piece], start, end, parts.kind[piece], parts.item[piece])
    return row, parts, cause


def fault_times(trace: Trace) -> dict[int, Intervals]:
    """When pages of each GPU moved that the program did not prefetch: what touches them waits."""
    return {device: moved for device, asked, moved in _moved(trace) if not asked}


def _moved(trace: Trace) -> list[tuple[int, bool, Intervals]]:
    """When pages of each GPU moved, those that the program prefetched apart."""
    moving = np.flatnonzero(migrations(trace))
    copies = trace.recorded("copies").take(moving)
    asked = copies.texts("migration_cause").isin([_ASKED_FOR])
    alike = groups.group(copies["device"], asked)
    return [
        (int(copies["device"][rows[0]]), bool(asked[rows[0]]), intervals.covered(copies, rows))
        for rows in groups.rows_of(alike.ids).values()
    ]


def _cut(
    covered: Intervals, start: Integers, end: Integers, chosen: Mask
) -> tuple[Integers, Integers, Integers, Mask]:
    """Intervals cut at the borders of others: row, start and end of each piece, and which lie in.

    Intervals that are not chosen stay whole.
    """
    borders = np.stack([covered.start, covered.end], axis=1).ravel()
    first = np.searchsorted(borders, start, side="right")
    count = np.where(chosen, np.searchsorted(borders, end, side="left") - first, 0) + 1
    row = np.repeat(np.arange(len(start)), count)
    number = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    border = first[row] + number
    at = np.append(borders, 0)
    begin = np.where(number > 0, at[border - 1], start[row])
    until = np.where(number < count[row] - 1, at[np.minimum(border, len(borders))], end[row])
    return row, begin, until, chosen[row] & (border % 2 == 1)
