"""The functions of the C library once more, in numpy and plain Python, by name.

Each takes what the one in C takes, with arrays in place of addresses. `in_place_of_c` lets the
whole package call these, so that anything it says can be compared with and without C.
"""

import ctypes
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from traceview.base.compiled import library
from traceview.traces.facts.dependencies.blame import IdlePart
from traceview.traces.trace.kineto.scanner import ScanStop

Array = np.ndarray[Any, Any]
PLAIN: dict[str, Callable[..., Any]] = {}


def call(name: str, *given: Any) -> Any:
    """As `library.call`; the arguments are converted, and refused, as for C."""
    kinds = library._FUNCTIONS[name].split()[1:]
    arguments = [
        library._ARGUMENTS[kind].from_param(value).array if kind[-1] in "841y" else value
        for kind, value in zip(kinds, given, strict=True)
    ]
    return PLAIN[name](*arguments)


@contextmanager
def in_place_of_c() -> Iterator[None]:
    """No code of the C library runs within."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "call", call)
        yield


def without_c(work: Callable[[], Any]) -> Any:
    with in_place_of_c():
        return work()


def plain(twin: Callable[..., Any]) -> Callable[..., Any]:
    PLAIN[f"traceview_{twin.__name__}"] = twin
    return twin


def column(address: int, kind: type, count: int) -> Array:
    """The array at an address that a structure holds."""
    size = np.dtype(kind).itemsize * count
    if not size or not address:
        return np.zeros(0, kind)
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), kind)


# Intervals.


def united(start: Array, end: Array) -> tuple[Array, Array]:
    real = end > start
    start, end = start[real], end[real]
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    opens = np.append(True, start[1:] > reach[:-1])
    return start[opens], reach[np.append(opens[1:], True)]


def fill(found: Any, start: Array, end: Array) -> None:
    for room, values in zip(found._room, (start, end), strict=True):
        room[: len(values)] = values
    found.count = len(start)


@plain
def union(start: Array, end: Array, rows: int, least: int, found: Any) -> None:
    if least == 2:
        real = end > start
        start, end = start[real], end[real]
        # Of all intervals that began before, the one with the latest end is open the longest.
        reach = np.maximum.accumulate(end)[:-1]
        start, end = start[1:], np.minimum(end[1:], np.maximum(reach, start[1:]))
    fill(found, *united(start, end))


@plain
def union_on_lanes(
    lane: Array,
    start: Array,
    end: Array,
    rows: int,
    lanes: int,
    firsts: Array,
    ends: Array,
    found: Any,
) -> None:
    each = [united(start[lane == number], end[lane == number]) for number in range(lanes)]
    ends[:] = np.cumsum([len(start) for start, _ in each])
    both = zip(*each, strict=True) if each else ([start[:0]], [end[:0]])
    fill(found, *map(np.concatenate, both))


@plain
def places(ordered: Array, _: int, values: Array, __: int, right: int, found: Array) -> None:
    found[:] = np.searchsorted(ordered, values, side="right" if right else "left")


def is_inside(start: Array, end: Array, time: Array) -> Array:
    begun = np.searchsorted(start, time, side="right")
    return (begun > 0) & (time < np.append(end, 0)[begun - 1])


@plain
def rows_inside(
    start: Array, end: Array, _: int, time: Array, __: int, rows: Array, found: Any
) -> None:
    inside = np.flatnonzero(is_inside(start, end, time))
    rows[: len(inside)], found.value = inside, len(inside)


def complement(start: Array, end: Array, first: int, last: int) -> tuple[Array, Array]:
    """The part of [first, last) outside a union."""
    begin = np.append([first], np.clip(end, first, last))
    stop = np.append(np.clip(start, first, last), [last])
    return begin[stop > begin], stop[stop > begin]


@plain
def intersection(
    start: Array, end: Array, _: int, other_start: Array, other_end: Array, __: int, both: Any
) -> None:
    if not len(start) or not len(other_start):
        return
    first, last = min(start[0], other_start[0]), max(end[-1], other_end[-1])
    free = [complement(start, end, first, last), complement(other_start, other_end, first, last)]
    begin, stop = map(np.concatenate, zip(*free, strict=True))
    order = np.argsort(begin, kind="stable")
    fill(both, *complement(*united(begin[order], stop[order]), first, last))


@plain
def most_open(starts: Array, ends: Array, _: int, first: int, most: Any) -> None:
    late = starts[np.searchsorted(starts, first) :]
    # Of intervals that start together, the last one counts them all.
    begun = np.arange(len(starts) - len(late) + 1, len(starts) + 1)
    most.value = int((begun - np.searchsorted(ends, late, side="right")).max())


@plain
def covered_before(
    start: Array, end: Array, before: Array, _: int, time: Array, __: int, length: Array
) -> None:
    begun = np.searchsorted(start, time, side="right")
    left = np.maximum(np.append(end, 0)[begun - 1] - time, 0)
    length[:] = before[begun] - np.where(begun > 0, left, 0)


@plain
def outermost(
    start: Array, end: Array, rows: Array, _: int, outer: Array, begins: Array, ends: Array, n: Any
) -> str | None:
    rows = rows[end[rows] > start[rows]]
    start, end = start[rows], end[rows]
    if (np.lexsort((-end, start)) != np.arange(len(rows))).any():
        return "not in order"
    kept = np.append(True, end[1:] > np.maximum.accumulate(end)[:-1])[: len(rows)]
    start, end, n.value = start[kept], end[kept], int(kept.sum())
    filled = slice(n.value)
    outer[filled], begins[filled] = rows[kept], start
    ends[filled] = np.minimum(end, np.append(start, np.iinfo(np.int64).max)[1:])
    return None


@plain
def overlapping(start: Array, end: Array, _: int, rows: Array, found: Any, ordered: Any) -> None:
    free = start[1:] >= np.maximum.accumulate(end)[:-1]
    overlaps = np.flatnonzero(~(np.append(True, free) & np.append(free, True))[: len(start)])
    rows[: len(overlaps)], found.value = overlaps, len(overlaps)
    ordered.value = bool((np.lexsort((-end, start)) == np.arange(len(start))).all())


@plain
def running(
    begun: Array, _: int, ended: Array, __: int, times: Array, values: Array, count: Any
) -> None:
    time = np.unique(np.concatenate((begun, ended)))
    open_ = np.searchsorted(begun, time, side="right") - np.searchsorted(ended, time, side="right")
    times[: len(time)], values[: len(time)], count.value = time, open_, len(time)


# Rows and groups.


@plain
def gather(values: Array, _: int, __: int, rows: Array, *rest: Any) -> str | None:
    try:
        rest[-1][:] = values[rows]
    except IndexError as error:
        return str(error)
    return None


@plain
def group(
    numbers: Array, _: int, span: int, slots: Array, ids: Array, first: Array, n: Any
) -> None:
    distinct, begins, ids[:] = np.unique(numbers, return_index=True, return_inverse=True)
    first[: len(distinct)], n.value = begins, len(distinct)


@plain
def follows(numbers: Array, digits: Array, _: int, span: int, slots: Array, result: Any) -> None:
    first = np.zeros(span, np.int64)
    first[numbers] = digits
    result.value = bool((first[numbers] == digits).all())


@plain
def mark_values(values: Array, _: int, __: int, least: int, used: Array) -> None:
    used[np.subtract(values, least, dtype=np.int64)] = True


@plain
def mark_varied(ids: Array, values: Array, _: int, last: Array, varied: Array) -> None:
    last[ids] = values
    varied[ids[values != last[ids]]] = True


@plain
def order(values: Array, _: int, __: int, least: int, span: int, ends: Array, rows: Array) -> None:
    rows[:] = np.argsort(values, kind="stable")
    ends[:] = np.searchsorted(values[rows], np.arange(least, least + span), side="right")


@plain
def group_statistics(ids: Array, values: Array, rows: int, groups: int, of: Any) -> None:
    names = ("calls", "total", "least", "median", "most")
    calls, total, least, median, most = (
        column(getattr(of, name) or 0, np.int64, groups) for name in names
    )
    ranked = values[np.lexsort((values, ids))]
    calls[:] = np.bincount(ids, minlength=groups)
    last = np.cumsum(calls)
    first = last - calls
    low, high = ranked[first + (calls - 1) // 2], ranked[first + calls // 2]
    median[:], least[:], most[:] = low + (high - low) // 2, ranked[first], ranked[last - 1]
    total[:] = np.add.reduceat(ranked, first) if groups else 0


@plain
def different_in_groups(
    ids: Array, values: Array, _: int, groups: int, bits: Array, counts: Array
) -> None:
    pairs = np.unique(np.stack((ids, values.astype(np.int64))), axis=1)
    counts[:] = np.bincount(pairs[0], minlength=groups)


@plain
def add_by_number(numbers: Array, _: int, values: Array, __: int, sums: Array) -> None:
    # A number of −1 picks the last sum.
    added = np.append(sums, 0)
    np.add.at(added, np.maximum(numbers, -1), values)
    sums[:] = added[:-1]


@plain
def match_keys(keys: Array, *_: Any) -> int:
    """As for keys that collide, which numpy joins."""
    return 0


@plain
def sort(numbers: Array, *_: Any) -> None:
    numbers.sort()


@plain
def most_first(*_: Any) -> int:
    """As for values of too great a range, which numpy sorts."""
    return 0


@plain
def number_values(table: Any, values: Array, _: int, __: int, numbers: Array) -> str | None:
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    if len(distinct) > table.most:
        return "too many"
    by_appearance = np.argsort(first)
    column(table.values, np.int64, table.most)[: len(distinct)] = distinct[by_appearance]
    place = np.empty(len(distinct), np.int32)
    place[by_appearance] = np.arange(len(distinct))
    numbers[:], table.count = place[inverse], len(distinct)
    return None


# Trees of ranges.


@plain
def nest(start: Array, end: Array, bounds: Array, _: int, parent: Array, crossing: Array) -> None:
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        parent[first:last] = containing(end[first:last], first)
        crossing[number] = crosses(start[first:last], end[first:last])


def crosses(start: Array, end: Array) -> bool:
    """Whether an interval begins within an earlier one and ends after it."""
    open_: list[int] = []
    for begin, stop in zip(start.tolist(), end.tolist(), strict=True):
        while open_ and open_[-1] <= begin:
            open_.pop()
        if open_ and open_[-1] < stop:
            return True
        open_.append(stop)
    return False


def containing(end: Array, first: int) -> Array:
    """The latest-started interval that contains each interval of a track, or −1."""
    parent = np.full(len(end), -1, np.int64)
    around: list[tuple[int, int]] = []
    for row, last in enumerate(end.tolist()):
        while around and around[-1][0] < last:
            around.pop()
        if around:
            parent[row] = around[-1][1]
        around.append((last, first + row))
    return parent


@plain
def in_nesting_order(track: Array, start: Array, end: Array, rows: int, result: Any) -> None:
    result.value = bool((np.lexsort((-end, start, track)) == np.arange(rows)).all())


@plain
def innermost(
    start: Array,
    end: Array,
    parent: Array,
    bounds: Array,
    tracks: int,
    _: Array,
    track: Array,
    time: Array,
    __: int,
    result: Array,
) -> None:
    result[:] = -1
    for number in range(tracks):
        asked = np.flatnonzero(track == number)
        begun = np.searchsorted(start[bounds[number] : bounds[number + 1]], time[asked], "right")
        result[asked] = np.where(begun > 0, bounds[number] + begun - 1, -1)
    # The open interval is the one that started last or one of its ancestors.
    ended = np.flatnonzero((result >= 0) & (np.append(end, 0)[result] <= time))
    while len(ended):
        result[ended] = row = parent[result[ended]]
        ended = ended[(row >= 0) & (end[row] <= time[ended])]


@plain
def nearest(value: Array, parent: Array, rows: Array, _: int, result: Array) -> None:
    result[:] = -1
    places = np.flatnonzero(rows >= 0)
    at = rows[places]
    while len(places):
        result[places] = np.maximum(value[at], -1)
        at = np.where(value[at] < 0, parent[at], -1)
        places, at = places[at >= 0], at[at >= 0]


@plain
def inherited(value: Array, parent: Array, rows: int, result: Array) -> None:
    nearest(value, parent, np.arange(rows), rows, result)


@plain
def depths(parent: Array, _: int, depth: Array) -> None:
    depth[:], above = 0, parent
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)


@plain
def mark_around(parent: Array, rows: Array, _: int, marked: Array) -> None:
    while len(rows):
        marked[rows] = True
        above = np.unique(parent[rows])
        above = above[above >= 0]
        rows = above[~marked[above].astype(bool)]


@plain
def own_time(start: Array, end: Array, parent: Array, _: int, own: Array) -> None:
    # The parent −1, for none, is the last.
    time = np.append(end - start, 0)
    np.subtract.at(time, parent, end - start)
    # Intervals that overlap without nesting share time.
    own[:] = np.maximum(time, 0)[:-1]


@plain
def sum_nested(
    start: Array,
    end: Array,
    parent: Array,
    number: Array,
    rows: int,
    room: Array,
    total: Array,
    own: Array,
) -> None:
    own_time(start, end, parent, rows, room)
    np.add.at(total, number, end - start)
    np.add.at(own, number, room)


@plain
def number_paths(around: Array, name: Array, rows: int, path: Array, of: Any) -> None:
    """As where searching siblings would take long, so that levels are sorted."""
    of.steps = 0


@plain
def add_to_parents(parent: Array, rows: int, numbers: Array) -> None:
    # A path has a higher number than its parent.
    for row in range(rows - 1, -1, -1):
        if parent[row] >= 0:
            numbers[parent[row]] += numbers[row]


# Texts.

_INDEXES: defaultdict[int, dict[bytes, int]] = defaultdict(dict)


@plain
def index_texts(table: Any) -> None:
    """A dictionary needs no index."""


@plain
def number_texts(
    table: Any, content: Array, starts: Array, sizes: Array, _: int, numbers: Array
) -> None:
    ends, stored = (
        column(table.starts, np.int64, table.most_texts + 1),
        column(table.content, np.uint8, table.most_bytes),
    )
    index = _INDEXES[id(table)]
    if not table.texts:
        index.clear()
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        raw = content[start : start + size].tobytes()
        numbers[row] = number = index.setdefault(raw, len(index))
        if number == table.texts:
            begin = int(ends[number])
            ends[number + 1] = begin + size + 1
            stored[begin : begin + size + 1] = np.frombuffer(raw + b"\0", np.uint8)
            table.texts += 1


_WITHIN_A_WORD = re.compile(rb"(?<=[A-Za-z])[0-9]+(?=[A-Za-z])|([0-9]+)")


@plain
def zero_numbers(text: Array, _: int) -> None:
    zeroed = _WITHIN_A_WORD.sub(
        lambda match: b"0" * len(match[0]) if match[1] else match[0], text.tobytes()
    )
    text[:] = np.frombuffer(zeroed, np.uint8)


@plain
def mark_numbers(text: Array, _: int, result: Array, size: ctypes.c_int64) -> None:
    marked = _WITHIN_A_WORD.sub(lambda match: b"#" if match[1] else match[0], text.tobytes())
    result[: len(marked)] = np.frombuffer(marked, np.uint8)
    size.value = len(marked)


@plain
def read_numbers(
    content: Array, starts: Array, form: Array, _: int, begin: Array, digits: Array, result: Array
) -> None:
    for row, of in enumerate(form.tolist()):
        if digits[of]:
            first = int(starts[row] + begin[of])
            result[row] = int(content[first : first + int(digits[of])].tobytes())


@plain
def holds(content: Array, _: int, part: bytes, __: int) -> int:
    return int(part in content.tobytes())


@plain
def pick_texts(
    content: Array, starts: Array, sizes: Array, numbers: Array, _: int, result: Array
) -> None:
    texts = (
        content[starts[each] : starts[each] + sizes[each]].tobytes() for each in numbers.tolist()
    )
    result[:] = np.frombuffer(b"".join(text + b"\0" for text in texts), np.uint8)


# Readers. Whatever these leave out is read by SQLite, or by the decoder of events.


@plain
def count_rows(*_: Any) -> str:
    return "SQLite reads it"


@plain
def decode(*_: Any) -> str:
    return "SQLite reads it"


@plain
def scan_events(scan: Any) -> None:
    scan.rows[:] = [0] * len(scan.rows)
    scan.events = scan.others = scan.details = 0
    scan.stopped = ScanStop.IS_ODD


_NARROW = [2**8 - 1, 2**16 - 1, 2**32 - 1]


def steps_or_values(values: Array, by_steps: int) -> Array:
    """The values, or the steps to them; the first step is arbitrary, so that of the second row."""
    flat = values.reshape(-1)
    return np.diff(flat, prepend=2 * flat[:1] - flat[1:2]) if by_steps else flat


@plain
def spread(values: Array, _: int, by_steps: int, found: Any) -> None:
    null = np.iinfo(np.int64).min
    flat = steps_or_values(values, by_steps)
    # Absent values (NULL, the minimum of int64) wrap, and so count as far above the least one.
    present = flat[flat != null]
    least = int(present.min()) if len(present) else null
    above = flat.view(np.uint64) - np.uint64(least % 2**64)
    found.least, found.most = least % 2**64, int(above.max())
    found.beyond[:] = [int(np.count_nonzero(above > most)) for most in _NARROW]


@plain
def pack(
    values: Array,
    _: int,
    by_steps: int,
    least: int,
    size: int,
    above: Array,
    far_rows: Array,
    far: Array,
) -> None:
    wide = steps_or_values(values, by_steps).view(np.uint64) - np.uint64(least)
    rows = np.flatnonzero(wide > np.iinfo(above.dtype).max)
    above[:], far_rows[:], far[:] = wide.astype(above.dtype), rows, wide[rows]


# Dependencies.

_LAUNCH, _LOOSE, _HELD_NS, _NEVER = 1, 128, 20_000, np.iinfo(np.int64).min


@plain
def bind(
    made: Any,
    items: int,
    start: Array,
    end: Array,
    time: Array,
    first: Array,
    on: Array,
    lag: Array,
    kind: Array,
) -> None:
    kinds = (("of", np.int32), ("on", np.int32), ("lag", np.int64), ("kind", np.uint8))
    of, to, least, why = (column(getattr(made, name), each, made.count) for name, each in kinds)
    loose = column(made.loose, np.uint8, made.count) != 0
    order = np.argsort(of, kind="stable")
    first[:] = np.searchsorted(of[order], np.arange(items + 1))
    on[:], lag[:], kind[:] = to[order], least[order], why[order]
    of, loose = of[order], loose[order]
    ready = np.where(kind == _LAUNCH, start[on], end[on])
    latest = np.full(items, _NEVER)
    np.maximum.at(latest, of[~loose], (ready + lag)[~loose])
    since = time[of] - ready
    binds = ~loose & (ready + lag == latest[of])
    lag[:] = np.where(binds, since, np.minimum(lag, since - 1))


class _Edges:
    """The edges of a graph by item, as (item waited for, lag, whether it is a launch)."""

    def __init__(self, edges: Any, items: int) -> None:
        self.first = column(edges.first, np.int64, items + 1).tolist()
        count = self.first[-1]
        self.on = column(edges.on, np.int32, count).tolist()
        self.lag = column(edges.lag, np.int64, count).tolist()
        self.kind = column(edges.kind, np.uint8, count).tolist()

    def of(self, item: int) -> Iterator[int]:
        yield from (at for at in range(self.first[item], self.first[item + 1]) if self.on[at] >= 0)

    def ready(self, at: int, start: Any, end: Any) -> int:
        times = start if self.kind[at] == _LAUNCH else end
        return int(times[self.on[at]]) + int(self.lag[at])

    def binding(self, item: int, start: Any, end: Any) -> int:
        """The edge that explains the recorded times: the first of the latest ones, or −1."""
        return max(self.of(item), key=lambda at: self.ready(at, start, end), default=-1)


@plain
def replay(graph: Any, start: Array, end: Array) -> None:
    begin, finish = _Edges(graph.begin, graph.items), _Edges(graph.finish, graph.items)
    recorded = column(graph.start, np.int64, graph.items).tolist()
    own = column(graph.own, np.int64, graph.items).tolist()
    for entry in column(graph.order, np.int32, graph.entries).tolist():
        edges, item = (begin, entry) if entry >= 0 else (finish, ~entry)
        times = [edges.ready(at, start, end) for at in edges.of(item)]
        if entry >= 0:
            start[item] = max(times, default=recorded[item])
            end[item] = start[item] + own[item]
        else:
            end[item] = max([int(end[item]), *times])


@plain
def walk(graph: Any, since: Array, until: Array, after: Array, gaps: int, parts: Any) -> None:
    back = _Walk(graph)
    found = [
        (gap, *part)
        for gap in range(gaps)
        for part in back.parts(int(since[gap]), int(until[gap]), int(after[gap]))
    ]
    parts.count = len(found)
    if parts.count > parts.room:
        return
    kinds = {
        "gap": np.int32,
        "start": np.int64,
        "end": np.int64,
        "kind": np.uint8,
        "item": np.int32,
    }
    for place, (name, kind) in enumerate(kinds.items()):
        column(getattr(parts, name), kind, parts.count)[:] = [part[place] for part in found]


class _Walk:
    """Gaps from their end back to their start; the kinds of parts are those of `IdlePart`."""

    def __init__(self, graph: Any) -> None:
        self.calls, self.items, self.latency = graph.calls, graph.items, graph.latency
        names = ("start", "end", "own")
        self.start, self.end, self.own = (
            column(getattr(graph, name), np.int64, graph.items).tolist() for name in names
        )
        self.begin = _Edges(graph.begin, graph.items)
        self.finish = _Edges(graph.finish, graph.items)

    def parts(self, since: int, until: int, item: int) -> Iterator[tuple[int, int, int, int]]:
        """(start, end, kind, item) of each part, those of no length left out."""
        time, left = until, 2 * self.items
        while time > since and left > 0:
            left -= 1
            at = self.begin.binding(item, self.start, self.end) if item >= 0 else -1
            if at < 0:
                break
            steps = self._behind_call(item, at, time) if item < self.calls else None
            steps = steps or self._behind_work(item, at, time)
            for begin, kind, of, following in steps:
                if time > max(begin, since):
                    yield max(begin, since), time, kind, of
                time, item = min(begin, time), following
                if time <= since:
                    return
        if time > since:
            yield since, time, IdlePart.UNKNOWN, -1

    def _behind_work(self, item: int, at: int, time: int) -> list[tuple[int, int, int, int]]:
        """Of an operation: (start of the part, its kind, its item, where the walk is then)."""
        on = self.begin.on[at]
        if self.begin.kind[at] != _LAUNCH:
            return [
                (self.end[on], IdlePart.PITCH, on, on),
                (self.start[on], IdlePart.OTHER, on, on),
            ]
        usual = max(self.start[on] + self.latency, self.end[on])
        held = [(usual, IdlePart.HELD, item, item)] if time > usual + _HELD_NS else []
        return [*held, (self.start[on], IdlePart.LAUNCH, on, on)]

    def _behind_call(self, item: int, at: int, time: int) -> list[tuple[int, int, int, int]]:
        on = self.begin.on[at]
        kind = IdlePart.WAKE if self.begin.kind[at] else IdlePart.HOST
        steps = [(self.end[on], kind, item, on)]
        time = min(self.end[on], time)
        at = self.finish.binding(on, self.start, self.end)
        waited = self.finish.on[at] if at >= 0 else -1
        free = self.start[on] + self.own[on]
        if (
            waited >= 0
            and self.end[waited] + self.finish.lag[at] >= time > free
            and self.end[waited] > self.start[on]
        ):
            work = (self.start[waited], IdlePart.OTHER, waited, waited)
            return [*steps, (self.end[waited], IdlePart.TAIL, on, waited), work]
        return [*steps, (self.start[on], IdlePart.CALL, on, on)]
