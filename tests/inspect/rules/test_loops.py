"""Loads that the hottest loop waits for, and the tensor cores in use; keys by arithmetic."""

from dataclasses import replace

import pytest

import traceview
from tests.inspect.retried import Retried, allow
from traceview.kernels.inspect.target_report import inspect

OPERANDS = "*fp16:16, *fp16:16, *fp32:16"
WAITS = "loaded within the loop without prefetching"
OLDER = "tl.dot runs as mma.sync"


@pytest.fixture
def retried(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.ptx.kernels import looped_products

    def made(kernel, signature, **options):
        kernel = getattr(looped_products, kernel)
        return Retried(kernel, signature, with_ttgir=True, sass=False, **options)

    return made


def told(findings, words):
    return [finding for finding in findings if words in finding.message]


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_operands_under_an_if_are_waited_for(retried, stages):
    tried = retried("tested", f"{OPERANDS}, *i32:16, i32:16, 64, 64, 64", num_stages=stages)
    (finding,) = told(tried.alone().findings, WAITS)
    assert finding.message.startswith("2 operands of tl.dot at looped_products.py:")
    assert "an if is around them" in finding.message
    assert finding.severity == "high"
    mended = retried("listed", f"{OPERANDS}, *i32:16, i32, i32:16, 64, 64, 64", num_stages=stages)
    assert not told(mended.alone().findings, "an if is around")


@pytest.mark.parametrize(("size", "waits"), [("i32", True), ("i32:16", False)])
def test_an_operand_too_narrow_for_a_copy_is_waited_for(retried, size, waits):
    """The finding on its width has the cause, and tells the rest."""
    tried = retried("wrapped", f"{OPERANDS}, i32:16, {size}, 64, 64, 64")
    findings = tried.alone().findings
    assert not told(findings, WAITS)
    found = told(findings, "so that they are not prefetched, and tl.dot waits for memory")
    assert len(found) == waits
    for finding in found:
        assert "× 16 bits" in finding.message
        # Triton 3.6 lays the tile out along the other axis.
        causes = ("because the offset is a remainder", "because neighbouring threads are")
        assert any(cause in finding.message for cause in causes)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_one_stage_prefetches_nothing(retried, stages):
    tried = retried("plain", f"{OPERANDS}, i32:16, 64, 64, 64", num_stages=stages)
    found = told(tried.findings(), WAITS)
    assert len(found) == (stages == 1)
    for finding in found:
        assert finding.message.endswith("num_stages=1 switches Triton's pipeline off")
        assert finding.action == "Use num_stages=3, and measure it"
        assert "recompiled with num_stages=3: 0 of 2 left" in finding.evidence.basis


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize("warps", [2, 4])
def test_the_tensor_cores_in_use(retried, arch, rows, warps):
    signature = f"{OPERANDS}, i32:16, {rows}, 64, 64"
    tried = retried("plain", signature, arch=arch, num_warps=warps)
    found = told(tried.findings(), OLDER)
    newer = {"sm_90": "wgmma", "sm_100": "tcgen05"}.get(arch)
    ought = bool(newer) and (rows < 64 or warps % 4 != 0)
    assert len(found) == ought
    for finding in found:
        assert f"not as {newer}" in finding.message
        if rows < 64:
            assert f"the tile has {rows} rows" in finding.message
        else:
            assert f"{warps} warps cannot issue it" in finding.message
            assert finding.action == "Use num_warps=4, and measure it"
            assert f"× {newer}" in finding.evidence.basis


def test_a_tile_that_rules_the_tensor_cores_out_is_not_advised(retried):
    tried = retried("plain", f"{OPERANDS}, i32:16, 64, 256, 64", num_stages=3)
    for finding in tried.findings():
        assert "M=32" not in finding.action


@pytest.mark.parametrize("blocks_per_sm", [1, 4, 8, 16])
def test_few_loads_in_flight(retried, blocks_per_sm):
    """A block of 1,024 floats loads 4,096 bytes an iteration; 36,000 are needed per SM."""
    tried = retried("summed_plainly", "*fp32:16, *fp32:16, i32:16, 1024")
    found = told(tried.report((132 * blocks_per_sm, 1, 1)).findings, "waits for its loads")
    assert len(found) == (blocks_per_sm * 4096 < 25_000)
    for finding in found:
        assert finding.evidence.values["in_flight_bytes"] == blocks_per_sm * 4096
        assert "tl.range(…, num_stages=4)" in finding.action


def test_a_loop_that_is_pipelined_waits_for_nothing(retried):
    tried = retried("summed", "*fp32:16, *fp32:16, i32:16, 4, 1024")
    assert not told(tried.report((132, 1, 1)).findings, "waits for its loads")


@pytest.mark.parametrize(("size", "warps"), [(32, 4), (64, 4), (64, 8), (128, 4)])
def test_bytes_that_several_threads_load_are_in_flight_once(retried, size, warps):
    kind = "*fp32:16, *fp32:16, i32:16, i32:16"
    report = retried("scanned", f"{kind}, 1, {size}", num_warps=warps).report()
    (finding,) = told(report.findings, "waits for its loads")
    assert finding.evidence.values["in_flight_bytes"] == 4 * size


@pytest.mark.parametrize("steps", [1, 2, 64])
def test_a_loop_of_one_or_two_turns_waits_for_nothing(retried, steps):
    tried = retried("scanned", "*fp32:16, *fp32:16, i32, i32:16, 1, 128")
    report = inspect(replace(tried._unchanged(), integers={"steps": steps}), sass=False)
    assert bool(told(report.findings, "waits for its loads")) == (steps > 2)


@pytest.mark.parametrize("launched", [True, False])
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("bits", [16, 32])
def test_a_recurrence_waits_in_each_step(retried, bits, warps, launched):
    """128 elements per block and step; an asynchronous copy takes 32 bits of a thread or more."""
    kind, grid = f"*fp{bits}:16", (64, 1, 1) if launched else None
    signature = f"{kind}, {kind}, i32:16, i32:16, {{}}, 128"
    report = retried("scanned", signature.format(1), num_warps=warps).report(grid)
    (finding,) = told(report.findings, "waits for its loads")
    few = bits // 8 * 128
    assert finding.evidence.values["in_flight_bytes"] == few
    assert finding.severity == "medium"
    assert ("1 block per SM" in finding.message) == launched
    assert (f"{-(-25_000 // few)} blocks per SM are needed" in finding.message) != launched
    # Blocks share no recurrence, and larger tiles leave SMs without one.
    assert "split the loop" not in finding.action
    assert not any("BLOCK=" in each.action for each in report.findings if launched)
    is_narrow = 128 // (32 * warps) * bits < 32
    assert ("32 bits or more" in finding.action) == is_narrow
    ahead = retried("scanned", signature.format(4), num_warps=warps).report(grid)
    assert bool(told(ahead.findings, "waits for its loads")) == is_narrow
    # Its latency comes before its width.
    assert report.findings[0] == finding


@pytest.mark.parametrize(("kernel", "safe"), [("scanned", False), ("scanned_in_place", True)])
def test_loads_run_ahead_of_stores_to_the_same_array_on_a_condition(retried, kernel, safe):
    tried = retried(kernel, "*fp32:16, *fp32:16, i32:16, i32:16, 1, 128")
    (finding,) = told(tried.alone().findings, "waits for its loads")
    assert ("if no iteration loads what one before it stored to x_ptr" in finding.action) == safe


@pytest.mark.parametrize("rows", [16, 64])
def test_what_is_added_to_a_product_is_not_prefetched_by_itself(retried, rows):
    signature = f"*fp16:16, *fp16:16, *fp16:16, i32:16, {{}}, {rows}, 32"
    tried = retried("recurrent", signature.format(1))
    (finding,) = told(tried.report((16, 1, 1)).findings, "waits for its loads")
    assert "loads that no tl.dot multiplies" in finding.action
    ahead = retried("recurrent", signature.format(4))
    assert not told(ahead.report((16, 1, 1)).findings, "waits for its loads")


UNDER_AN_IF = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, flags, K, N, B: tl.constexpr):
    at = tl.arange(0, B)
    sums = tl.zeros([B, B], tl.float32)
    for i in range(0, K, B):
        left = tl.load(a + at[:, None] * K + i + at[None, :])
        first = tl.dot(left, tl.load(b + (i + at)[:, None] * N + at[None, :]))
        sums += first
        if {test}:
            sums += tl.dot(left, tl.load(c + (i + at)[:, None] * N + at[None, :]))
    tl.store(c + at[:, None] * N + at[None, :], sums)
"""


@pytest.mark.parametrize(
    ("test", "computed"),
    [
        ("tl.load(flags + i) > 0", False),
        ("(i // B) % 2 == N % 2", False),
        ("tl.max(first) > 4.0", True),
        ("tl.sum(tl.sum(sums, 1), 0) < tl.load(flags)", True),
    ],
)
def test_what_is_loaded_under_an_if_on_a_result(tmp_path, test, computed):
    pytest.importorskip("triton")
    (tmp_path / "k.py").write_text(UNDER_AN_IF.format(test=test))
    signature = "*fp16:16, *fp16:16, *fp16:16, *i32:16, i32:16, i32:16, 64"
    report = traceview.inspect_ptx(f"{tmp_path}/k.py:product", signature=signature, budget_s=0.1)
    (finding,) = told(report.kernels[0].findings, "an if is around it")
    # The blocks to visit cannot be listed before their scores are known.
    assert finding.action.startswith("If most iterations" if computed else "Loop over a list")
    assert finding.severity == ("low" if computed else "high")


COUNTED = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, K, N, B: tl.constexpr):
    at = tl.arange(0, B)
    left = tl.make_tensor_descriptor(a, [B, K], [K, 1], [B, B])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [B, B])
    sums = tl.zeros([B, B], tl.float32)
    {before}
    {loop}:
        sums = tl.dot({operands}, sums)
        {after}
    tl.store(c + at[:, None] * N + at[None, :], sums)
"""


OPERANDS_BY = {
    "pointers": "tl.load(a + at[:, None] * K + i + at[None, :]), "
    "tl.load(b + (i + at)[:, None] * N + at[None, :])",
    "TMA": "left.load([0, i]), right.load([i, 0])",
}


@pytest.mark.parametrize("operands", OPERANDS_BY)
@pytest.mark.parametrize(
    ("before", "loop", "after", "is_named"),
    [
        ("i = 0", "while i < K", "i += B", True),
        ("i = K - B", "while i >= 0", "i -= B", True),
        ("pass", "for i in tl.range(0, K, B)", "pass", False),
        (
            "i = 0",
            "while i < K",
            "i += B\n        for j in range(K): sums += tl.load(c + j)",
            False,
        ),
    ],
    ids=["up", "down", "for", "with another loop in it"],
)
def test_a_while_is_not_pipelined(tmp_path, operands, before, loop, after, is_named):
    pytest.importorskip("triton")
    text = COUNTED.format(before=before, loop=loop, after=after, operands=OPERANDS_BY[operands])
    (tmp_path / "k.py").write_text(text)
    signature = "*fp16:16, *fp16:16, *fp32:16, i32:16, i32:16, 64"
    for stages in (1, 3):
        report = traceview.inspect_ptx(
            f"{tmp_path}/k.py:product", signature=signature, num_stages=stages, budget_s=0.1
        )
        (kernel,) = report.kernels
        found = told(kernel.findings, "the loop is a while")
        assert [f.message for f in found if WAITS not in f.message] == []
        assert len(found) == is_named
        assert not is_named or "tl.range(start, end, step)" in found[0].action
        assert bool(told(kernel.findings, WAITS)) == (is_named or "while" in loop or stages == 1)
        assert not told(kernel.findings, "that it has just started")


UNPACKED = """
import triton
import triton.language as tl

@triton.jit
def unpacked(x, y, n, BLOCK: tl.constexpr, RATIO: tl.constexpr):
    at, part = tl.arange(0, BLOCK // RATIO), tl.arange(0, RATIO)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        word = tl.load(x + row * (BLOCK // RATIO) + at)
        bits = tl.reshape(word[:, None] >> part[None, :], [BLOCK])
        tl.store(y + row * BLOCK + tl.arange(0, BLOCK), bits & 1)
"""


@pytest.mark.parametrize(
    ("block", "ratio", "waits"), [(128, 1, True), (256, 1, True), (512, 4, False), (512, 32, False)]
)
def test_what_a_loop_stores_fills_the_latency_too(tmp_path, block, ratio, waits):
    pytest.importorskip("triton")
    (tmp_path / "k.py").write_text(UNPACKED)
    signature = f"*i32:16, *i32:16, i32:16, {block}, {ratio}"
    report = traceview.inspect_ptx(f"{tmp_path}/k.py:unpacked", signature=signature, budget_s=0.1)
    assert bool(told(report.kernels[0].findings, "waits for its loads")) == waits
