"""How wide kernels load, and what that costs: exact on small traces."""

import random

import pytest

from tests.analyses.load_widths.recorded_loads import (
    PEAK,
    answer,
    costs,
    export,
    launched,
    moved,
    ns_of,
    ptx,
)
from traceview.base.findings import Subject
from traceview.traces.analyses.load_widths import COSTS, KERNELS


def test_narrow_loads_of_a_memory_bound_kernel_cost_the_time_beyond_the_bound(tmp_path):
    took = ns_of(0.4)
    built = launched(export().code("k", ptx()), 0, took)
    built = launched(built, took + 100, took)
    outcome = answer(built, tmp_path)
    bound = round(2 * moved() / PEAK * 1e9)
    (row,) = outcome.tables["costs"].rows()
    assert row == {
        "kernel": "k",
        "name": "k",
        "calls": 2,
        "total_ns": 2 * took,
        "share_pct": 100.0,
        "load_bits": 32,
        "store_bits": 32,
        "level": "ptx",
        "source": "k.cu:7",
        "verdict": "narrow",
        "why_not": None,
        "bytes": moved(2),
        "bytes_per_s": int(moved(2) / (2 * took) * 1e9),
        "peak_bytes_per_s": PEAK,
        "bound_ns": bound,
        "at_stake_ns": 2 * took - bound,
    }
    (finding,) = outcome.findings
    # The second was launched late, so the first does not limit the program.
    assert finding.time_at_stake_ns == took - bound // 2
    assert finding.severity == "medium"  # most of the time, but less than 1 ms
    assert finding.message == (
        "k (100.0 % of kernel time) loads and stores 32 bits per thread per instruction at k.cu:7 "
        "and k.cu:8, likely because each thread moves only 32 bits there. It reaches 400 GB/s of "
        "the GPU's 1,000 GB/s. A call takes 256 µs; at 128 bits it could take 102 µs (2.5× faster) "
        "at best. Once this is done, the CPU limits the run."
    )
    assert finding.subject == Subject("kernel", "k", "/home/user/k.cu", 7)
    assert finding.evidence.row["name"] == "k"
    assert finding.share_of_step_pct == pytest.approx(100 * (took - bound // 2) / (2 * took + 100))
    assert finding.action == (
        "Give each thread adjacent elements, and move them in vectors of 16 bytes (such as float4 "
        "or double2) where each row is so aligned, the rest one by one."
    )


def test_the_widths_of_each_line_with_calls_and_time(tmp_path):
    took = ns_of(0.4)
    built = launched(launched(export().code("k", ptx()), 0, took), took, 3 * took, name="lib")
    outcome = answer(built, tmp_path)
    common = {"kernel": "k", "name": "k", "space": "global", "width_bits": 32, "level": "ptx"}
    common |= {"instructions": 1, "share_pct": 25.0, "calls": 1, "total_ns": took, "loop_depth": 0}
    assert list(outcome.tables["kernels"].rows()) == [
        {**common, "kind": "load", "source": "k.cu:7"},
        {**common, "kind": "store", "source": "k.cu:8"},
    ]
    assert outcome.summary == {
        **{
            f"{what}_at_most_{bits}_bits_pct": 25.0
            for what in ("loads", "stores")
            for bits in (32, 64, 128)
        },
        "without_code_pct": 75.0,
        "kernel_total_ns": 4 * took,
        "at_stake_ns": took - round(moved() / PEAK * 1e9),
    }
    (note,) = outcome.notes
    assert note.startswith("75.0 % of kernel time is in kernels without recorded code")


@pytest.mark.parametrize("seed", range(8))
def test_shares_are_those_of_a_plain_count(tmp_path, seed):
    dice = random.Random(seed)
    built, at, spent = export(), 0, {}
    widths = {name: dice.choice([32, 64, 128]) for name in "abcd"}
    for name, bits in widths.items():
        built.code(name, ptx(name, bits))
    for _ in range(30):
        name, took = dice.choice("abcdxy"), dice.randrange(1, 1000)
        launched(built, at, took, name=name)
        at += took + dice.randrange(3)
        spent[name] = spent.get(name, 0) + took
    summary = answer(built, tmp_path).summary
    total = sum(spent.values())
    for bits in (32, 64, 128):
        mine = sum(ns for name, ns in spent.items() if widths.get(name, 999) <= bits)
        assert summary[f"loads_at_most_{bits}_bits_pct"] == pytest.approx(100 * mine / total)
        assert summary[f"stores_at_most_{bits}_bits_pct"] == pytest.approx(100 * mine / total)
    other = sum(ns for name, ns in spent.items() if name not in widths)
    assert summary["without_code_pct"] == pytest.approx(100 * other / total)


@pytest.mark.parametrize(
    "columns",
    [
        {"gridX": 2**31 - 1, "gridY": 2**31 - 1, "gridZ": 2**31 - 1},
        {"gridX": 0},
        {"gridX": -5},
        {"blockX": 0},
        {"blockX": 2**31 - 1, "blockY": 2**31 - 1},
    ],
)
def test_impossible_grids_are_no_error(tmp_path, columns):
    built = export().code("k", ptx())
    outcome = answer(launched(built, 0, 50_000, **columns), tmp_path)
    for finding in outcome.findings:
        assert 0 <= finding.time_at_stake_ns <= 50_000


def test_hostile_names_stay_short(tmp_path):
    source = ptx().replace("/home/user/k.cu", "/home/" + "</script>" * 5000)
    outcome = answer(launched(export().code("k", source), 0, ns_of(0.4)), tmp_path)
    assert all(len(f.message) < 1500 for f in outcome.findings)


def test_tables_are_as_declared(tmp_path):
    outcome = answer(launched(export().code("k", ptx()), 0, ns_of(0.4)), tmp_path)
    assert outcome.tables["costs"].columns == COSTS.columns
    assert outcome.tables["kernels"].columns == KERNELS.columns


def test_what_ran_in_a_warm_up_range_costs_nothing(tmp_path):
    """As the trials of an autotuner: of the same code, the calls after it count alone."""
    took = ns_of(0.4)
    built = export().code("k", ptx()).range("warm_up", 0, 7 * took)
    for turn in (0, 2, 4, 20):
        built = launched(built, turn * took, took)
    built = launched(built.code("trial", ptx("trial")), 6 * took, 9 * took, name="trial")

    outcome = answer(built, tmp_path)

    once = took - round(moved() / PEAK * 1e9)
    assert costs(outcome, "kernel", "calls", "bytes", "at_stake_ns", "why_not") == [
        ("trial", 1, None, 0, "it ran only during warm-up"),
        ("k", 4, moved(), once, None),
    ]
    assert [finding.time_at_stake_ns for finding in outcome.findings] == [once]
    assert any(note.startswith("4 calls of warm-up (before ") for note in outcome.notes)


def test_a_recording_of_warm_up_alone_is_analyzed(tmp_path):
    built = launched(export().code("k", ptx()).range("warm_up", 0, 5000), 10, ns_of(0.4))
    outcome = answer(built, tmp_path)
    assert len(outcome.findings) == 1
    assert not any("of warm-up" in note for note in outcome.notes)
