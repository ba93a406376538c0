"""Bytes from samples of a memory that does 4,814,304 bytes a µs, sampled each 100 µs."""

import math

import pytest

from tests.build import Export
from traceview.traces.facts.work.kernel_work import from_metrics

US = 1000
PEAK = 4_814_304_000  # bytes a ms


def bytes_of(tmp_path, *kernels, samples, **where):
    export = Export()
    for start, end in kernels:
        export.launch((start * US - 20, start * US - 10), (start * US, end * US), **where)
    export.sampled(*((time * US, read, written) for time, read, written in samples))
    return from_metrics(export.load(tmp_path)).bytes.tolist()


def every(first, last, read=40, written=10):
    return [(time, read, written) for time in range(first, last, 100)]


def test_samples_that_fill_the_kernel(tmp_path):
    idle = [(0, 0, 0), *every(100, 500), (500, 0, 0), (600, 0, 0)]

    [moved] = bytes_of(tmp_path, (100, 500), samples=idle)
    assert moved == pytest.approx(0.4 * PEAK * 0.5)


def test_edges_that_nothing_else_shares_count_as_sampled(tmp_path):
    """From 150 to 530: the edges saw 24 % and 14 % in whole samples."""
    seen = [(0, 0, 0), (100, 20, 4), *every(200, 500), (500, 10, 4), (600, 0, 0)]

    [moved] = bytes_of(tmp_path, (150, 530), samples=seen)
    assert moved == pytest.approx(PEAK * (0.3 * 0.5 + 0.1 * (0.24 + 0.14)))


def test_edges_that_others_share_count_at_the_mean_rate(tmp_path):
    seen = [(0, 0, 0), (100, 90, 9), *every(200, 600), (600, 80, 8), (700, 0, 0)]

    moved = bytes_of(tmp_path, (110, 140), (150, 650), (651, 690), samples=seen)
    assert moved[1] == pytest.approx(0.5 * PEAK * 0.5)
    assert math.isnan(moved[0])
    assert math.isnan(moved[2])


def test_an_edge_holds_no_more_than_the_memory_can_do(tmp_path):
    """10 µs of the kernel cannot have moved all of a sample at 50 %: others did, unrecorded."""
    [moved] = bytes_of(tmp_path, (190, 600), samples=every(0, 1000))

    assert moved == pytest.approx(PEAK * (0.4 * 0.5 + 0.01))


@pytest.mark.parametrize(
    ("kernels", "samples"),
    [
        ([(0, 290)], every(0, 1000)),
        ([(100, 900), (200, 300)], every(0, 1000)),
        ([(100, 900)], every(0, 1000, 5, 4)),
        ([(100, 900)], [*every(0, 400), *every(600, 1000)]),
        ([(100, 900)], []),
        ([(100, 900)], every(5000, 9000)),
        ([(100, 100)], every(0, 1000)),
    ],
    ids=["short", "overlapped", "slow", "gap", "none", "elsewhere", "no-time"],
)
def test_what_nothing_is_said_of(tmp_path, kernels, samples):
    export = Export()
    for number, (start, end) in enumerate(kernels):
        export.launch((number, number + 1), (start * US, end * US), stream=7 + number)
    export.sampled(*((time * US, read, written) for time, read, written in samples))

    part = from_metrics(export.load(tmp_path))
    assert part is None or math.isnan(part.bytes[0])


def test_a_trace_without_samples(tmp_path):
    assert from_metrics(Export().launch((0, 1), (2, 3)).load(tmp_path)) is None


def test_samples_of_a_gpu_whose_peak_is_not_known(tmp_path):
    export = Export().gpu(0, name="Mystery", memoryBandwidth=None).launch((0, 1), (100, 900_000))
    export.sampled(*((time * US, 40, 10) for time in range(0, 1000, 100)))

    assert math.isnan(from_metrics(export.load(tmp_path)).bytes[0])
