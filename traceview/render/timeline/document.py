"""The document of the timeline, for the script of the page."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.compiled.packed_texts import PackedTexts
from traceview.render.base.safe_text import MOST, all_visible, visible
from traceview.render.timeline.columns import columns, leaves_of_calls, waits_column
from traceview.render.timeline.packing import (
    differences,
    packed_lines,
    packed_numbers,
    packed_texts,
    zigzag,
)
from traceview.tables import Integers
from traceview.timeline.counters import Counter
from traceview.timeline.levels import Leaves, leaves
from traceview.timeline.names import CLASSES, NameTable
from traceview.timeline.stream_lanes import LAUNCH_COLUMNS, LaunchConfigurations, device_title
from traceview.timeline.timeline import Timeline
from traceview.timeline.tracks import Lane
from traceview.trace import Trace
from traceview.vocabulary.causes import CAUSES

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
