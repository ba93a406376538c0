"""A launch on a few elements: what it moves, and that its findings are information."""

from dataclasses import replace

import pytest

from tests.inspect.retried import Retried, allow
from traceview import inspect_ptx
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


COPY = """
import triton
import triton.language as tl

@triton.jit
def copied(x, y, n, BLOCK: tl.constexpr, TIMES: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    for _ in tl.static_range(TIMES):
        value = tl.exp(value) + 1
    tl.store(y + at, value, mask=at < n)
"""


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize(
    ("element", "block", "times", "is_small"),
    [
        ("fp16", 64, 1, True),
        ("fp32", 128, 1, True),
        ("fp32", 256, 1, False),
        ("fp16", 64, 64, False),
    ],
)
def test_blocks_that_move_less_than_starting_them_takes(
    tmp_path, warps, element, block, times, is_small
):
    (tmp_path / "k.py").write_text(COPY)
    report = inspect_ptx(
        f"{tmp_path}/k.py:copied",
        signature=f"*{element}:16, *{element}:16, i32:16, {block}, {times}",
        num_warps=warps,
        budget_s=0.1,
    )
    found = [f for f in report.kernels[0].findings if "starts 1.6 blocks" in f.message]
    assert len(found) == is_small
    for finding in found:
        bytes_ = 2 * block * (2 if element == "fp16" else 4)
        assert finding.evidence.values["block_bytes"] == bytes_
        assert finding.severity == "medium"


@pytest.mark.parametrize(("blocks", "is_small"), [(1000, False), (100_000, True)])
def test_few_small_blocks_start_at_once(triton_cache, monkeypatch, blocks, is_small):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.narrow_kernels import gelu

    tried = Retried(gelu, "*fp32:16, *fp32:16, i32, 64", with_ttgir=True, sass=False)
    compiled = tried._unchanged((blocks, 1, 1))
    report = inspect(replace(compiled, how="launched"), sass=False)
    assert any("starts 1.6 blocks" in f.message for f in report.findings) == is_small
