"""Work that waited for another stream, as far as its start tells."""

from typing import Any

import numpy as np
import pytest

import traceview
from tests.trace.kineto import traces
from tests.trace.kineto.traces import MI300
from traceview.traces.facts.savings import model

AMD: dict[str, Any] = {"header": {"deviceProperties": [MI300], "hip_runtime_version": 70051831}}


def collectives(draw, pause_us):
    """Passes of kernels, the second half of which waits for a collective on another stream.

    The CPU launches far ahead. No call says what waits; the work begins so long after the other's.
    """
    events, at, call, number = [], 1_000.0, 0.0, 1

    def launched(name, begin, length, **on):
        nonlocal call, number
        events.append(traces.call("hipLaunchKernel", call, 3, number))
        events.append(traces.kernel(name, begin, length, number, **on))
        call, number = call + 6, number + 1
        return begin + length

    for _ in range(12):
        for _ in range(6):
            at = launched("forward", at, float(draw.uniform(30, 60))) + 1
        at = launched("ncclDevKernel_Generic", at + pause_us, 2_000.0, stream=13) + pause_us
        for _ in range(6):
            at = launched("optimizer", at, float(draw.uniform(30, 60))) + 1
    return events


@pytest.mark.parametrize(
    ("pause_us", "around", "tied"),
    [(3, {}, True), (17, {}, False), (3, AMD, True), (17, AMD, True), (40, AMD, False)],
)
def test_kernels_wait_for_a_collective_after_whose_end_they_begin(tmp_path, pause_us, around, tied):
    events = collectives(np.random.default_rng(pause_us), pause_us)
    trace = traceview.load(traces.write(tmp_path / "t.json", events, **around))
    replayed, kernels = model(trace), trace.kernels
    rows = np.flatnonzero(kernels.texts("name").isin(["ncclDevKernel_Generic"]))
    item = replayed.item_of_operation[rows]
    saved = replayed.saved_ns(lambda changed: changed.shorten(item[item >= 0], 1_900_000))
    assert (saved > 0.5 * 1_900_000) is tied
