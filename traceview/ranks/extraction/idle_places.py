"""The place of the program in the idle time before each collective."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.analyses.gpu_idle.lines import idle_samples
from traceview.analyses.gpu_idle.stack_sites import stack_sites
from traceview.comparison.extraction.places import gap_places
from traceview.facts.idle.gaps import every_gap
from traceview.ranks.figures import UNKNOWN, Place
from traceview.tables import Integers, Texts
from traceview.trace import Trace
from traceview.vocabulary.activities import ACTIVITIES

_LINE = re.compile(r"(.+):(\d{1,9})")
_WORTH_NS = 10_000
"""Shorter gaps last no longer than a launch, and are not assigned to a place."""


class IdlePlaces(NamedTuple):
    """Places; for each window the row of its main place (−1: none) and the idle time there."""

    places: tuple[Place, ...]
    place: Integers
    place_ns: Integers


def idle_places(trace: Trace, device: int, before: Integers, start: Integers) -> IdlePlaces:
    """The places of a GPU's idle time in windows [before, start), sorted by start."""
    every = every_gap(trace)
    rows = np.flatnonzero((every.device == device) & (every.idle_ns >= _WORTH_NS))
    window = np.searchsorted(start, every.end_ns[rows], side="left")
    inside = window < len(start)
    inside[inside] = before[window[inside]] <= every.start_ns[rows[inside]]
    rows, window = rows[inside], window[inside]
    most, time = np.full(len(start), UNKNOWN, np.int64), np.zeros(len(start), np.int64)
    if not len(rows):
        return IdlePlaces((), most, time)
    text, _ = gap_places(trace, rows)
    known = ~text.isin([""]) & (text.codes >= 0)
    pairs = groups.group(window[known], text.codes[known])
    total = groups.sums(pairs, every.idle_ns[rows[known]])
    # Ascending, so that the last to write is the place with most time.
    order = np.argsort(total, kind="stable")
    of = window[known][pairs.first[order]]
    most[of], time[of] = text.codes[known][pairs.first[order]], total[order]
    most, time = _of_same_window(before, most, time)
    used, place = np.unique(most, return_inverse=True)
    first = int(used[0] == UNKNOWN)
    places = tuple(_place(trace, rows, text, int(code)) for code in used[first:])
    return IdlePlaces(places, place.astype(np.int64) - first, time)


def _of_same_window(before: Integers, place: Integers, time: Integers) -> tuple[Integers, Integers]:
    """Let collectives with the same window start share the place of the first of them."""
    first = np.flatnonzero(groups.opens(before))
    leader = first[np.cumsum(groups.opens(before)) - 1]
    own = time >= time[leader]
    return np.where(own, place, place[leader]), np.where(own, time, time[leader])


def _place(trace: Trace, rows: Integers, text: Texts, code: int) -> Place:
    """The place for a text from gap_places: a source line or a range."""
    name, gaps = str(text.values[code]), rows[text.codes == code]
    match = _LINE.fullmatch(name)
    function, what = _activity(trace, gaps)
    if match:
        return Place(match[1], int(match[2]), function, what=what)
    return Place(range_path=name, what=what)


def _activity(trace: Trace, gaps: Integers) -> tuple[str, str]:
    """The function and the activity with most samples in the gaps; empty if unknown."""
    samples, sites = idle_samples(trace), stack_sites(trace)
    own = np.flatnonzero(np.isin(samples.gap, gaps))
    if not len(own):
        return "", ""
    doing = np.bincount(samples.doing[own], samples.time_ns[own])
    by = groups.group(samples.site[own])
    most = int(samples.site[own][by.first[np.argmax(groups.sums(by, samples.time_ns[own]))]])
    most_done = ACTIVITIES[int(np.argmax(doing))]
    return str(sites.function[most] or ""), most_done.name if most_done.rank else ""
