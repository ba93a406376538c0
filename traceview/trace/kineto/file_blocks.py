"""Blocks of the text of a plain file, read by the threads that scan them, so copied only once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from traceview.stages import stage
from traceview.trace.kineto.scan.blocks import Block

BETWEEN_EVENTS = re.compile(rb"\}\s*,\s*(?=\{)")
_CUT_BYTES = 1 << 12


def blocks_of_file(file: BinaryIO, start: int, most: int) -> Iterator[Block]:
    """The text from offset `start` on, in blocks of up to `most` bytes cut where events begin."""
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    while start < size:
        stage("Reading the trace", start, size)
        end = _cut(descriptor, start, min(start + most, size))
        yield Block(partial(_text, descriptor, start, end))
        start = end


def _cut(descriptor: int, start: int, end: int) -> int:
    """Offset at which the last event in [start, end) seems to begin; `end` if none does."""
    size = _CUT_BYTES
    while True:
        at = max(end - size, start)
        if cuts := [match.end() for match in BETWEEN_EVENTS.finditer(_text(descriptor, at, end))]:
            return at + cuts[-1]
        if at == start:
            return end
        size *= 8


def _text(descriptor: int, start: int, end: int) -> bytes:
    """The bytes [start, end) of a file; fewer if the file has become shorter."""
    text = os.pread(descriptor, end - start, start)
    while len(text) < end - start and (
        more := os.pread(descriptor, end - start - len(text), start + len(text))
    ):
        text += more
    return text
