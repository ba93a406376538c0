"""A Chrome trace of any size, read chunk by chunk.

The file is cut where an event seems to end and the next to begin. The scanner, and decoder.py where
it cannot read an event, take the events in order, and show whether a cut lies within one instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from traceview.base.errors import TraceFormatError
from traceview.base.records import record
from traceview.traces.trace import foreign
from traceview.traces.trace.archives import BLOCK_BYTES, TruncatedArchiveError
from traceview.traces.trace.kineto import USE_TRACE
from traceview.traces.trace.kineto.decoder import (
    MOST_EVENT_BYTES,
    EventDecoder,
    Stop,
    last_boundary,
    repaired,
)
from traceview.traces.trace.kineto.events import KinetoEvent, decode_events
from traceview.traces.trace.kineto.scanner import (
    Block,
    BlockScanner,
    Scan,
    ScannedTable,
    ScanStop,
    blocks_of_file,
)

CHUNK_BYTES = 1 << 24
_KEY = re.compile(rb'"([\w-]+)"\s*:')
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


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

    def chunks(self) -> Iterator[list[KinetoEvent] | ScannedEvents]:
        """The events, scanned where the scanner can, else as objects.

        Raises TraceFormatError if the text has no traceEvents.
        """
        blocks = self._blocks()
        scanner, decoder = BlockScanner(), EventDecoder()
        rest, stop = b"", Stop.NEEDS_MORE
        for each in scanner.ahead(blocks):
            # If an event continues into this block, the scan that was made ahead is invalid.
            block = Block(rest + each.content) if rest else each
            at, stop = yield from self._block(block, decoder, scanner)
            rest = block.text[at : block.end]
            if stop == Stop.ENDED:
                break
            if len(rest) > MOST_EVENT_BYTES:
                raise _too_long(rest)
        while stop != Stop.ENDED and rest:
            part = decoder.part(rest, 0, len(rest), is_last=True)
            yield part.events
            rest, stop = rest[part.end :], part.stop
        self._footer(rest)
        self.truncated |= decoder.truncated or stop != Stop.ENDED
        self.mended, self.unreadable = decoder.mended, decoder.unreadable

    def _block(
        self, block: Block, decoder: EventDecoder, scanner: BlockScanner
    ) -> Generator[list[KinetoEvent] | ScannedEvents, None, tuple[int, Stop]]:
        """Yield the events of a block that begins with an event; return where and why they end."""
        at = 0
        while True:
            if not decoder.meets_many_unclosed:
                at, stopped = yield from self._scanned(block, at, scanner)
                if stopped == ScanStop.NEEDS_MORE and block.end - at <= MOST_EVENT_BYTES:
                    return at, Stop.NEEDS_MORE
            part = decoder.part(block.text, at, block.end, is_last=False)
            if part.events:
                yield part.events
            at = part.end
            if part.stop != Stop.HAS_MORE:
                return at, part.stop

    def _blocks(self) -> Iterator[Block]:
        """The text from the first event on, cut where events seem to begin."""
        rest = self._after_header()
        if self.file is not None and hasattr(os, "pread"):
            yield from blocks_of_file(self.file, self.size - len(rest), CHUNK_BYTES)
            self.size = os.fstat(self.file.fileno()).st_size
            return
        while more := self._more(max(CHUNK_BYTES - len(rest), CHUNK_BYTES // 2)):
            text = rest + more
            block = Block(text, _seeming_end(text))
            yield block
            rest = text[block.end :]
        yield Block(rest)

    def _scanned(
        self, block: Block, at: int, scanner: BlockScanner
    ) -> Generator[ScannedEvents, None, tuple[int, ScanStop]]:
        """Yield events until the scanner stops; return where and why it does."""
        scans = scanner.scans(block, at)
        for scan in scans:
            if scan.events:
                yield self._with_others(block.text, scan)
        return scans[-1].end, scans[-1].stopped

    def _with_others(self, text: bytes, scan: Scan) -> ScannedEvents:
        others = decode_events(
            b"[" + b",".join(text[start:end] for start, end in scan.others) + b"]"
        )
        details = [
            (table, row, event)
            for table, row, (start, end) in scan.details
            for event in decode_events(b"[" + text[start:end] + b"]")
        ]
        return ScannedEvents(scan, others, details)

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
            if len(text) > MOST_EVENT_BYTES:
                raise TraceFormatError(
                    f"it is JSON without traceEvents in its first {MOST_EVENT_BYTES >> 20} MiB, so "
                    "not a trace of torch.profiler",
                    USE_TRACE,
                )
            if not (more := self._more(BLOCK_BYTES)):
                raise foreign.of_keys(_keys(text)) or TraceFormatError(
                    "it is JSON without traceEvents, so not a trace of torch.profiler", USE_TRACE
                )
            text += more
        head = text[: match.start()].removeprefix(b"\xef\xbb\xbf").strip()
        self.metadata |= _object(head.removeprefix(b"{").rstrip().rstrip(b","))
        return text[match.end() :]

    def _footer(self, text: bytes) -> None:
        """Add the keys behind the list of events to `metadata`; its `]` is the first character."""
        rest = text[1:].strip()
        footer = _object(rest.removeprefix(b",").removesuffix(b"}")) if rest else {}
        self.metadata |= footer
        self.truncated |= bool(rest) and not (rest.endswith(b"}") and (footer or rest == b"}"))


def _keys(text: bytes) -> list[str]:
    return [key.decode() for key in _KEY.findall(text[:BLOCK_BYTES])]


def _seeming_end(text: bytes) -> int | None:
    """Offset at which the last event of a text seems to begin."""
    boundary = last_boundary(text, 0, len(text))
    return boundary.end() if boundary else None


def _too_long(rest: bytes) -> TraceFormatError:
    megabytes = f"{MOST_EVENT_BYTES >> 20} MiB"
    what = "the text behind its events" if rest.lstrip()[:1] == b"]" else "one of its events"
    return TraceFormatError(
        f"{what} is longer than {megabytes}", "look for a damaged or foreign part in the file"
    )


def _object(inner: bytes) -> dict[str, Any]:
    """The items of a JSON object given without its braces; if malformed, those after a repair."""
    text = b"{" + inner + b"\n}"
    for repair in (bytes, lambda broken: repaired(broken)[0]):
        try:
            decoded = msgspec.json.decode(repair(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(decoded, Mapping):
            return {str(key): value for key, value in decoded.items()}
    return {}
