"""Lanes: what the timeline shows of one thread, one stream, or one device."""

from __future__ import annotations

from typing import Literal

from traceview.records import record
from traceview.timeline.tracks import Track

LaneKind = Literal["steps", "phases", "thread", "stream", "idle", "migrations"]


@record
class Lane:
    """Tracks under one heading.

    `device`, `process` and `thread` are rows of the devices, processes and threads tables, −1 for
    none. `stream` is the stream number of CUDA.
    """

    kind: LaneKind
    title: str
    tracks: tuple[Track, ...]
    device: int = -1
    process: int = -1
    thread: int = -1
    stream: int = -1

    @property
    def rows(self) -> int:
        """Rows on all of its tracks."""
        return sum(map(len, self.tracks))
