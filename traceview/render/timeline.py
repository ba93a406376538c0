"""The timeline of a page: a packed document for the script, and a strip that needs no script."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from traceview.base import intervals, units
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, RowNumbers
from traceview.base.tables.packed_texts import PackedTexts
from traceview.base.vocabulary.causes import CAUSES
from traceview.render.base.code import color_class
from traceview.render.base.safe_text import MOST, all_visible, visible
from traceview.traces.facts.idle.gaps import busy
from traceview.traces.facts.launches import waits
from traceview.traces.facts.operations import operations
from traceview.traces.facts.waits import stalls, wait_sites
from traceview.traces.timeline.lanes import (
    LAUNCH_COLUMNS,
    Counter,
    LaunchConfigurations,
    device_title,
)
from traceview.traces.timeline.timeline import Leaves, Timeline, leaves, opening_window, timeline
from traceview.traces.timeline.tracks import CLASSES, Lane, NameTable
from traceview.traces.trace import Trace, fact

# Numbers and text packed for a page: byte planes, deflated, as characters.
#
# The first plane holds the lowest byte of every number, the next one the second byte, and so on:
# bytes of equal weight are alike, which halves what deflate leaves. Most of it is noise, so the
# characters count: two of 91 hold 13 bits, which takes a thirteenth less than base64.

_TOGETHER = 1 << 15
"""Parts with fewer rows are packed together with the following ones."""
_LEVEL = 3
"""The zlib level. Higher levels take more than twice the time to save a twentieth."""
_LINE_BREAK = 0x0A
_PLACE = "\0packed\0"
"""Placeholder for packed data in a document. No visible text contains a NUL character."""


def packed_numbers(values: Array, *, patterned: bool = True) -> dict[str, bytes | int]:
    """Pack numbers ≥ 0: their count, the number of byte planes, and the deflated planes.

    `patterned` means that sequences of values recur, as with names. For other columns, such as
    times, deflate only looks for runs, which takes a third of the time and packs smaller.
    """
    return packed_parts((values,), patterned=patterned)


def packed_parts(parts: Iterable[Array], *, patterned: bool = True) -> dict[str, bytes | int]:
    """Pack numbers that come in parts like `packed_numbers`, without holding all at once."""
    each = list(map(_planes, _gathered(parts)))
    ends = list(accumulate((part.shape[1] for part in each), initial=0))
    planes = np.zeros((max(map(len, each), default=1), ends[-1]), np.uint8)
    for part, first, end in zip(each, ends, ends[1:], strict=False):
        planes[: len(part), first:end] = part
    strategy = zlib.Z_DEFAULT_STRATEGY if patterned else zlib.Z_RLE
    data = _packed_bytes(planes.data, strategy)
    return {"rows": planes.shape[1], "planes": len(planes), "data": data}


def _gathered(parts: Iterable[Array]) -> Iterator[Array]:
    """Merge short parts: a thousand streams yield a thousand parts."""
    short: list[Array] = []
    for part in parts:
        short.append(part)
        if sum(map(len, short)) >= _TOGETHER:
            yield np.concatenate(short) if len(short) > 1 else part
            short = []
    if short:
        yield np.concatenate(short)


def _planes(values: Array) -> npt.NDArray[np.uint8]:
    """The byte planes of the numbers: as many as the greatest one needs, at least one."""
    values = np.ascontiguousarray(values)
    width = max((int(values.max(initial=0)).bit_length() + 7) // 8, 1)
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, values.itemsize)[:, :width].T)


def _packed_bytes(data: bytes | memoryview, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    packing = zlib.compressobj(_LEVEL, strategy=strategy)
    return as_characters(packing.compress(data) + packing.flush())


_CHARACTERS = bytes(sorted({*range(0x21, 0x7F)} - {*b'"<\\'}))
"""91 characters that need no escapes in a string of JSON in a script element."""
_GROUP, _SINGLE = 13, 6
"""Bits in two characters, and in one."""
_PAIRS = np.frombuffer(
    bytes(_CHARACTERS[value // place % 91] for value in range(1 << _GROUP) for place in (1, 91)),
    np.uint16,
)


def as_characters(data: bytes) -> bytes:
    """Bytes as characters: two for each 13 bits, first bits first; one for 6 bits or less at the
    end, where zeroes fill up."""
    groups, rest = divmod(8 * len(data), _GROUP)
    pairs = groups + (rest > _SINGLE)
    blocks = groups // 8 + 1
    # Eight groups of 13 bits are 13 bytes; a group lies in three of them.
    content = np.zeros(_GROUP * blocks + 2, np.uint8)
    content[: len(data)] = np.frombuffer(data, np.uint8)
    numbers = np.empty((blocks, 8), np.uint16)
    for place in range(8):
        byte, bit = divmod(_GROUP * place, 8)
        a, b, c = (content[byte + at :][: _GROUP * blocks : _GROUP] for at in range(3))
        whole = (a.astype(np.uint32) << 16) | (b.astype(np.uint32) << 8) | c
        numbers[:, place] = whole >> (24 - _GROUP - bit) & ((1 << _GROUP) - 1)
    last = numbers.ravel()[groups : groups + 1] >> (_GROUP - _SINGLE)
    single = bytes(_CHARACTERS[value] for value in last.tolist()) if 0 < rest <= _SINGLE else b""
    return _PAIRS[numbers.ravel()[:pairs]].tobytes() + single


def packed_texts(texts: Sequence[str]) -> dict[str, bytes | int]:
    """Pack texts as lines in UTF-8; visible texts have no line breaks or lone surrogates."""
    return {"rows": len(texts), "data": _packed_bytes("\n".join(texts).encode())}


def packed_json(value: object) -> bytes:
    """Pack a value as a JSON document."""
    return _packed_bytes(json.dumps(value, separators=(",", ":")).encode())


def zigzag(values: Integers) -> Integers:
    """Signed numbers as numbers ≥ 0, small ones small: 0, −1, 1, −2 … become 0, 1, 2, 3 …"""
    result: Integers = values << 1
    result ^= values >> 63
    return result


def differences(values: Integers, before: int = 0) -> Integers:
    """The difference of each value to the previous one, which is `before` for the first."""
    result = values.copy()
    result[1:] -= values[:-1]
    result[:1] -= before
    return result


def script_json(document: Mapping[str, object]) -> str:
    """JSON as the content of a script element, escaped so that no text can end the element.

    Packed data need no escapes, so they are inserted unchanged.
    """
    packed: list[str] = []

    def place(data: bytes) -> str:
        packed.append(data.decode("ascii"))
        return _PLACE

    text = json.dumps(document, separators=(",", ":"), default=place).replace("<", "\\u003c")
    rest = text.split(json.dumps(_PLACE))
    quoted = (f'"{data}"' for data in packed)
    return "".join(chain.from_iterable(zip(rest, (*quoted, ""), strict=True)))


_WIDTH, _SLOTS, _SLOTS_OF_ALL = 1000, 500, 8_000
_ROW, _PHASE, _TITLE, _GAP = 40, 12, 15, 6
_LEAST_PHASE = 2


def strip(trace: Trace, timeline: Timeline) -> Markup:
    """The strip as an SVG as wide as the page."""
    each = busy(trace)
    slots = min(_SLOTS, _SLOTS_OF_ALL // max(len(each), 1))
    edges = np.linspace(timeline.start_ns, timeline.end_ns, slots + 1).astype(np.int64)
    parts, y = [], 0
    for device, covered in each.items():
        parts += [_title(device_title(trace, device), y), _busy_path(covered, edges, y + _TITLE)]
        y += _TITLE + _ROW + _GAP
    for lane in (lane for lane in timeline.lanes if lane.kind == "phases"):
        parts += [_title(lane.title, y), *_phases(lane, timeline, y + _TITLE)]
        y += _TITLE + _PHASE + _GAP
    length = units.duration(timeline.end_ns - timeline.start_ns)
    return Markup(  # noqa: S704 - numbers of ours, and escaped text
        f'<svg viewBox="0 0 {_WIDTH} {max(y, 1)}" role="img" '
        f'aria-label="GPU busy share over {length}">{"".join(parts)}</svg>'
    )


def _title(text: str, y: int) -> str:
    shown = escape(visible(text, 120))
    return f'<text x="0" y="{y + 11}" font-size="11" fill="currentColor">{shown}</text>'


def _busy_path(covered: Intervals, edges: Integers, y: int) -> str:
    """SVG path of the covered fraction of each time slot, a filled step line."""
    share = intervals.overlap(covered, edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)
    tops = (y + _ROW - share * (_ROW - 1)).round(1).tolist()
    step = _WIDTH / (len(edges) - 1)
    line = "".join(f"V{top:g}h{step:g}" for top in tops)
    ground = f'<rect x="0" y="{y + _ROW - 1}" width="{_WIDTH}" height="1" fill="currentColor"/>'
    return f'{ground}<path class="c-gpu-work" d="M0 {y + _ROW}{line}V{y + _ROW}Z"/>'


def _phases(lane: Lane, timeline: Timeline, y: int) -> Iterator[str]:
    scale = _WIDTH / max(timeline.end_ns - timeline.start_ns, 1)
    for track in lane.tracks:
        rows = zip(track.start_ns.tolist(), track.end_ns.tolist(), track.name.tolist(), strict=True)
        for start, end, name in rows:
            left, width = (start - timeline.start_ns) * scale, (end - start) * scale
            if width < _LEAST_PHASE:
                continue
            text = timeline.names.text(name)
            yield (
                f'<rect class="{color_class(text) or ""}" x="{left:.1f}" y="{y}" '
                f'width="{width:.1f}" height="{_PHASE}">'
                f"<title>{escape(text)}, {units.duration(end - start)}</title></rect>"
            )


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
    # Of the leaves that stand for several rows. Where all rows of a track are of one class, that
    # has the time in which they are busy.
    by_class = [
        (number, kind, busy[each.count > 1])
        for number, each in summed
        if len(times := each.busy_by_class(classes)) > 1
        for kind, busy in times.items()
    ]
    parts: dict[str, Iterator[Array]] = {
        "gap": (_gaps(each, timeline.start_ns) for each in every),
        "duration": (each.duration_ns for each in every),
        "name": (names.take(each.name) for each in every),
        "bytes": (each.sums(each.track.bytes) for each in worked),
        "link": _links(trace, every, of_calls),
        "count": (each.count for _, each in summed),
        "pauses": (each.duration_ns - each.busy_ns for _, each in summed),
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


MOST_POINTS, MOST_POINTS_OF_ALL = 60_000, 160_000
"""Most points of a counter, and of all; of a counter with more, the least and greatest value per
time slot are kept."""
Document = dict[str, object]


def timeline_document(trace: Trace, whole: Timeline) -> Document:
    """The document that the script reads: numbers, lists, packed columns and safe text."""
    opening = opening_window(whole)
    every = leaves(whole, opening)
    names, of_calls = whole.names.table(each.name for each in every), leaves_of_calls(trace, every)
    following = iter(every)
    return {
        "origin": str(whole.start_ns),
        "end": whole.end_ns - whole.start_ns,
        "window": [edge - whole.start_ns for edge in opening.shown],
        "classes": CLASSES,
        "causes": {each.name: each.meaning for each in CAUSES},
        "launch_columns": LAUNCH_COLUMNS,
        "names": _names(names, whole.launches),
        "lanes": [
            {
                "kind": lane.kind,
                "title": visible(lane.title, 200),
                "group": visible(device_title(trace, lane.device), 200) if lane.device >= 0 else "",
                "device": lane.device,
                "process": lane.process,
                "tracks": [_track(next(following)) for _ in lane.tracks],
            }
            for lane in whole.lanes
        ],
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
        # Pack visible texts in UTF-8, each followed by a NUL in `content`, like `packed_texts`.
        lines = texts.content[:-1].copy()
        lines[lines == 0] = _LINE_BREAK
        return {"rows": len(texts), "data": _packed_bytes(lines.data)}
    return packed_texts(all_visible(texts.every.tolist()))


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
    whole = timeline(trace, MOST_POINTS, MOST_POINTS_OF_ALL)
    document = script_json(timeline_document(trace, whole))
    # Escaped, so that no text can end the script element.
    return TimelineView(Markup(document), strip(trace, whole))  # noqa: S704
