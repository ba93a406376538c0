"""A Chrome trace of any size, decoded chunk by chunk.

The file is cut where an event seems to end and the next to begin. The decoder shows whether a cut
lies inside a string instead: a chunk that begins at an event and ends inside one is not JSON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from traceview.errors import TraceFormatError
from traceview.records import record
from traceview.trace.archives import BLOCK_BYTES, TruncatedArchiveError
from traceview.trace.kineto import USE_TRACE
from traceview.trace.kineto.events import KinetoEvent, decode_events
from traceview.trace.kineto.file_blocks import BETWEEN_EVENTS, blocks_of_file
from traceview.trace.kineto.repair import repaired
from traceview.trace.kineto.scan.blocks import Block, BlockScanner
from traceview.trace.kineto.scan.scanner import Scan, ScannedTable, ScanStop

Span = tuple[int, int]
CHUNK_BYTES = 1 << 24
MOST_SCANNED_BYTES = 2 * CHUNK_BYTES
"""A longer event is left to the decoder: a scan starts over with each further piece of it."""
MOST_HEADER_BYTES = 64 << 20
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
# After the last event: the next key of the trace, or its end.
_LAST = re.compile(rb'(?:[\[}]|^)\s*(\])\s*(?=,\s*"|\}|$)')
_CUTS_TRIED = 3
_JOINED = 8
"""Most neighboring spans that are repaired together, as a boundary may lie inside a string."""


@record
class ScannedEvents:
    """A scan, the events it leaves to Python, and events of which it reads only a part.

    `details` has the table and row of each such event.
    """

    scan: Scan
    others: list[KinetoEvent]
    details: list[tuple[ScannedTable, int, KinetoEvent]]


@dataclass
class ChromeTrace:
    """A reader of one trace; its attributes are complete once all events are read.

    `pieces` are the text of the trace. If that is the content of `file`, several threads read the
    events. `metadata` has the keys beside traceEvents. `truncated` is True if the file ends before
    the trace does. `mended` counts events of broken JSON that were repaired, `unreadable` the rest.
    """

    pieces: Iterator[bytes]
    file: BinaryIO | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    size: int = 0
    unreadable: int = 0
    mended: int = 0

    def chunks(self) -> Iterator[list[KinetoEvent]]:
        """The events, a chunk at a time. Raises TraceFormatError if the text has no traceEvents."""
        for chunk in self.scanned_chunks(None):
            assert not isinstance(chunk, ScannedEvents)
            yield chunk

    def scanned_chunks(
        self, scanner: BlockScanner | None
    ) -> Iterator[list[KinetoEvent] | ScannedEvents]:
        """The events, scanned where `scanner` can, else as objects. Raises TraceFormatError."""
        blocks = self._blocks()
        rest, ended, scans = b"", False, scanner is not None
        for each in scanner.ahead(blocks) if scanner else blocks:
            # If an event continues into this block, the scan that was made ahead is invalid.
            block = Block(rest + each.content) if rest else each
            if not ended and not scans:
                length, ended = yield from self._decoded_part(block.content)
                block = Block(block.content[length:])
                scans = length > 0 and scanner is not None
            if scanner and scans and not ended:
                rest, stopped = yield from self._scanned(block, scanner)
                ended = stopped == ScanStop.ENDED
                scans = stopped == ScanStop.NEEDS_MORE and len(rest) < MOST_SCANNED_BYTES
            else:
                rest = block.content
        yield from self._last(rest)

    def _blocks(self) -> Iterator[Block]:
        """The text from the first event on, cut where events seem to begin."""
        rest = self._after_header()
        if self.file is not None and hasattr(os, "pread"):
            yield from blocks_of_file(self.file, self.size - len(rest), CHUNK_BYTES)
            self.size = os.fstat(self.file.fileno()).st_size
            return
        while more := self._more(max(CHUNK_BYTES - len(rest), CHUNK_BYTES // 2)):
            text = rest + more
            boundaries = _boundaries_from_behind(text, 1)
            block = Block(text, boundaries[0][1] if boundaries else None)
            yield block
            rest = text[block.end :]
        yield Block(rest)

    def _decoded_part(self, text: bytes) -> Generator[list[KinetoEvent], None, tuple[int, bool]]:
        """Yield the events up to a late boundary; return its position in the text and False.

        Without a boundary, return 0 and whether the list of events has ended.
        """
        cut = self._cut(text)
        if cut is None:
            return 0, bool(_LAST.search(text)) or len(text) > MOST_HEADER_BYTES
        events, length = cut
        yield events
        return length, False

    def _scanned(
        self, block: Block, scanner: BlockScanner
    ) -> Generator[ScannedEvents, None, tuple[bytes, ScanStop]]:
        """Yield events until the scanner stops; return the rest of the text, and why it stopped."""
        scans = scanner.scans(block)
        for scan in scans:
            if scan.events:
                yield self._with_others(block.text, scan)
        return block.text[scans[-1].end : block.end], scans[-1].stopped

    def _with_others(self, text: bytes, scan: Scan) -> ScannedEvents:
        others = list(self._decoded(b",".join(text[start:end] for start, end in scan.others)))
        details = [
            (table, row, event)
            for table, row, (start, end) in scan.details
            for event in decode_events(b"[" + text[start:end] + b"]")
        ]
        return ScannedEvents(scan, others[0] if others else [], details)

    def _more(self, least: int) -> bytes:
        parts, size = [], 0
        try:
            for piece in self.pieces:
                parts.append(piece)
                size += len(piece)
                if size >= least:
                    break
        except TruncatedArchiveError:
            self.truncated = True
        self.size += size
        return b"".join(parts)

    def _after_header(self) -> bytes:
        """The text from the first event on."""
        text = self._more(1)
        start = text.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start[:1] == b"[":
            return start[1:]
        while not (match := _EVENTS.search(text)):
            more = self._more(BLOCK_BYTES) if len(text) < MOST_HEADER_BYTES else b""
            if not more:
                raise TraceFormatError(
                    "it is JSON without traceEvents, so not a trace of torch.profiler", USE_TRACE
                )
            text += more
        head = text[: match.start()].removeprefix(b"\xef\xbb\xbf").strip()
        self.metadata |= _object(head.removeprefix(b"{").rstrip().rstrip(b","))
        return text[match.end() :]

    def _cut(self, text: bytes) -> tuple[list[KinetoEvent], int] | None:
        """The events up to a late boundary, and the length of their text."""
        ends = _boundaries_from_behind(text, _CUTS_TRIED)
        for last, after in ends:
            try:
                return decode_events(b"[" + text[:last] + b"]"), after
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        # With so few of them, all may lie inside one string: the next text tells.
        if len(ends) < _CUTS_TRIED or _LAST.search(text):
            return None
        last, after = ends[0]
        return self._mended(text[:last]), after

    def _last(self, text: bytes) -> Iterator[list[KinetoEvent]]:
        """Yield the events at the end of the file; add the keys that follow them to `metadata`."""
        text = text.rstrip()
        chosen = None
        for match in _LAST.finditer(text):
            rest = text[match.end(1) :].strip()
            footer = _object(rest.removeprefix(b",").removesuffix(b"}")) if rest else {}
            whole = not rest or (rest.endswith(b"}") and (footer or rest == b"}"))
            if whole:
                self.metadata |= footer
                chosen = match
                break
            chosen = chosen or match
        if chosen is None:
            self.truncated = True
            cut = text.rfind(b"}")
            yield from self._truncated(text[: cut + 1])
            return
        if text[chosen.end(1) :].strip() and not whole:
            self.truncated = True
        yield from self._decoded(text[: chosen.start(1)])

    def _truncated(self, text: bytes) -> Iterator[list[KinetoEvent]]:
        """The complete events of a truncated text, whose last brace may be inside an event."""
        try:
            yield decode_events(b"[" + text + b"]")
            return
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        boundaries = _boundaries_from_behind(text, 1)
        for last, _ in boundaries:
            yield from self._decoded(text[:last])

    def _decoded(self, text: bytes) -> Iterator[list[KinetoEvent]]:
        if not text.strip():
            return
        try:
            yield decode_events(b"[" + text + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield self._mended(text)

    def _mended(self, text: bytes) -> list[KinetoEvent]:
        """The events of a text that contains malformed ones, repaired where possible."""
        edges = [0]
        ends = []
        for match in BETWEEN_EVENTS.finditer(text):
            ends.append(match.start() + 1)
            edges.append(match.end())
        ends.append(len(text))
        events: list[KinetoEvent] = []
        broken: list[Span] = []
        self._bisect(text, list(zip(edges, ends, strict=True)), events, broken)
        self._joined(text, broken, events)
        return events

    def _bisect(
        self,
        text: bytes,
        spans: list[Span],
        events: list[KinetoEvent],
        broken: list[Span],
    ) -> None:
        """Decode as many spans at a time as possible; append the undecodable ones to `broken`."""
        work = [spans]
        while work:
            some = work.pop()
            try:
                events += decode_events(b"[" + text[some[0][0] : some[-1][1]] + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError):
                if len(some) == 1:
                    broken.append(some[0])
                    continue
                half = len(some) // 2
                work += [some[half:], some[:half]]

    def _joined(self, text: bytes, broken: list[Span], events: list[KinetoEvent]) -> None:
        """Repair broken spans, each alone or joined with the next ones."""
        row = 0
        while row < len(broken):
            for count in range(1, min(_JOINED, len(broken) - row) + 1):
                joined_text = text[broken[row][0] : broken[row + count - 1][1]]
                try:
                    decoded = decode_events(b"[" + repaired(joined_text) + b"]")
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
                events += decoded
                self.mended += len(decoded)
                row += count
                break
            else:
                self.unreadable += 1
                row += 1


def _boundaries_from_behind(text: bytes, most: int) -> list[Span]:
    """(end of an event, start of the next) near the end of a text, the last pair first."""
    boundaries: list[Span] = []
    size = 1 << 13
    while len(boundaries) < most:
        start = max(len(text) - size, 0)
        boundaries = [
            (start + m.start() + 1, start + m.end()) for m in BETWEEN_EVENTS.finditer(text[start:])
        ]
        if not start:
            break
        size *= 8
    return boundaries[: -most - 1 : -1]


def _object(inner: bytes) -> dict[str, Any]:
    """The items of a JSON object given without its braces; if malformed, those after a repair."""
    for text in (inner, repaired(b"{" + inner + b"\n}").strip()[1:-1]):
        try:
            decoded = msgspec.json.decode(b"{" + text + b"}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(decoded, Mapping):
            return {str(key): value for key, value in decoded.items()}
    return {}
