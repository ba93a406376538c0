"""The columns of the timeline: the leaves of all tracks, concatenated.

gap        start minus the end of the previous leaf on the track; the first leaf of a track counts
           from the start of the timeline
duration   end minus start
name       number of the name
bytes      for operations only: the size of a copy or memset
link       for operations and gaps only: 1 + the leaf of the call that launched the operation or
           caused the gap, 0 for none, as the difference to the previous value
count, busy, by_class   for tracks with sums only: rows of each leaf, their time, and that time
           for each class in `class_of`, pairs of track and class
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.operations import operations
from traceview.facts.waits.call_sites import wait_sites
from traceview.facts.waits.stalls import stalls
from traceview.render.base.safe_text import visible
from traceview.render.timeline.packing import (
    differences,
    packed_numbers,
    packed_parts,
    packed_texts,
    zigzag,
)
from traceview.tables import Array, Integers, RowNumbers
from traceview.timeline.levels import Leaves
from traceview.timeline.timeline import Timeline
from traceview.trace import Trace

MOST_WAITS = 20_000
_PATTERNED = ("name", "link")
_THREADS = 2


def columns(
    trace: Trace,
    timeline: Timeline,
    every: Sequence[Leaves],
    names: RowNumbers,
    of_calls: RowNumbers,
) -> dict[str, object]:
    """All columns, packed; `names` maps name numbers of the timeline to those on the page.

    `of_calls` is the result of `leaves_of_calls`.
    """
    worked = [each for each in every if each.track.content == "operations"]
    summed = [(number, each) for number, each in enumerate(every) if each.summed]
    classes = timeline.names.classes
    by_class = [
        (number, kind, busy)
        for number, each in summed
        for kind, busy in each.busy_by_class(classes).items()
    ]
    parts: dict[str, Iterator[Array]] = {
        "gap": (_gaps(each, timeline.start_ns) for each in every),
        "duration": (each.duration_ns for each in every),
        "name": (names.take(each.name) for each in every),
        "bytes": (each.sums(each.track.bytes) for each in worked),
        "link": _links(trace, every, of_calls),
        "count": (each.count for _, each in summed),
        "busy": (each.busy_ns for _, each in summed),
        "by_class": (busy for _, _, busy in by_class),
    }

    def packed(name: str) -> dict[str, bytes | int]:
        # Computed here part by part, so that one part's memory is reused by the next.
        return packed_parts(parts[name], patterned=name in _PATTERNED)

    with ThreadPoolExecutor(_THREADS) as pool:
        columns = dict(zip(parts, pool.map(packed, parts), strict=True))
    return {**columns, "class_of": [[number, kind] for number, kind, _ in by_class]}


def _gaps(each: Leaves, origin: int) -> Integers:
    gaps = each.start_ns.copy()
    gaps[1:] -= np.maximum.accumulate(each.end_ns[:-1])
    gaps[:1] -= origin
    return np.maximum(gaps, 0, out=gaps)


def leaves_of_calls(trace: Trace, every: Sequence[Leaves]) -> RowNumbers:
    """For each row of api_calls, 1 + the leaf of exactly this call; 0 for none."""
    result = np.zeros(len(trace.recorded("api_calls")) + 1, np.int32)
    offset = 1
    for each in every:
        if each.track.content == "calls":
            leaf = np.arange(offset, offset + len(each), dtype=np.int32)
            if each.summed:
                leaf[each.count != 1] = 0
            result[each.track.source[each.first]] = leaf
        offset += len(each)
    # A row number of −1, for no call, picks the last.
    result[-1] = 0
    return result


def _links(trace: Trace, every: Sequence[Leaves], of_calls: RowNumbers) -> Iterator[Integers]:
    """The `link` column of the leaves of operations and gaps, a part per track."""
    # A row number of −1, for no call, picks the last.
    waited = np.append(waits(trace).call, -1)[stalls(trace).wait]
    caused = {"gaps": waited, "operations": np.append(operations(trace).call, -1)}
    before = 0
    for each in every:
        if each.track.content in caused and len(each):
            call = caused[each.track.content].take(each.track.source[each.first])
            leaf: Array = of_calls.take(call)
            if each.summed:
                leaf[each.count != 1] = 0
            yield zigzag(differences(leaf, before))
            before = int(leaf[-1])


def waits_column(trace: Trace, of_calls: RowNumbers) -> dict[str, object]:
    """The costliest waits: their leaves, idle and benign time, and source lines."""
    cost, calls = stalls(trace), waits(trace)
    idle = cost.idle_ns(np.ones(len(cost.wait), bool))
    rows = np.argsort(-np.maximum(idle, calls.duration_ns), kind="stable")[:MOST_WAITS]
    leaf = of_calls[calls.call[rows]]
    rows, leaf = rows[leaf > 0], leaf[leaf > 0]
    sites = wait_sites(trace).take(rows)
    codes = sites.site.codes + 1
    texts = [visible(str(text)) for text in sites.site.values]
    return {
        "row": packed_numbers(leaf - 1),
        "idle": packed_numbers(idle[rows]),
        "benign": packed_numbers(cost.benign_ns[rows]),
        "site": packed_numbers(codes.astype(np.int64)),
        "sites": packed_texts(["", *texts]),
    }
