"""Which source a figure of a GPU comes from."""

import pytest

from tests.build import Export
from traceview.traces.facts.work.peaks import GIVEN, OF_THE_TRACE, peaks


def known(tmp_path, given=None, **gpu):
    export = Export().kernel_without_launch((0, 10)).gpu(0, **gpu)
    trace = export.load(tmp_path).but(peaks=given or {})
    [found] = peaks(trace)
    return found


def test_the_traces_own_row_comes_before_the_data_sheet(tmp_path):
    found = known(tmp_path, memoryBandwidth=4_814_304_000_000)
    assert (found["bandwidth"].value, found["bandwidth"].source) == (4.814304e12, OF_THE_TRACE)
    assert (found["bf16"].value, found["bf16"].source) == (989.4e12, "H200 data sheet")
    assert found["l2"].value == 60 << 20
    assert found["link"].value == 64e9


def test_the_data_sheet_where_the_row_does_not_say(tmp_path):
    found = known(tmp_path, memoryBandwidth=0)
    assert (found["bandwidth"].value, found["bandwidth"].source) == (4.8e12, "H200 data sheet")


def test_what_was_given_comes_first(tmp_path):
    found = known(tmp_path, {"bandwidth": 4e12, "bf16": 9e14})
    assert (found["bandwidth"].value, found["bf16"].value) == (4e12, 9e14)
    assert found["bandwidth"].source == found["bf16"].source == GIVEN


def test_fp32_of_an_unknown_product_follows_from_sms_and_clock(tmp_path):
    found = known(tmp_path, name="NVIDIA H900", smCount=100, clockRate=1_500_000_000)
    assert found["fp32"].value == 100 * 128 * 2 * 1.5e9
    assert found["fp64"].value == 100 * 64 * 2 * 1.5e9
    assert found["fp32"].source == "100 SMs × 128 lanes × 2 × 1.50 GHz"
    assert "bf16" not in found


def test_the_computed_rate_is_that_of_the_data_sheet(tmp_path):
    """132 SMs at the H200's 1.98 GHz: 66.9 TFLOP/s, as NVIDIA says."""
    computed = known(tmp_path, name="unnamed")
    assert computed["fp32"].value == pytest.approx(66.9e12, rel=0.001)
    assert computed["fp64"].value == pytest.approx(33.5e12, rel=0.002)


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("NVIDIA GeForce RTX 3070 Ti", (8, 6), {"fp32": 22.8, "tf32": 22.8, "bf16": 45.7}),
        ("NVIDIA GeForce RTX 5070", (12, 0), {"fp32": 22.8, "tf32": 22.8, "bf16": 45.7}),
        ("NVIDIA RTX A4000", (8, 6), {"fp32": 22.8, "tf32": 45.7, "bf16": 91.4}),
        ("NVIDIA RTX A2000 Laptop GPU", (8, 6), {"fp32": 22.8, "tf32": 45.7, "bf16": 91.4}),
        ("NVIDIA RTX 5000 Ada Generation", (8, 9), {"fp32": 22.8, "tf32": 45.7, "bf16": 91.4}),
        ("NVIDIA A-something of these", (8, 6), {"fp32": 22.8}),
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), {"fp32": 11.4}),
    ],
)
def test_tensor_cores_of_rtx_cards_follow_from_their_generation(
    name, capability, expected, tmp_path
):
    major, minor = capability
    row = {"computeMajor": major, "computeMinor": minor, "clockRate": 1_860_000_000}
    found = known(tmp_path, name=name, smCount=48, **row)

    rates = {kind: round(found[kind].value / 1e12, 1) for kind in ("fp32", "tf32", "bf16")
             if kind in found}  # fmt: skip
    assert rates == pytest.approx(expected, abs=0.1)


def test_a_slice_of_a_gpu_has_what_its_row_says(tmp_path):
    found = known(tmp_path, smCount=16)
    assert "bf16" not in found
    assert found["fp32"].value == 16 * 128 * 2 * 1.98e9


def test_nothing_is_known_of_a_gpu_without_a_row(tmp_path):
    export = Export().kernel_without_launch((0, 10)).gpu_unknown(0)
    assert peaks(export.load(tmp_path)) == ({},)
