"""Launches alike, and what gathered code adds to what a recording says of them."""

import pytest

from tests.build import Export
from tests.inspect.rules.written_ptx import need
from traceview.kernels.ptx.cubin import resources
from traceview.kernels.toolchain.listings import assemble
from traceview.traces.analyses.wave_quantization import analysis
from traceview.traces.facts.launch_configurations import configurations

BARRIERS = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{
    bar.sync 1, 64;
    bar.sync 9, 64;
    bar.sync 15, 64;
    ret;
}
"""
SMALL = {"gridX": 2000, "blockX": 64}


def test_launches_alike_are_one(tmp_path):
    export = Export()
    for start, took in ((0, 10), (100, 30), (200, 20)):
        export.kernel_without_launch((start, start + took), gridX=7, gridY=2)
    export.kernel_without_launch((300, 305), gridX=14, gridY=1)

    found = configurations(export.load(tmp_path))

    first, second = found
    assert (first.calls, first.total_ns, first.median_ns, first.blocks) == (3, 60, 20, 14)
    assert (second.calls, second.total_ns, second.blocks, second.grid) == (1, 5, 14, (14, 1, 1))
    assert len(set(found.family.tolist())) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"gridX": 8},
        {"blockX": 64},
        {"registersPerThread": 40},
        {"staticSharedMemory": 4},
        {"dynamicSharedMemory": 4},
        {"sharedMemoryExecuted": 8192},
        {"name": "other"},
        {"device": 1},
    ],
)
def test_launches_that_differ_are_two(tmp_path, other):
    export = Export().kernel_without_launch((0, 10), gridX=7)
    export.kernel_without_launch((20, 30), **{"gridX": 7, **other})

    assert len(configurations(export.load(tmp_path))) == 2


def test_named_barriers_are_taken_from_gathered_code(tmp_path):
    """As on the H200, where Nsight Compute says 4 blocks an SM of such a kernel."""
    need("ptxas")
    pytest.importorskip("elftools", reason="pyelftools is not installed")
    cubin = assemble(BARRIERS, "sm_90").cubin
    # The cubin says fewer: the driver gives a thread 16 at least.
    assert resources(cubin)["k"].registers < 16
    launch = {**SMALL, "registersPerThread": 16}
    export = Export().kernel_without_launch((0, 100), **launch)
    [known] = configurations(export.load(tmp_path))
    export.code("k", cubin=cubin)
    (tmp_path / "with").mkdir()
    trace = export.load(tmp_path / "with")
    [told] = configurations(trace)

    assert (known.barriers, told.barriers) == (0, 16)
    [row] = analysis.ANALYSIS.run(trace).tables["kernels"].rows()
    assert (row["blocks_per_sm"], row["limiter"]) == (4, "barriers")
