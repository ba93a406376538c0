"""NVTX ranges that a recording with torch.profiler mirrors."""

from contextlib import nullcontext

from traceview.traces.recorders.injected.traceview_injected.torch_profile.mirrored_ranges import (
    MirroredRanges,
)


def test_a_range_that_is_ended_twice_ends_once():
    """Else `--range` would count an end too many, and not stop with the range."""
    seen: list[tuple[str, bool]] = []
    ranges = MirroredRanges(lambda _: nullcontext())
    ranges.watch = lambda text, begins: seen.append((text, begins))
    outside = ranges.start("step")
    ranges.begin()
    inside = ranges.start("step")
    for opened in (outside, outside, inside, inside, None):
        ranges.end(opened)
    assert seen == [("step", True), ("step", True), ("step", False), ("step", False)]


def test_what_is_still_open_when_the_recording_stops_ends_later():
    seen: list[bool] = []
    ranges = MirroredRanges(lambda _: nullcontext())
    ranges.begin()
    opened = ranges.start("step")
    ranges.stop()
    ranges.watch = lambda _, begins: seen.append(begins)
    ranges.end(opened)
    ranges.end(opened)
    assert seen == [False]
