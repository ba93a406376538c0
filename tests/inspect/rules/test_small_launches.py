"""A launch on a few elements: what it moves, and that its findings are information."""

from dataclasses import replace

import pytest

from tests.inspect.retried import Retried, allow
from traceview.kernels.headless.signatures import argument
from traceview.kernels.inspect.target_report import inspect

SMALL = 128 * 1024


@pytest.mark.parametrize("length", [5, 1000, 1025, 16380, 16390, 1 << 20])
def test_a_launch_too_small_to_judge(triton_cache, monkeypatch, length):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.narrow_kernels import gelu

    tried = Retried(gelu, "*fp32:16, *fp32:16, i32, 1024", with_ttgir=True, sass=False)
    blocks = -(-length // 1024)
    compiled = tried._unchanged((blocks, 1, 1))
    pointers, size, block = compiled.arguments[:2], argument("n", "i32"), compiled.arguments[3]
    passed = (*pointers, replace(size, value=length), block)
    report = inspect(replace(compiled, how="launched", arguments=passed), sass=False)
    # Read and written once; the first and the middle block stand for all.
    moved = 2 * 4 * (length if blocks <= 2 else 1024 * blocks)
    first, *others = report.findings
    if moved > SMALL:
        assert any(finding.severity == "high" for finding in report.findings)
        return
    assert {finding.severity for finding in report.findings} == {"info"}
    assert first.message.startswith("The launch moves only ")
    assert first.evidence.values["launched_bytes"] == moved
    assert others
    assert not any("stay idle" in finding.message for finding in others)


def test_a_loop_may_compute_for_any_time(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.narrow_kernels import summed

    compiled = Retried(summed, "*fp32:16, i32, 1024", sass=False)._unchanged((8, 1, 1))
    report = inspect(replace(compiled, how="launched"), sass=False)
    assert not any("too little" in finding.message for finding in report.findings)
    assert any("124 of 132 SMs stay idle" in finding.message for finding in report.findings)
