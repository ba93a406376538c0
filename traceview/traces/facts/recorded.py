"""The time in which anything was recorded."""

from __future__ import annotations

import numpy as np

from traceview.traces.trace import Trace, fact

_TIMED_TABLES = (
    *("kernels", "copies", "sets", "graph_launches", "api_calls", "synchronizations", "ranges"),
    *("os_calls", "overheads", "python_samples"),
)


@fact
def recorded_span(trace: Trace) -> tuple[int, int]:
    """The first start and the last end of anything recorded; (0, 0) for nothing.

    As for phases, the start-up of a program counts, which only OS calls, samples and the recorder's
    own overhead show.
    """
    first, last = [], []
    # Where nsys saw no call of CUDA, samples of native code alone show how long the program ran.
    alone = () if len(trace.recorded("api_calls")) else ("native_samples",)
    for table in map(trace.recorded, (*_TIMED_TABLES, *alone)):
        # A damaged recording may hold an end before its start: either column may have the extreme.
        for name in {"start_ns", "end_ns", "time_ns"} & {column.name for column in table.columns}:
            times, absent = table[name], table.is_null(name)
            times = times[~absent] if absent.any() else times
            if len(times):
                # As Python integers: the difference of damaged times can overflow int64.
                first.append(int(np.min(times)))
                last.append(int(np.max(times)))
    return min(first, default=0), max(last, default=0)
