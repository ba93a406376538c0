"""The analysis `load-widths`: what wider loads can save, and where nothing."""

import pytest

from tests.analyses.load_widths.recorded_loads import (
    GPU,
    PEAK,
    answer,
    costs,
    export,
    launched,
    loaded,
    moved,
    ns_of,
    ptx,
)
from tests.build import Export
from tests.ptx.compiled_kernels import ptx_kernel
from traceview import analyze
from traceview.traces.analyses.load_widths_findings import NEAR_PEAK


def verdict(built, folder):
    outcome = answer(built, folder)
    (row,) = outcome.tables["costs"].rows()
    assert not any(f.time_at_stake_ns for f in outcome.findings) or row["verdict"] == "narrow"
    assert bool(row["at_stake_ns"]) == (row["verdict"] == "narrow")
    return row["verdict"], row["why_not"]


def test_near_peak_bandwidth_nothing_can_be_saved(tmp_path):
    built = launched(export().code("k", ptx()), 0, ns_of(NEAR_PEAK + 0.01))
    assert verdict(built, tmp_path) == ("near-peak", None)
    assert not answer(built, tmp_path).findings


def test_wide_kernels_are_no_finding_however_slow(tmp_path):
    built = launched(export().code("k", ptx(bits=128)), 0, ns_of(0.3, bytes_each=32))
    assert verdict(built, tmp_path) == ("wide", None)


@pytest.mark.parametrize(
    ("changes", "how", "why"),
    [
        ({"loop": True}, {}, "its loop trip counts are not known"),
        ({"more": "red.global.add.f32 [%rd4], %r3;"}, {}, "its atomics may contend"),
        ({"more": "M: add.s32 %r1, %r1, 1; @%p2 bra M;"}, {}, "its arithmetic is in loops"),
        ({}, {"blocks": 99, "took": 20_000}, "it has fewer blocks than the GPU has SMs"),
        ({}, {"blocks": 1000, "took": 9_000}, "its calls take less than 10.0 µs"),
        ({}, {"took": ns_of(0.1)}, "it reaches less than 20 % of peak bandwidth"),
        (
            {"more": "sin.approx.f32 %r3, %r3;" * 50},
            {"took": ns_of(0.4)},
            "its arithmetic takes as long",
        ),
    ],
)
def test_no_time_is_claimed_where_a_kernel_may_not_be_memory_bound(tmp_path, changes, how, why):
    how = {"took": ns_of(0.4)} | how
    said = verdict(launched(export().code("k", ptx(**changes)), 0, **how), tmp_path)
    assert said[0] == "unknown"
    assert said[1].startswith(why)


def test_arithmetic_bounds_what_can_be_saved(tmp_path):
    more = "add.f32 %r3, %r3, %r3;" * 200
    outcome = answer(launched(export().code("k", ptx(more=more)), 0, ns_of(0.4)), tmp_path)
    (row,) = outcome.tables["costs"].rows()
    # 200 additions and two instructions for addresses, 4 warps a clock and SM.
    slots = 202
    assert row["bound_ns"] == round(slots * 100_000 * 4 / (4 * 100 * 1e9) * 1e9)


def test_time_shrinks_no_more_than_the_number_of_instructions(tmp_path):
    outcome = answer(
        launched(export().code("k", ptx(bits=64)), 0, ns_of(0.25, bytes_each=16)), tmp_path
    )
    (row,) = outcome.tables["costs"].rows()
    assert row["bound_ns"] == row["total_ns"] // 2


def test_launches_that_overlap_others_are_not_timed(tmp_path):
    took = ns_of(0.4)
    built = launched(export().code("k", ptx()), 0, took)
    built = launched(built, 10, took, name="other", stream=9)
    assert verdict(built, tmp_path) == ("unknown", "it never ran alone on the GPU")
    built = launched(built, 3 * took, took)
    (row,) = costs(answer(built, tmp_path), "calls", "bytes", "at_stake_ns")
    assert row == (2, moved(1), took - round(moved() / PEAK * 1e9))


def test_without_the_peak_of_memory_it_can_be_given(tmp_path):
    built = launched(
        Export().gpu(0, **{**GPU, "memoryBandwidth": None, "name": "odd"}).code("k", ptx()),
        0,
        ns_of(0.4),
    )
    assert verdict(built, tmp_path) == (
        "unknown",
        "the peak bandwidth of the GPU is not known",
    )
    report = analyze(loaded(built, tmp_path), "load-widths", peaks={"bandwidth": float(PEAK)})
    assert report.findings[0].finding.time_at_stake_ns > 0


def test_where_bytes_are_unknown_the_finding_has_the_kernel_time_alone(tmp_path):
    outcome = answer(launched(export().code("k", ptx(loop=True)), 0, 1_000_000), tmp_path)
    (finding,) = outcome.findings
    assert (finding.severity, finding.time_at_stake_ns) == ("low", 0)
    assert finding.message.endswith("The cost is unknown: its loop trip counts are not known.")
    small = launched(export().code("k", ptx(loop=True)), 0, 40_000)
    assert not answer(launched(small, 50_000, 960_000, name="lib"), tmp_path).findings


def test_a_kernel_that_reaches_more_in_this_run_is_named(tmp_path):
    slow, fast = ns_of(0.4), ns_of(0.9, bytes_each=32)
    built = export().code("k", ptx()).code("wide", ptx("wide", 128))
    built = launched(launched(built, 0, slow), slow, fast, name="wide")
    (finding,) = answer(built, tmp_path).findings
    assert " wide reaches 900 GB/s in this run with 128 bits." in finding.message


def test_elements_that_lie_apart_are_a_proven_cause(tmp_path):
    apart = ptx().replace("%r1, 4,", "%r1, 16,")
    built = launched(export().code("k", apart), 0, ns_of(0.4))
    (finding,) = answer(built, tmp_path).findings
    assert "k.cu:8, because neighbouring threads are 16 bytes apart. It" in finding.message
    assert finding.action.startswith("Store each member of the structure as an array")


ROWS = """
    mul.wide.s32 %rd5, %r1, {apart}; add.s64 %rd5, %rd1, %rd5;
    mov.u32 %r4, 0;
M:
    ld.global.b32 %r3, [%rd5];
    add.s64 %rd5, %rd5, {next};
    add.s32 %r4, %r4, 1;
    setp.lt.s32 %p1, %r4, %r2;
    @%p1 bra M;
    st.global.b32 [%rd4], %r3;
"""


@pytest.mark.parametrize(("apart", "sectors"), [(4, 4), (16, 16), (512, 32), (4_096, 32)])
@pytest.mark.parametrize("part", [0.2, 0.8])
def test_threads_that_read_apart_cost_what_their_sectors_hold_beside(
    tmp_path, apart, sectors, part
):
    """A row per thread: the trip count is not known, but how much of what is moved is used is."""
    built = export().code("k", ptx_kernel(ROWS.format(apart=apart, next=4 if apart > 4 else 4_096)))
    for number in range(20):
        call, at = 1_000 * number, 100_000 + 100_000 * number
        own = at + round(100_000 * part)
        built.launch((call, call + 300), (at, own), gridX=1_000, blockX=128)
        built.launch((call + 400, call + 700), (own, at + 100_000), name="cub::lib", gridX=1_000)
    findings = [f for f in answer(built, tmp_path).findings if f.subject.name == "k"]
    said = [f for f in findings if "sectors instead of 4" in f.message]
    assert len(said) == (sectors > 4)
    for finding in said:
        assert f"touches {sectors} sectors" in finding.message
        assert (finding.severity, finding.saving) == ("medium", "at-most")
        saved = 20 * 100_000 * part * (1 - 4 / sectors)
        assert finding.time_at_stake_ns == pytest.approx(saved, rel=0.15)
