"""How wide kernels load, and what that costs: exact on small traces, and on a recorded one."""

import random
import re
from pathlib import Path

import pytest

from tests.build import Export
from tests.ptx.compiled_kernels import HEADER
from traceview import analyze
from traceview.analyses.base import Result, Skipped
from traceview.analyses.load_widths.analysis import ANALYSIS, COSTS, KERNELS
from traceview.analyses.load_widths.bounds import NEAR_PEAK
from traceview.errors import InputError
from traceview.findings import Subject
from traceview.toolchain.ptxas import assemble
from traceview.trace import Selection
from traceview.trace.load import load
from traceview.trace.nsys.kernel_code import STORED_AS

PEAK = 1_000_000_000_000
GPU = {"memoryBandwidth": PEAK, "smCount": 100, "clockRate": 1_000_000_000}
THREADS = 128


def ptx(name="k", bits=32, more="", loop=False):
    """Loads and stores once a thread; `loop` puts both into a loop."""
    data = {32: "%r3", 64: "{%r3,%r4}", 128: "{%r3,%r4,%r5,%r6}"}[bits]
    kind = {32: "b32", 64: "v2.b32", 128: "v4.b32"}[bits]
    loop_start, loop_end = ("L:", "@%p1 bra L;") if loop else ("", "")
    return f"""{HEADER}
.visible .entry {name}(.param .u64 x, .param .u64 y)
{{
    .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
    .loc 1 6 0
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mad.wide.s32 %rd3, %r1, {bits // 8}, %rd1; mad.wide.s32 %rd4, %r1, {bits // 8}, %rd2;
    {loop_start}
    .loc 1 7 0
    ld.global.{kind} {data}, [%rd3];
    {more}
    .loc 1 8 0
    st.global.{kind} [%rd4], {data};
    {loop_end}
    ret;
}}
.file 1 "/home/user/{name}.cu"
"""


def launched(export, start, took, *, name="k", blocks=100_000, threads=THREADS, **columns):
    block = {"blockX": threads, "gridX": blocks, "staticSharedMemory": 0, "dynamicSharedMemory": 0}
    rest = {"blockY": 1, "blockZ": 1, "gridY": 1, "gridZ": 1}
    span = (start, start + took)
    return export.launch((start, start + 1), span, name=name, **{**block, **rest, **columns})


def export():
    return Export().gpu(0, **GPU)


def loaded(export, folder):
    """The trace, from a folder of its own: a test may build several."""
    own = folder / str(len(list(folder.iterdir())))
    own.mkdir()
    return export.load(own)


def answer(export, folder) -> Result:
    outcome = ANALYSIS.run(loaded(export, folder))
    assert isinstance(outcome, Result)
    return outcome


def costs(outcome, *columns):
    return [tuple(row[c] for c in columns) for row in outcome.tables["costs"].rows()]


def moved(calls=1, blocks=100_000, bytes_each=8):
    return calls * blocks * THREADS * bytes_each


def ns_of(share, blocks=100_000, bytes_each=8):
    """How long a launch takes that moves its bytes at that share of the peak."""
    return round(moved(1, blocks, bytes_each) / PEAK * 1e9 / share)


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
        "at best."
    )
    assert finding.subject == Subject("kernel", "k", "/home/user/k.cu", 7)
    assert finding.evidence.row["name"] == "k"
    assert finding.share_of_step_pct == pytest.approx(100 * (took - bound // 2) / (2 * took + 100))
    assert finding.action == (
        "Give each thread adjacent elements, and move them as float4 (16 bytes)."
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
    assert finding.message.endswith(" wide reaches 900 GB/s in this run with 128 bits.")


def test_elements_that_lie_apart_are_a_proven_cause(tmp_path):
    apart = ptx().replace("%r1, 4,", "%r1, 16,")
    built = launched(export().code("k", apart), 0, ns_of(0.4))
    (finding,) = answer(built, tmp_path).findings
    assert "k.cu:7 and k.cu:8, because a thread's elements are 4 apart. It" in finding.message
    assert finding.action.startswith("Store each of the 4 parts as an array of its own")


def test_no_code_is_skipped_with_the_command_and_no_kernels_are_an_answer(tmp_path):
    outcome = ANALYSIS.run(loaded(export().drop(STORED_AS), tmp_path))
    assert isinstance(outcome, Skipped)
    assert "traceview record SCRIPT" in outcome.remedy
    assert "--cubin FILE" in outcome.remedy
    nothing = answer(export(), tmp_path)
    assert (nothing.findings, nothing.notes, nothing.summary) == ((), (), {})


def test_without_any_code_there_are_no_shares(tmp_path):
    """0 % of loads at 32 bits would read as if no kernel had any."""
    for built in (export(), export().code("other", ptx("other"))):
        outcome = ANALYSIS.run(loaded(launched(built, 0, 100, name="lib"), tmp_path))
        assert isinstance(outcome, Skipped)
        assert outcome.reason.startswith("the trace has no code of the kernels that ran")
        assert "--cubin FILE" in outcome.remedy


@pytest.mark.parametrize("name", ["training", "streams", "sync_sites", "rates"])
def test_a_recording_without_code_of_what_ran_is_no_answer(unpack, name):
    outcome = ANALYSIS.run(load(unpack(name)))
    assert isinstance(outcome, Skipped) == (name != "rates")


def test_code_of_another_architecture_is_none(tmp_path):
    built = launched(export().code("k", ptx(), arch="sm_80"), 0, 1_000_000)
    outcome = ANALYSIS.run(loaded(built, tmp_path))
    assert isinstance(outcome, Skipped)
    assert outcome.reason.endswith("1 launch of k matches none of the recorded code")


def test_variants_that_share_launches_count_once_and_claim_only_where_they_agree(tmp_path):
    took = ns_of(0.4)
    same = export().code("k", ptx(), hash="1").code("k", ptx() + "// again\n", hash="2")
    outcome = answer(launched(same, 0, took), tmp_path)
    assert outcome.summary["loads_at_most_32_bits_pct"] == 100.0
    assert len(outcome.findings) == 1
    assert sorted(costs(outcome, "at_stake_ns"))[0] == (0,)
    differ = export().code("k", ptx(), hash="1").code("k", ptx(bits=128), hash="2")
    outcome = answer(launched(differ, 0, took), tmp_path)
    assert not outcome.findings
    assert outcome.summary["loads_at_most_32_bits_pct"] == 0.0
    assert outcome.summary["loads_at_most_128_bits_pct"] == 100.0
    assert ("variants of different widths share its launches",) in costs(outcome, "why_not")


def test_a_mangled_name_joins(tmp_path):
    mangled = "_Z5twiceIfEvPKT_PS0_"
    built = export()
    built.code(mangled, ptx(mangled))
    name = "void twice<float>(const T1 *, T1 *)"
    launched(built, 0, ns_of(0.4), name=name, mangledName=built.string(mangled))
    outcome = answer(built, tmp_path)
    assert costs(outcome, "name", "verdict") == [(name, "narrow")]


def test_a_range_restricts_the_launches(tmp_path):
    took = ns_of(0.4)
    built = launched(export().code("k", ptx()).range("a", 0, 10), 2, took)
    built = launched(built, took + 100, took).range("b", took + 90, took + 110)
    whole = loaded(built, tmp_path)
    part = ANALYSIS.run(whole.restricted(Selection(("a",))))
    assert costs(part, "calls", "total_ns") == [(1, took)]
    nothing = ANALYSIS.run(whole.restricted(Selection((), ("a", "b"))))
    assert not len(nothing.tables["costs"])
    assert not nothing.findings


def test_code_can_be_given(tmp_path):
    (tmp_path / "k.ptx").write_text(ptx())
    trace = loaded(launched(export().drop(STORED_AS), 0, ns_of(0.4)), tmp_path)
    report = analyze(trace, "load-widths", cubins=[tmp_path / "k.ptx"])
    assert (
        "32 bits per thread per instruction at k.cu:7 and k.cu:8"
        in report.findings[0].finding.message
    )
    assert "kernel_code" not in trace.tables
    (tmp_path / "other.ptx").write_text(ptx("other"))
    with pytest.raises(InputError, match="no kernel of the files given with --cubin ran"):
        analyze(trace, "load-widths", cubins=tmp_path / "other.ptx")


def test_a_cubin_is_that_of_a_launch_only_with_its_registers(tmp_path):
    pytest.importorskip("elftools")
    try:
        cubin = assemble(ptx()).cubin
    except Exception as error:
        pytest.skip(str(error))
    from traceview.ptx.sass.cubin import resources

    (tmp_path / "k.cubin").write_bytes(cubin)
    registers = resources(cubin)["k"].registers
    for given, rows in ((registers, 1), (registers + 40, 0)):
        built = launched(export(), 0, ns_of(0.4), registersPerThread=given)
        found = analyze(loaded(built, tmp_path), "load-widths", cubins=[tmp_path / "k.cubin"])
        outcome = found.outcomes["load-widths"]
        assert isinstance(outcome, Result if rows else Skipped)
        for finding in outcome.findings if rows else ():
            assert (
                "loads and stores 32 bits per thread per instruction at k.cu:7 and k.cu:8. It"
                in finding.message
            )


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


TESTS = Path(__file__).parent.parent
RATES = TESTS / "data" / "rates.sqlite.xz"
# The CUDA C++ of tests/data/rates.py, compiled by NVRTC with lines.
GELU = TESTS / "data" / "gelu-nvrtc-12.9-sm90.ptx"


@pytest.fixture(scope="module", params=["gathered", "given"])
def rates(request):
    """Recorded on an H200 with `traceview record tests/data/rates.py`."""
    if not RATES.exists():
        pytest.skip("tests/data/rates.sqlite.xz is not recorded yet: it needs a GPU")
    trace = load(RATES)
    if request.param == "given":
        return analyze(trace, "load-widths", cubins=GELU).outcomes["load-widths"]
    if "gelu_scalar" not in trace.kernel_code.cells("name"):
        pytest.skip("tests/data/rates.sqlite.xz is older than the gathering of CUDA C++")
    return ANALYSIS.run(trace)


def test_one_element_per_thread_is_found_with_factor_and_remedy(rates):
    (finding,) = [f for f in rates.findings if f.message.startswith("gelu_scalar (")]
    assert re.search(
        r"loads and stores 32 bits per thread per instruction at gelu\w*\.cu:5", finding.message
    )
    assert 1.8 <= finding.evidence.values["speedup_factor"] <= 2.4
    assert "float4" in finding.action
    spent = {row["kernel"]: row["total_ns"] for row in rates.tables["costs"].rows()}
    assert 0.4 < finding.time_at_stake_ns / spent["gelu_scalar"] < 0.6


def test_wide_kernels_are_no_finding(rates):
    rows = {row["kernel"]: row for row in rates.tables["costs"].rows()}
    for name in ("gelu_vector", "gelu_kernel", "copy_kernel"):
        assert (rows[name]["load_bits"], rows[name]["store_bits"]) == (128, 128)
        assert rows[name]["at_stake_ns"] == 0
        assert rows[name]["verdict"] in ("wide", "near-peak")
        assert not any(finding.message.startswith(f"{name} (") for finding in rates.findings)


def test_bytes_are_those_of_the_arrays(rates):
    for row in rates.tables["costs"].rows():
        assert row["bytes"] == row["calls"] * 2 * 16_384 * 16_384 * 4


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
