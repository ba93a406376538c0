"""Tiles of a few elements, types smaller than those beside them, and copies of several stages."""

import pytest

from tests.inspect.retried import Retried, allow


@pytest.fixture(autouse=True)
def _allowed(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)


@pytest.mark.parametrize("block", [4, 16, 32, 64])
@pytest.mark.parametrize("types", ["*fp32:16, *fp32:16", "*fp16:16, *fp16:16"])
def test_a_tile_of_a_few_elements_is_all_that_the_kernel_moves(block, types):
    from tests.inspect.rules.narrow_kernels import gelu

    (finding, *_) = Retried(gelu, f"{types}, i32:16, {block}", with_ttgir=True).findings()
    assert finding.severity in ("high", "medium")
    assert "Leave it" not in finding.action


@pytest.mark.parametrize(
    ("types", "block", "is_low"),
    [
        # As many elements per thread as fill 128 bits of the larger type.
        ("*u8:16, *fp16:16", 1024, True),
        ("*fp16:16, *fp32:16", 512, True),
        ("*fp32:16, *fp16:16", 512, True),
        ("*i8:16, *fp32:16", 512, True),
        # Both would be wider with more.
        ("*fp16:16, *fp32:16", 256, False),
        ("*fp32:16, *fp32:16", 256, False),
    ],
)
def test_a_smaller_type_beside_full_vectors(types, block, is_low):
    from tests.inspect.rules.narrow_kernels import copy

    narrow = [
        finding
        for finding in Retried(copy, f"{types}, {block}", with_ttgir=True).findings()
        if "instead of 128" in finding.message
    ]
    assert narrow
    assert all((finding.severity in ("low", "info")) == is_low for finding in narrow)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("type_", ["i32", "i64"])
def test_the_copies_of_a_pipeline_are_no_elements_of_one_thread(stages, type_):
    """The rows that a loop over a table of neighbours takes, as in a sparse convolution."""
    from tests.inspect.rules.narrow_kernels import of_neighbours

    signature = f"*fp16:16, *fp16:16, *{type_}:16, *fp32:16, i32, i32, 64"
    findings = Retried(of_neighbours, signature, num_stages=stages, with_ttgir=True).findings()
    assert not any("same element" in finding.message for finding in findings)


@pytest.mark.parametrize(("type_", "is_low"), [("u8", True), ("i16", True), ("i64", False)])
def test_a_small_part_of_the_bytes_is_low(type_, is_low):
    """A mask or an index of 8 or 16 bits, not aligned, beside two arrays of floats."""
    from tests.inspect.rules.narrow_kernels import masked_by

    report = Retried(masked_by, f"*fp32:16, *{type_}, *fp32:16, 1024", with_ttgir=True).report()
    narrow = [f for f in report.findings if "instead of 128" in f.message]
    assert [f.severity in ("low", "info") for f in narrow] == [is_low]
