"""Operations, calls, waits and gaps as plain arrays: inputs of the cores, without a trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.base.tables import Integers
from traceview.traces.facts.idle.gap_bounds import GapBounds, GapLaunches, find_gaps, join_launches
from traceview.traces.facts.launches import Waits
from traceview.traces.facts.operations import ApiCalls, CallKind, Kind, Operations

Span = tuple[int, int]


def ints(values: Sequence[int]) -> Integers:
    return np.array(values, np.int64)


def columns(rows: Sequence[Span]) -> tuple[Integers, Integers]:
    """Starts and ends."""
    return ints([row[0] for row in rows]), ints([row[1] for row in rows])


def operations(
    spans: Sequence[Span],
    call: Sequence[int] | None = None,
    stream: Sequence[int] | None = None,
    kind: Sequence[Kind] | None = None,
) -> Operations:
    """Operations of one process and device, in order of start; call i launched operation i."""
    rows = len(spans)
    start, end = columns(spans)
    stream = [0] * rows if stream is None else stream
    return Operations(
        kind=np.array([Kind.KERNEL] * rows if kind is None else kind, np.uint8),
        row=np.arange(rows, dtype=np.int32),
        start_ns=start,
        end_ns=end,
        process=ints([0] * rows),
        device=ints([0] * rows),
        stream=np.array(stream, np.int32),
        call=np.array(range(rows) if call is None else call, np.int32),
        streams=ints([[0, 0, 1, each] for each in range(max(stream, default=-1) + 1)]),
    )


def api_calls(
    spans: Sequence[Span],
    does: Sequence[CallKind] | None = None,
    thread: Sequence[int] | None = None,
) -> ApiCalls:
    """API calls in order of start: launches of thread 0 unless told otherwise."""
    rows = len(spans)
    start, end = columns(spans)
    kinds = np.array([CallKind.LAUNCH] * rows if does is None else does, np.uint8)
    return ApiCalls(ints([0] * rows if thread is None else thread), start, end, kinds)


def waits(
    spans: Sequence[Span],
    does: Sequence[CallKind] | None = None,
    thread: Sequence[int] | None = None,
    device: Sequence[int] | None = None,
) -> Waits:
    """Blocking calls in order of start: synchronizations of thread 0 with device 0."""
    rows = len(spans)
    start, end = columns(spans)
    return Waits(
        call=np.arange(rows),
        does=np.array([CallKind.SYNCHRONIZE] * rows if does is None else does, np.uint8),
        start_ns=start,
        end_ns=end,
        process=ints([0] * rows),
        thread=ints([0] * rows if thread is None else thread),
        device=ints([0] * rows if device is None else device),
    )


def gaps_of(ops: Operations, calls: ApiCalls) -> tuple[GapBounds, GapLaunches]:
    """The idle gaps of operations, and the launch calls of what ended them."""
    gaps = find_gaps(ops.device, ops.start_ns, ops.end_ns)
    return gaps, join_launches(gaps, ops, calls)
