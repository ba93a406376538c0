"""The document of the timeline, for the script of the page, and its section of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from markupsafe import Markup

from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.operations import operations
from traceview.facts.waits.call_sites import wait_sites
from traceview.facts.waits.stalls import stalls
from traceview.records import record
from traceview.render.base.safe_text import MOST, all_visible, visible
from traceview.render.timeline.packing import (
    differences,
    packed_lines,
    packed_numbers,
    packed_parts,
    packed_texts,
    script_json,
    zigzag,
)
from traceview.render.timeline.strip import strip
from traceview.tables import Array, Integers, RowNumbers
from traceview.tables.packed_texts import PackedTexts
from traceview.timeline.counters import Counter
from traceview.timeline.levels import Leaves, leaves
from traceview.timeline.names import CLASSES, NameTable
from traceview.timeline.stream_lanes import LAUNCH_COLUMNS, LaunchConfigurations, device_title
from traceview.timeline.timeline import Timeline, timeline
from traceview.timeline.tracks import Lane
from traceview.trace import Trace, fact
from traceview.vocabulary.causes import CAUSES

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


MOST_POINTS = 60_000
"""Most points of a counter; with more, the least and greatest value per time slot are kept."""
Document = dict[str, object]


def timeline_document(trace: Trace, whole: Timeline) -> Document:
    """The document that the script reads: numbers, lists, packed columns and safe text."""
    every = leaves(whole)
    names, of_calls = whole.names.table(each.name for each in every), leaves_of_calls(trace, every)
    return {
        "origin": str(whole.start_ns),
        "end": whole.end_ns - whole.start_ns,
        "classes": CLASSES,
        "causes": {each.name: each.meaning for each in CAUSES},
        "launch_columns": LAUNCH_COLUMNS,
        "names": _names(names, whole.launches),
        "lanes": _lanes(trace, whole.lanes, every),
        "counters": [_counter(trace, whole, each) for each in whole.counters],
        "columns": columns(trace, whole, every, names.place, of_calls),
        "waits": waits_column(trace, of_calls),
        "recorded_rows": int(sum(len(each.track) for each in every)),
    }


def _names(names: NameTable, launches: LaunchConfigurations) -> Document:
    return {
        "texts": _visible_texts(names.packed),
        "classes": packed_numbers(names.classes),
        "whole": packed_texts(all_visible(names.whole, 4_000)),
        "launch": packed_numbers(names.launch + 1),
        "launches": launches.rows.tolist(),
    }


def _visible_texts(texts: PackedTexts) -> dict[str, bytes | int]:
    """The texts made visible; short ones of plain characters are so as they are."""
    if texts.is_plain and int(texts.sizes.max(initial=0)) <= MOST:
        return packed_lines(texts.content, len(texts))
    return packed_texts(all_visible(texts.every.tolist()))


def _lanes(trace: Trace, lanes: Sequence[Lane], every: Sequence[Leaves]) -> list[Document]:
    following = iter(every)
    return [
        {
            "kind": lane.kind,
            "title": visible(lane.title, 200),
            "group": visible(device_title(trace, lane.device), 200) if lane.device >= 0 else "",
            "device": lane.device,
            "process": lane.process,
            "tracks": [_track(next(following)) for _ in lane.tracks],
        }
        for lane in lanes
    ]


def _track(each: Leaves) -> Document:
    return {
        "content": each.track.content,
        "rows": len(each),
        "summed": each.summed,
        "recorded_rows": len(each.track),
    }


def _counter(trace: Trace, timeline: Timeline, counter: Counter) -> Document:
    return {
        "title": counter.title,
        "unit": counter.unit,
        "device": counter.device,
        "group": visible(device_title(trace, counter.device), 200),
        "exact": counter.exact,
        "time": _packed_steps(counter.time_ns - timeline.start_ns),
        "value": _packed_steps(counter.value),
    }


def _packed_steps(values: Integers) -> dict[str, bytes | int]:
    return packed_numbers(zigzag(differences(values)), patterned=False)


@record
class TimelineView:
    """The document for the script, and the strip that the page shows without it."""

    document: Markup
    strip: Markup


def timeline_view(trace: Trace | None) -> TimelineView | None:
    """The timeline of a trace with GPU work or CUDA calls; None without either."""
    return None if trace is None else _timeline_view(trace)


@fact
def _timeline_view(trace: Trace) -> TimelineView | None:
    # A memoised fact, so that it can be computed ahead.
    if not (len(operations(trace)) or len(trace.recorded("api_calls"))):
        return None
    whole = timeline(trace, MOST_POINTS)
    document = script_json(timeline_document(trace, whole))
    # Escaped, so that no text can end the script element.
    return TimelineView(Markup(document), strip(trace, whole))  # noqa: S704
