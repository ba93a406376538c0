"""Reductions across warps that a loop does not need are told, others are not."""

import pytest

from tests.inspect.retried import Retried, allow

INDICES, FLOATS = "*i32:16, *fp32:16, *fp32:16, i32:16, 256", "*fp32:16, *fp32:16, i32:16, 256"


@pytest.fixture
def findings_on(triton_cache, monkeypatch):
    """The findings on reductions of a kernel of looped_kernels.py."""
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.shared_memory import looped_kernels

    def found(name, signature=FLOATS, sass=False, **options):
        kernel = getattr(looped_kernels, name)
        tried = Retried(kernel, signature, with_ttgir=True, sass=sass, **options)
        return [each for each in tried.alone().findings if "reduction" in each.message]

    return found


def test_a_block_is_reduced_to_pick_one_element(findings_on):
    (finding,) = findings_on("picked", INDICES, sass=True)
    assert finding.severity == "medium"
    message, barriers = finding.message.rsplit(" (", 1)
    assert message == (
        "1 reduction in the innermost loop, at looped_kernels.py:14, picks one element of a block, "
        "but combines all warps through shared memory in each iteration"
    )
    # Triton 3.9 has one less.
    assert barriers in ("2 barriers)", "3 barriers)")
    assert finding.action.startswith("Load the one value in the loop with a scalar tl.load")


def test_a_scalar_is_accumulated(findings_on):
    (finding,) = findings_on("summed")
    assert finding.severity == "medium"
    assert "at looped_kernels.py:24, only adds to what the loop accumulates" in finding.message
    assert finding.action.startswith("Accumulate the whole block element by element")


def test_a_row_is_accumulated(findings_on):
    (finding,) = findings_on("column_sums", "*fp32:16, *fp32:16, i32:16, i32:16, 64")
    assert finding.severity == "low"


@pytest.mark.parametrize("name", ["summed_after", "normalized"])
def test_a_reduction_that_is_needed_there(findings_on, name):
    assert findings_on(name) == []


@pytest.mark.parametrize(
    ("kind", "reductions"),
    [
        ("added", 1),
        ("scaled", 1),
        ("largest", 1),
        ("replaced", 0),
        ("replaced by itself", 0),
        ("of a product", 0),
        ("added elsewhere", 0),
        # The sum alone: each iteration scales by the largest value so far.
        ("softmax", 1),
    ],
)
def test_a_loop_that_reads_what_it_carries_needs_each_reduction(findings_on, kind, reductions):
    found = findings_on("recurrent", f'*fp32:16, *fp32:16, i32:16, 256, "{kind}"')
    assert sum(each.evidence.values["reductions"] for each in found) == reductions


def test_one_warp_has_nobody_to_wait_for(findings_on):
    assert findings_on("summed", num_warps=1) == []


def test_an_exchange_of_one_value_per_warp_is_not_narrow(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.shared_memory.looped_kernels import standardized

    report = Retried(standardized, FLOATS, with_ttgir=True).alone()
    shared = [a for a in report.accesses if (a.level, a.space) == ("sass", "shared")]
    assert sum(access.count for access in shared if access.loop_depth) >= 8
    assert not [each for each in report.findings if "shared-memory accesses" in each.message]


def test_conflicts_of_a_reduction_rank_below_it(triton_cache, monkeypatch):
    """No layout of the tile removes them; a reduction after the loop does. Triton 3.9 has none."""
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.shared_memory.looped_kernels import column_sums

    tried = Retried(column_sums, "*fp32:16, *fp32:16, i32:16, i32:16, 64", with_ttgir=True)
    conflicts = [f for f in tried.findings() if f.message.startswith("Bank conflicts")]
    assert {f.severity for f in conflicts} <= {"low"}
