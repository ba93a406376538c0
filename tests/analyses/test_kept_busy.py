"""A GPU that is busy although hardly anything is queued: the CPU does not launch ahead."""

import pytest

from tests.build import Export
from traceview import analyze
from traceview.render.report.document import tiles
from traceview.traces.analyses.verdict.scoreboard import scoreboard

US = 1_000


@pytest.mark.parametrize("count", [5, 60])
@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("work", ["kernels", "copies"])
def test_the_tile_says_whether_the_cpu_launches_ahead(count, queued, work, tmp_path):
    export, at = Export(), 0
    for number in range(count):
        # Queued work is launched early; the other as soon as the one before it has ended.
        called = 20 * US * number if queued else at
        span = (at + 6 * US, at + 900 * US)
        if work == "kernels":
            export.launch((called, called + 5 * US), span)
        else:
            export.copy((called, called + 5 * US), span, bytes=1 << 22, source="pinned")
        at += 900 * US
    export.launch((at, at + 5 * US), (at + 6 * US, at + 900 * US))
    trace = export.load(tmp_path)

    shown = {tile.field: tile.detail for tile in tiles(scoreboard(trace))}
    [told] = [each for each in analyze(trace).findings if each.analysis == "run-ahead"]

    assert shown["launch"] == ("the CPU launches ahead" if queued else "its work fills the time")
    assert ("nearly always has work queued" in told.message) is queued
    assert ("begins as soon as it is launched" in told.message) is not queued


@pytest.mark.parametrize("launches", [1, 2])
@pytest.mark.parametrize("moves", ["nothing", "allocates", "copies", "clears"])
@pytest.mark.parametrize("bounded", [False, True])
def test_more_passes_of_a_kernel_without_a_result_tell_nothing(launches, moves, bounded, tmp_path):
    export = Export().os_call("poll", 0, 3_000_000 * US)
    if bounded:
        export.run(first_s="1.0")
    if moves == "allocates":
        export.call("cudaMalloc_v3020", 0, 100 * US)
    for number in range(launches):
        at = (1_000 + 50 * number) * US
        export.launch((at, at + 5 * US), (at + 10 * US, at + 30 * US), name="emptyKernel")
    at = 2_000 * US
    if moves == "copies":
        export.copy((at, at + 5 * US), (at + 6 * US, at + 9 * US), bytes=4)
    if moves == "clears":
        export.set((at, at + 5 * US), (at + 6 * US, at + 9 * US))

    messages = [each.message for each in analyze(export.load(tmp_path)).findings]

    nothing = moves == "nothing" and not bounded
    assert any("gets no result from it" in each for each in messages) is nothing
    assert any("recording is cold" in each for each in messages) is not nothing
