"""Idle time of a run's window, by cause and by the place at which the program waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.comparison.extraction.places import gap_places
from traceview.comparison.extraction.window import run_window
from traceview.comparison.extraction.work import window_work
from traceview.comparison.figures import StepPart
from traceview.facts.idle.gaps import every_gap
from traceview.tables import Mask, Texts
from traceview.trace import Trace
from traceview.vocabulary.causes import CAUSE_NAMES

MOST_PLACES = 500
"""Of more places than this, those with the least idle time are not told apart."""
AT_START = "at-start"
"""The idle time before the first GPU work of all, as the steps analysis calls it."""


def idle_parts(trace: Trace) -> Iterator[StepPart]:
    """Yield the parts of idle time: the gaps of the report, as far as they lie in the window."""
    window, every = run_window(trace), every_gap(trace)
    idle_ns = intervals.overlap(window.covered, every.start_ns, every.end_ns)
    rows = np.flatnonzero((every.device == window.device) & (idle_ns > 0))
    place, code = gap_places(trace, rows)
    by = groups.group(every.cause[rows], place.codes, code.codes)
    if by.size > MOST_PLACES:
        kept = np.zeros(by.size, bool)
        kept[groups.most_first(groups.sums(by, idle_ns[rows]))[:MOST_PLACES]] = True
        place, code = (_where(each, kept[by.ids]) for each in (place, code))
        by = groups.group(every.cause[rows], place.codes, code.codes)
    total, calls = groups.sums(by, idle_ns[rows]), groups.count(by)
    texts, codes = (each.take(by.first).decode() for each in (place, code))
    for part, first in enumerate(rows[by.first].tolist()):
        cause, time = CAUSE_NAMES[every.cause[first]], int(total[part])
        where, symbol = (str(each[part] or "") for each in (texts, codes))
        yield StepPart("idle", "", cause, where, time, 0, int(calls[part]), symbol=symbol)
    before = window_work(trace).idle.total() - int(total.sum())
    if before:
        yield StepPart("idle", "", AT_START, "", before, 0, 1)


def _where(texts: Texts, kept: Mask) -> Texts:
    return Texts(np.where(kept, texts.codes, -1).astype(np.int32), texts.values)
