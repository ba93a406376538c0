"""Arithmetic that takes longer than memory, and rows that no larger tile has; keys by hand.

Of each element a warp moves 8 bytes, 17.7 cycles of an H100's memory; an fp32 FMA takes it a
quarter of a cycle, one in fp64 half of one.
"""

import pytest

from tests.inspect.retried import Retried, allow

FP64 = "fp64 on values of narrower types"
NARROW = "bits per thread per instruction"


@pytest.fixture
def retried(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.ptx.kernels import computed

    def made(kernel, signature, **options):
        return Retried(getattr(computed, kernel), signature, with_ttgir=True, **options)

    return made


def told(findings, words):
    return [finding for finding in findings if words in finding.message]


@pytest.mark.parametrize("double", [0, 1])
@pytest.mark.parametrize(("times", "severity"), [(8, "low"), (48, "medium"), (160, "medium")])
def test_fp64_is_medium_where_it_takes_longer_than_memory(retried, double, times, severity):
    tried = retried("iterated", f"*fp32:16, *fp32:16, i32:16, {double}, {times}, 1024")
    found = told(tried.alone().findings, FP64)
    assert [finding.severity for finding in found] == [severity] * double
    for finding in found:
        assert finding.evidence.values["instructions"] >= times
        assert ("takes" in finding.message) == (severity == "medium")
        assert finding.action.startswith("Where fp32 suffices, compute in it: without .to(")


@pytest.mark.parametrize(("times", "severity"), [(8, "high"), (800, "low")])
def test_a_narrow_load_costs_little_beside_long_arithmetic(retried, times, severity):
    tried = retried("iterated", f"*fp32:16, *fp32:16, i32, 0, {times}, 512")
    assert {f.severity for f in told(tried.findings(), NARROW)} == {severity}


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("warps", [1, 4])
def test_a_row_is_widened_by_more_rows(retried, width, warps):
    tried = retried("by_row", f"*fp16:16, *fp16:16, {width}", num_warps=warps)
    (finding,) = told(tried.alone().findings, NARROW)
    rows = 256 // width
    assert f"a tile of two axes, [{rows}, {width}], with num_warps=1" in finding.action
    mended = retried("by_rows", f"*fp16:16, *fp16:16, {rows}, {width}", num_warps=1)
    assert not told(mended.alone().findings, NARROW)


def test_a_declaration_that_widens_nothing_is_no_remedy(retried):
    tried = retried("windows", "*fp32:16, *fp32:16, i32, i32:16, 3, 1024")
    (finding,) = told(tried.findings(), "width is not known to be divisible by 16")
    assert finding.severity == "low"
    assert finding.action.startswith("Leave it where rows start anywhere")
    assert "to pad width to a multiple of 16 widens nothing by itself" in finding.action


@pytest.mark.parametrize("size", [0, 7, 100])
def test_a_quotient_by_an_argument(retried, size):
    tried = retried("resampled", f"*fp32:16, *fp32:16, i32, i32, {size}, 1024")
    (finding,) = told(tried.alone().findings, "a quotient")
    assert ("what width divides" in finding.action) == (size == 0)
    assert (finding.severity == "high") == (size != 0)
