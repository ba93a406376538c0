"""CPU work before or after all GPU work, which a run may be about, and what is none."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

MS, S = 1_000_000, 1_000_000_000


def run(where, kind, took=4 * S, gpu=100 * MS, kernels=3):
    """A run that calls CUDA, works or waits for `took`, and whose GPU works before or after it."""
    export, at = Export(), 10 * MS
    export.call("cudaMalloc_v3020", at, at + 5 * MS)
    at += 10 * MS
    first, begin = at, at + (took if where == "before" else 0)
    for number in range(kernels):
        start = begin + number * gpu // kernels
        export.launch((start, start + 5_000), (start + 10_000, start + gpu // kernels))
    end = begin + gpu
    export.call("cudaDeviceSynchronize_v3020", end - MS, end + 1_000)
    at = end + (took if where == "after" else 0)
    span = (end + 2_000, at) if where == "after" else (first, begin)
    if kind == "input":
        export.os_call("read", *span)
    elif kind == "sleep":
        export.off_cpu(span)
    elif kind == "calls":
        for each in range(span[0], span[1], 200 * MS):
            export.call("cudaMemGetInfo_v3020", each, each + 1_000)
    elif kind == "known":
        export.os_call("write", span[0], span[0] + 50_000)
    elif kind == "scheduled":
        export.off_cpu((span[0] + MS, span[0] + 2 * MS))
    export.call("cudaFree_v3020", at + 1_000, at + MS)
    return export


def of_run(export, tmp_path):
    said = ask(ANALYSIS, export, tmp_path).findings
    return [each for each in said if "GPU work the CPU works for" in each.message]


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", ["known", "scheduled"])
@pytest.mark.parametrize("gpu", [1 * MS, 100 * MS, 350 * MS])
def test_cpu_work_that_takes_most_of_a_run_comes_first(tmp_path, where, kind, gpu):
    [found] = of_run(run(where, kind, gpu=gpu), tmp_path)

    assert found.time_at_stake_ns == pytest.approx(4 * S, rel=0.01)
    assert found.message.startswith("After" if where == "after" else "Before")
    assert ("results" in found.action) is (where == "after")
    assert found.share_of_step_pct is None


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", ["unknown", "input", "sleep", "calls"])
def test_waits_are_no_cpu_work(tmp_path, where, kind):
    assert not of_run(run(where, kind), tmp_path)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(("took", "gpu"), [(900 * MS, 10 * MS), (4 * S, S), (2 * S, 300 * MS)])
def test_little_cpu_work_is_not_what_a_run_is_about(tmp_path, where, took, gpu):
    assert not of_run(run(where, "known", took, gpu), tmp_path)


@pytest.mark.parametrize("where", ["before", "after"])
def test_pages_that_the_cpu_waits_for_are_reported_as_migrations(tmp_path, where):
    export = run(where, "known")
    at = 2 * S
    export.migration((at, at + MS), bytes=10**6, kind="UVM D2H")
    assert not of_run(export, tmp_path)
