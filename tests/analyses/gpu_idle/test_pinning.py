"""Host memory whose pinning takes longer than the copies of it, and where it pays."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

MS = 1_000_000
CALLS = {
    "cudaHostAlloc_v3020": "cudaFreeHost_v3020",
    "cudaMallocHost_v3020": "cudaFreeHost_v3020",
    "cudaHostRegister_v4000": "cudaHostUnregister_v4000",
    "cuMemHostAlloc": "cuMemFreeHost",
    # Memory of the GPU is another matter.
    "cudaMalloc_v3020": "cudaFree_v3020",
}


def run(pin, free, pins, copies, copy_ms, memory="pinned", between=False, start_ms=0):
    """Pins `pins` times for 200 ms, copies, and frees for 50 ms each; `between`: during GPU work.

    The first call takes `start_ms` longer.
    """
    export, at = Export(), 10 * MS
    ends = {"kind": "H2D", "source": memory, "destination": "device", "bytes": 100_000_000}

    def copied(at):
        export.copy((at, at + 10_000), (at + 20_000, at + copy_ms * MS), **ends)
        return at + copy_ms * MS

    if between:
        at = copied(at)
    for number in range(pins):
        end = at + 200 * MS + (start_ms * MS if not number else 0)
        export.call(pin, at, end)
        at = end
    for _ in range(copies):
        at = copied(at)
    export.launch((at, at + 5_000), (at + 10_000, at + MS), name="add")
    at += MS
    if between:
        export.launch((at, at + 5_000), (at + 500 * MS, at + 501 * MS), name="add")
    for _ in range(pins):
        export.call(free, at + 10_000, at + 50 * MS)
        at += 50 * MS
    return export


def of_pinning(export, tmp_path):
    said = ask(ANALYSIS, export, tmp_path).findings
    return [each for each in said if each.message.startswith("Pinning")]


@pytest.mark.parametrize("pin", CALLS)
@pytest.mark.parametrize(("pins", "copies"), [(1, 1), (2, 2), (3, 12), (3, 60)])
@pytest.mark.parametrize("start_ms", [0, 300])
def test_memory_that_is_pinned_for_longer_than_it_is_copied(tmp_path, pin, pins, copies, start_ms):
    export = run(pin, CALLS[pin], pins, copies, copy_ms=10, start_ms=start_ms)
    found = of_pinning(export, tmp_path)

    pays = 10 * copies * 2 > 250 * pins
    assert len(found) == ("cudaMalloc_v" not in pin and pins > 1 and not pays)
    for finding in found:
        assert finding.severity == "medium"
        # The first call starts CUDA, too, which pins nothing.
        assert finding.time_at_stake_ns == pytest.approx(250 * pins * MS, rel=0.01)


@pytest.mark.parametrize("other", [{"between": True}, {"memory": "pageable", "copies": 60}])
def test_pinning_amid_gpu_work_is_no_start_and_unused_memory_is_none_of_its_copies(tmp_path, other):
    """What a loop allocates is reported where the GPU waits for it."""
    kept = {"pin": "cudaHostAlloc_v3020", "free": "cudaFreeHost_v3020", "pins": 3, "copies": 3}
    found = of_pinning(run(**{**kept, "copy_ms": 10, **other}), tmp_path)
    assert len(found) == ("memory" in other)
