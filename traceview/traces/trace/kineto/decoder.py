"""Events decoded from a text in their order, whatever of it is damaged or not escaped.

One rule tells where an event ends, and neither the chunks of the text nor what the compiled scanner
has read before changes it. An event is a JSON value with a comma, the end of the list or the end of
the file behind it. Anything else is damaged up to where the next event seems to begin, or the list
to end. Where the repaired text ends inside a string or object, what seemed to begin lies in there,
so that the damage goes on. Whatever needs more text to be decided waits for it.

Each part of the text is given to the decoder and to the repair a bounded number of times.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from traceview.base.records import record
from traceview.traces.trace.kineto.events import MANY, KinetoEvent, decode_events, no_events
from traceview.traces.trace.kineto.scanner import BETWEEN_EVENTS

# Events of malformed JSON: libkineto does not escape what it writes.
#
# Names with quotes, backslashes or control characters break the syntax, as do `nan` and bytes
# that are not UTF-8. Each value of libkineto's is followed by the next key or by the end of its
# line, which shows where a string ends.

_NAME = rb'"[A-Za-z][\w .%()/#-]{0,60}":'
_VALUE = re.compile(_NAME + rb'\s*"')
# A value ends before the next key or the end of its object. Between two tokens is at most one
# unbounded repetition of white space, so that a search takes time in proportion to the text.
_END = re.compile(rb'"(?=\s*(?:\}|,\s*(?:\}|' + _NAME + rb'))|\s*,[^\S\n]*\n\s*"|[^\S\n]*\n\s*,)')
_NUMBER = re.compile(rb'(":\s*)(?:-?nan|-?inf(?:inity)?)(?=\s*[,}])', re.IGNORECASE)
_ESCAPE_OR_ODD = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\\x00-\x1f]')


def repaired(event: bytes) -> tuple[bytes, bool]:
    """The text of one event with its strings escaped and its numbers made valid JSON.

    Also whether the text ends inside of a string. Time and memory are linear in its length.
    """
    text = _NUMBER.sub(rb"\1null", event)
    parts, at = [], 0
    is_open = False
    while value := _VALUE.search(text, at):
        end = _END.search(text, value.end())
        if end is None:
            is_open = True
            break
        parts += [
            text[at : value.end()],
            _ESCAPE_OR_ODD.sub(_escape, text[value.end() : end.start()]),
        ]
        at = end.start()
        # The quote that ends a value begins no key.
        parts.append(text[at : at + 1])
        at += 1
    whole = b"".join([*parts, text[at:]])
    return whole.decode("utf-8", "replace").encode(), is_open


def _escape(match: re.Match[bytes]) -> bytes:
    odd = match[0]
    if len(odd) > 1:
        return odd
    return b"\\" + odd if odd in (b'"', b"\\") else b"\\u%04x" % odd[0]


MOST_EVENT_BYTES = 1 << 24
"""Longest event, with the space before it, and most text before or after the list of events. The
longest event of the recordings in tests/data has 913 bytes, the longest header 1,455; the ranks of
ten process groups of 10,000 ranks would take 600 kB."""
CAREFUL_BYTES = 1 << 16
"""Text that is read event by event before the rest of it is tried at once again."""
_FIELD = rb'\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args)"\s*:'
_EVENT = re.compile(_FIELD)
_NEXT_EVENT = re.compile(rb"\}\s*,\s*(?=" + _FIELD + rb")")
_CLOSING = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"|\}|\Z))')
_SPACE = re.compile(rb"[ \t\r\n]*")
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_MOST_JOINED = 8
"""Most pieces that are repaired together, as what seems to be a next event may lie in a string."""
_MOST_ENDS = 3
"""Most places within a damaged event at which the list of events may end."""
_MOST_UNCLOSED = 16
"""Events without an end that are searched for it in all of MOST_EVENT_BYTES; then in less."""
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ANY = msgspec.json.Decoder(msgspec.Raw)


class Stop(IntEnum):
    """Why decoding stopped: there are more events, more text is needed, the list has ended."""

    HAS_MORE, NEEDS_MORE, ENDED = range(3)


@record
class DecodedPart:
    """Events, the offset at which the next one begins, or `]` if the list has ended."""

    events: list[KinetoEvent]
    end: int
    stop: Stop


class _Item(IntEnum):
    """What is found where an event should begin."""

    EVENT, DAMAGED, UNCLOSED, NO_MORE, CLOSING = range(5)


@dataclass
class EventDecoder:
    """Decodes the events of a text, CAREFUL_BYTES of it at a time.

    `mended` counts damaged events that were repaired, `unreadable` the others. `truncated` is True
    if the text ends before the list of events.
    """

    mended: int = 0
    unreadable: int = 0
    truncated: bool = False
    unclosed: int = 0
    _foreign: int = 0

    def part(self, text: bytes, at: int, end: int, *, is_last: bool) -> DecodedPart:
        """Some events from offset `at` on; `is_last` if the file ends at `end`."""
        if cut := last_boundary(text, at, min(at + CAREFUL_BYTES, end)):
            with suppress(*_ERRORS):
                events = decode_events(b"[" + text[at : cut.start() + 1] + b"]")
                return DecodedPart(events, cut.end(), Stop.HAS_MORE)
        return self._one_by_one(text, at, end, is_last)

    @property
    def meets_many_unclosed(self) -> bool:
        """Whether so many events have no end that no more text should be read ahead for one."""
        return self.unclosed > _MOST_UNCLOSED

    def _one_by_one(self, text: bytes, at: int, end: int, is_last: bool) -> DecodedPart:
        events: list[KinetoEvent] = []
        limit = at + CAREFUL_BYTES
        while True:
            item, at = self._values(text, at, end, limit, is_last, events)
            if item == _Item.EVENT:
                return DecodedPart(events, at, Stop.HAS_MORE)
            if item == _Item.CLOSING:
                closing = _list_end(text, at, end, is_last)
                if closing is not None:
                    return DecodedPart(events, at, Stop.ENDED if closing else Stop.NEEDS_MORE)
            elif item == _Item.NO_MORE:
                self.truncated |= is_last
                return DecodedPart(events, end if is_last else at, Stop.NEEDS_MORE)
            after = self._damaged(text, at, end, is_last, events)
            if after is None:
                return DecodedPart(events, at, Stop.NEEDS_MORE)
            self.unclosed += item == _Item.UNCLOSED
            at = after

    def _values(
        self, text: bytes, at: int, end: int, limit: int, is_last: bool, events: list[KinetoEvent]
    ) -> tuple[_Item, int]:
        """Decode events up to the first that is none, or to `limit`; return what is there."""
        spans = []
        item, after = _Item.EVENT, at
        while item == _Item.EVENT and after < limit:
            at = after
            item, stop, after = self._value(text, at, end, is_last)
            if item == _Item.EVENT:
                spans.append((at, stop))
        self._decode(text, spans, events)
        return item, after

    def _value(self, text: bytes, at: int, end: int, is_last: bool) -> tuple[_Item, int, int]:
        """What is at an offset; the end of the event; the offset behind it and its comma."""
        start = _after_space(text, at, end)
        if start == end:
            return _Item.NO_MORE, at, at
        if text[start] == _CLOSE:
            return _Item.CLOSING, at, start
        if text[start] != _OPEN:
            self._foreign += 1
            if self._foreign > MANY:
                raise no_events()
        stop, is_unclosed = self._end_of_value(text, at, end, is_last)
        if stop < 0:
            kind = _Item.UNCLOSED if is_unclosed else _Item.NO_MORE
            return (_Item.DAMAGED if stop == _MALFORMED else kind), at, at
        after = _after_space(text, stop, end)
        if after == end:
            return (_Item.EVENT, stop, end) if is_last else (_Item.NO_MORE, at, at)
        if text[after] == _COMMA:
            return _Item.EVENT, stop, after + 1
        return (_Item.EVENT, stop, after) if text[after] == _CLOSE else (_Item.DAMAGED, at, at)

    def _end_of_value(self, text: bytes, at: int, end: int, is_last: bool) -> tuple[int, bool]:
        """As _value_end; and whether a value without an end seems to contain the next events."""
        for most in (CAREFUL_BYTES, MOST_EVENT_BYTES)[not self.meets_many_unclosed :]:
            window = min(at + most, end)
            stop = _value_end(text, at, window)
            if stop >= 0 and stop == window < end:
                stop = _INCOMPLETE
            if stop != _INCOMPLETE:
                break
            if (window < end or is_last) and _NEXT_EVENT.search(text, at, window):
                return stop, True
        return stop, False

    def _decode(self, text: bytes, spans: list[tuple[int, int]], events: list[KinetoEvent]) -> None:
        """Decode values that are JSON; repair those whose texts are no UTF-8."""
        try:
            events += decode_events(b"[" + text[spans[0][0] : spans[-1][1]] + b"]") if spans else []
        except _ERRORS:
            for start, stop in spans:
                self._decode_one(text[start:stop], events)

    def _decode_one(self, text: bytes, events: list[KinetoEvent]) -> None:
        try:
            events += decode_events(b"[" + text + b"]")
        except _ERRORS:
            if not self._repair(text, events):
                self.unreadable += 1

    def _repair(self, text: bytes, events: list[KinetoEvent]) -> bool | None:
        """Append the repaired events and return True; None if the text may only be too short."""
        fixed, is_open = repaired(text)
        try:
            some = decode_events(b"[" + fixed + b"]")
        except _ERRORS:
            return None if is_open or _value_end(fixed, 0, len(fixed)) == _INCOMPLETE else False
        events += some
        self.mended += len(some)
        return True

    def _damaged(
        self, text: bytes, at: int, end: int, is_last: bool, events: list[KinetoEvent]
    ) -> int | None:
        """Repair or count a damaged event; return the offset behind it, None if unknown."""
        edge = _edge(text, at, end, is_last)
        first = edge
        for _ in range(_MOST_JOINED):
            if edge is None:
                return None
            stop, after = edge
            done = self._repair(text[at:stop], events)
            if done:
                return after
            if done is False or after == stop:
                break
            edge = _edge(text, after, end, is_last)
            if edge and _is_event(text[after : edge[0]]):
                break
        assert first is not None
        if first == (end, end):
            self.truncated = True
        else:
            self.unreadable += 1
        return first[1]


_COMMA, _CLOSE, _OPEN = b",]{"
_INCOMPLETE, _MALFORMED = -1, -2


def _after_space(text: bytes, at: int, end: int) -> int:
    match = _SPACE.match(text, at, end)
    return match.end() if match else at


def _value_end(text: bytes, at: int, end: int) -> int:
    """Offset behind the JSON value at `at`, and behind space; or why there is none."""
    try:
        _ANY.decode(memoryview(text)[at:end])
    except RecursionError:
        return _MALFORMED
    except msgspec.DecodeError as error:
        if trailing := _TRAILING.search(str(error)):
            # The decoder has read one character of what follows.
            return at + int(trailing[1]) - 1
        return _INCOMPLETE if "truncated" in str(error) else _MALFORMED
    return end


def last_boundary(text: bytes, at: int, end: int) -> re.Match[bytes] | None:
    """Where the last event before `end` seems to end and the next to begin."""
    size = 1 << 13
    while end > at:
        start = max(end - size, at)
        boundaries = deque(BETWEEN_EVENTS.finditer(text, start, end), maxlen=1)
        if boundaries or start == at:
            return boundaries[0] if boundaries else None
        size *= 8
    return None


def _edge(text: bytes, at: int, end: int, is_last: bool) -> tuple[int, int] | None:
    """The end of a damaged event and where the next may begin; None if more text shows it.

    At the end of the list, both are the offset of `]`; at that of the file, both are `end`.
    """
    boundary = BETWEEN_EVENTS.search(text, at, end)
    if boundary is None and not is_last:
        return None
    before = boundary.end() if boundary else end
    for _, match in zip(range(_MOST_ENDS), _CLOSING.finditer(text, at, before), strict=False):
        closing = _list_end(text, match.end(), end, is_last)
        if closing is not None:
            return (match.end(), match.end()) if closing else None
    return (boundary.start() + 1, boundary.end()) if boundary else (end, end)


def _list_end(text: bytes, at: int, end: int, is_last: bool) -> bool | None:
    """Whether `]` at `at` ends the list of events; None if it ends a list within a damaged event.

    False if more text shows it. Behind a list within an event, the event ends and others follow.
    """
    after = _after_space(text, at + 1, end)
    if after == end:
        return is_last
    if text[after] == _BRACE:
        after = _after_space(text, after + 1, end)
        if after < end and text[after] in b",}]":
            return None
        return after < end or is_last
    if text[after] != _COMMA:
        return True
    footer = b"{" + text[after + 1 : min(end, after + MOST_EVENT_BYTES)]
    stop = _value_end(footer, 0, len(footer))
    if 0 <= stop < len(footer):
        return None if footer[stop] in b",}]" else True
    if stop == _MALFORMED and _NEXT_EVENT.search(text, after, end):
        return None
    return is_last


_BRACE = b"}"[0]


def _is_event(text: bytes) -> bool:
    if not _EVENT.match(text):
        return False
    try:
        return bool(decode_events(b"[" + text + b"]"))
    except _ERRORS:
        return False
