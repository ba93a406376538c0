"""Traces of torch.profiler on accelerators that are no GPU."""

import pytest

import traceview
from tests.trace.kineto import traces


@pytest.mark.parametrize("kind", ["mtia", "hpu", "xpu", "privateuse1"])
@pytest.mark.parametrize("ranges", [0, 12])
def test_another_accelerator_is_named_and_no_recording_of_cuda_asked_for(tmp_path, kind, ranges):
    events = [traces.span("cpu_op", "aten::mm", 100 * n, 50) for n in range(20)]
    events += [traces.span(f"{kind}_runtime", "launch", 100 * n + 5, 20) for n in range(20)]
    events += [traces.span("user_annotation", "step", 100 * n, 90) for n in range(ranges)]
    report = traceview.analyze(traceview.load(traces.write(tmp_path / "t.json", events)))
    assert report.verdict.text.startswith("No GPU work was recorded. Of 1.95 ms on the CPU: ")
    [said] = [each.finding for each in report.findings if each.analysis == "trace-health"]
    assert f"({kind.upper()})" in said.message
    assert "CUDA" not in said.message + said.action


def test_beside_work_of_a_gpu_other_accelerators_go_unmentioned(tmp_path):
    events = [traces.span("mtia_runtime", "launch", 5, 20)]
    events += [traces.call("cudaLaunchKernel", 0, 5, 1), traces.kernel("add", 8, 3, 1)]
    report = traceview.analyze(traceview.load(traces.write(tmp_path / "t.json", events)))
    assert not any("MTIA" in each.finding.message for each in report.findings)
