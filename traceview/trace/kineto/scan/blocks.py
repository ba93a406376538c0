"""Blocks of a text that are scanned by several threads, before it is known whether each is one.

A block is thought to begin with an event. Whether it does, only those before it can say: an event
may hold what looks like the beginning of another one, in a string or within its arguments. So
blocks are scanned as if they did, each up to the next one. The first one begins with an event; and
where the events of a block end where the next one begins, that begins with an event as well. Who
takes the blocks in order sees whether it is so, and else scans anew what was thought to be two.
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
    """The part of a text up to `end`; what is behind that is the beginning of the next block.

    A text that is still to be read is read by the thread that scans it.
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
    """Scans blocks by several threads, and what was cut in vain by that of the caller."""

    def __init__(self) -> None:
        self._free = [EventScanner() for _ in range(THREADS)]

    def ahead(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """The blocks; those that follow are being scanned."""
        waiting: deque[Block] = deque()
        with ThreadPoolExecutor(THREADS) as pool:
            for block in blocks:
                block.scans = pool.submit(self._scan, block)
                waiting.append(block)
                if len(waiting) > THREADS:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()

    def scans(self, block: Block) -> Sequence[Scan]:
        """The events of a block that begins with one, as far as the scanner knows them."""
        return block.scans.result() if block.scans else self._own.scan_all(block.text, block.end)

    def _scan(self, block: Block) -> list[Scan]:
        # No more blocks are scanned at a time than there are scanners.
        scanner = self._free.pop()
        try:
            return scanner.scan_all(block.text, block.end)
        finally:
            self._free.append(scanner)

    @cached_property
    def _own(self) -> EventScanner:
        return EventScanner()
