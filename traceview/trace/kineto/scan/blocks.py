"""Speculative scanning of a text in blocks, by several threads.

A block is cut where an event seems to begin; but what looks like one may lie in a string or in the
arguments of another event, which only the blocks before can show. So every block is scanned as if
it began with an event. The first one does; and if the events of a block end exactly where the next
block begins, that block does, too. The consumer takes the blocks in order and checks this; where it
fails, it joins the two blocks and scans them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

from traceview.trace.kineto.scan.scanner import EventScanner, Scan

THREADS = 2


@dataclass(eq=False)
class Block:
    """The part of a text up to `end`; the text behind `end` is the beginning of the next block.

    If `source` is a function, the thread that scans the block calls it to read the text.
    """

    source: bytes | Callable[[], bytes]
    seeming_end: int | None = None
    scans: Future[list[Scan]] | None = None

    @cached_property
    def text(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else self.source()

    @property
    def end(self) -> int:
        return len(self.text) if self.seeming_end is None else self.seeming_end

    @property
    def content(self) -> bytes:
        return self.text[: self.end]


class BlockScanner:
    """Scans blocks ahead in several threads, and wrongly cut ones again in the caller's thread."""

    def __init__(self) -> None:
        self._free = [EventScanner() for _ in range(THREADS)]

    def ahead(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield the blocks in order, while the next ones are being scanned."""
        waiting: deque[Block] = deque()
        with ThreadPoolExecutor(THREADS) as pool:
            for block in blocks:
                block.scans = pool.submit(self._scan, block)
                waiting.append(block)
                if len(waiting) > THREADS:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()

    def scans(self, block: Block, at: int) -> Sequence[Scan]:
        """The scans from offset `at` on, where an event begins, up to what cannot be scanned."""
        if at == 0 and block.scans:
            return block.scans.result()
        return self._own.scan_all(block.text, at, block.end)

    def _scan(self, block: Block) -> list[Scan]:
        # No more blocks are scanned at a time than there are scanners.
        scanner = self._free.pop()
        try:
            return scanner.scan_all(block.text, 0, block.end)
        finally:
            self._free.append(scanner)

    @cached_property
    def _own(self) -> EventScanner:
        return EventScanner()
