"""The H200 of the built traces: 4,814.304 GB/s, fp32 66.9 and bf16 989.4 TFLOP/s."""

from dataclasses import replace

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.base.findings import Subject
from traceview.base.hardware import parse_figures
from traceview.traces.analyses.base import Skipped
from traceview.traces.analyses.roofline import ANALYSIS
from traceview.traces.analyses.roofline_points import RooflinePoint
from traceview.traces.facts.work.from_ranges import declaration
from traceview.traces.facts.work.kernel_work import DECLARED, MEASURED, PTX
from traceview.traces.facts.work.peaks import Peak

MS = 1_000_000


def run(export: Export, said: str, start: int, end: int, **kernel) -> None:
    """A kernel whose launch call is made in a range of that name."""
    export.range(said, start, start + 100)
    export.launch((start + 10, start + 20), (start + 200, end), **kernel)


def test_a_declared_kernel_near_peak_bandwidth(tmp_path):
    export = Export()
    gelu = declaration("gelu", bytes=4_000_000_000, flop=8_000_000_000, kind="fp32")
    run(export, gelu, 0, MS + 200, name="gelu_kernel<4>(float)", gridX=7, gridY=2)

    result = ask(ANALYSIS, export, tmp_path)

    [row] = list(result.tables["kernels"].rows())
    assert row == {
        "short_name": "gelu_kernel",
        "label": "gelu_kernel",
        "device_id": 0,
        "host_id": None,
        "grid": "7x2x1",
        "block": "128x1x1",
        "registers_per_thread": 32,
        "declared_in": "gelu",
        "calls": 1,
        "total_ns": MS,
        "bytes": 4_000_000_000,
        "flop": 8_000_000_000,
        "achieved_bytes_per_s": 4_000_000_000_000,
        "achieved_flop_per_s": 8_000_000_000_000,
        "flop_per_byte": 2.0,
        "flop_kind": "fp32",
        "memory_peak_pct": pytest.approx(100 * 4000 / 4814.304),
        "compute_peak_pct": pytest.approx(100 * 8 / 66.9),
        "bound": "memory",
        "peak_bytes_per_s": 4_814_304_000_000,
        "peak_flop_per_s": 66_900_000_000_000,
        "least_ns": round(MS * 4000 / 4814.304),
        "at_stake_ns": MS - round(MS * 4000 / 4814.304),
        "basis": "declared",
        "beside_pct": 0.0,
        "name": "gelu_kernel<4>(float)",
    }
    assert not result.findings
    assert not result.notes
    assert result.summary["memory_bound_ns"] == MS


@pytest.mark.parametrize(
    ("moved", "flop", "kind", "bound"),
    [
        (3_000_000_000, 0, None, "memory"),
        (1_000_000_000, 60_000_000_000, "fp32", "compute"),
        (1_000_000_000, 800_000_000_000, "bf16", "compute"),
        (1_000_000_000, 1_000_000_000, "fp32", "latency"),
        (1_000_000_000, 1_000_000_000, None, "unknown"),
        (1_000_000_000, None, None, "unknown"),
        (None, 1_000_000_000, "fp32", "unknown"),
        (None, 60_000_000_000, "fp32", "compute"),
        (3_000_000_000, None, None, "memory"),
    ],
)
def test_what_binds(tmp_path, moved, flop, kind, bound):
    export = Export()
    run(export, declaration("work", bytes=moved, flop=flop, kind=kind), 0, MS + 200)

    assert rows(ask(ANALYSIS, export, tmp_path), "kernels", "bound") == [(bound,)]


@pytest.mark.parametrize(
    ("names", "halves", "expected"),
    [
        # A kernel of Triton has one name for all types: what it has to do tells them apart.
        (("k", "k"), 2, [("k", 2, 4 * 10**9), ("k", 1, 10**9)]),
        (("k", "k"), 1, [("k", 3, 6 * 10**9)]),
        # A template has its types in its name.
        (("k<float>", "k<half>"), 1, [("k", 2, 4 * 10**9), ("k", 1, 2 * 10**9)]),
    ],
)
def test_data_types_of_one_kernel_are_told_apart(tmp_path, names, halves, expected):
    export = Export()
    for number, (name, share) in enumerate([(names[0], 1), (names[0], 1), (names[1], halves)]):
        said = declaration("add", bytes=2_000_000_000 // share, flop=10**6, kind="fp32")
        run(export, said, 2 * MS * number, 2 * MS * number + MS, name=name, gridX=7)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", "short_name", "calls", "bytes") == expected


def test_a_kernel_far_below_both_peaks_is_a_finding(tmp_path):
    export = Export()
    run(export, declaration("slow", bytes=10**9, flop=10**9, kind="fp32"), 0, MS + 200, name="slow")

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.severity == "medium"  # most of the time, but less than 1 ms
    assert finding.time_at_stake_ns == MS - round(MS * 1000 / 4814.304)
    assert finding.message == (
        "slow reaches 20.8 % of peak bandwidth (1,000 GB/s) and 1.5 % of the fp32 peak. It takes "
        "1.00 ms in 1 call; at the nearer peak it would take 208 µs (basis: declared)."
    )
    assert finding.subject == Subject("kernel", "slow")
    assert finding.evidence.table == "kernels"
    assert finding.share_of_step_pct == pytest.approx(100 * finding.time_at_stake_ns / MS)


def test_communication_is_not_judged_by_its_rate(tmp_path):
    export = Export()
    work = declaration("all_reduce", bytes=10**6, flop=10**6, kind="fp32")
    run(export, work, 0, MS, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)")
    work = declaration("slow", bytes=10**9, flop=10**9, kind="fp32")
    run(export, work, 2 * MS, 3 * MS, name="slow")

    result = ask(ANALYSIS, export, tmp_path)

    assert [name for (name,) in rows(result, "kernels", "short_name")] == ["slow"]


def test_a_point_needs_no_trace():
    """Half of both peaks binds nothing; 80 % of one does. Unmeasured bytes may be of a cache."""
    peaks = {"bandwidth": Peak(4e12, "given"), "fp32": Peak(60e12, "given")}
    point = RooflinePoint(
        **dict.fromkeys(("name", "label", "full_name", "declared_in", "grid", "block")),
        registers=None,
        device=0,
        calls=2,
        total_ns=1000,
        beside_ns=0,
        steady_ns=1000,
        bytes=2e6,
        flop=30e6,
        kind="fp32",
        bytes_from=DECLARED,
        flop_from=DECLARED,
        peaks=peaks,
        items=np.arange(2),
    )

    assert (point.memory_pct, point.compute_pct) == (50.0, 50.0)
    assert (point.bound, point.least_ns, point.flop_per_byte) == ("latency", 500, 15.0)
    near = replace(point, flop=48e6)
    assert (near.bound, near.least_ns) == ("compute", 800)
    assert replace(point, bytes=8e6).memory_pct is None
    assert replace(point, bytes=8e6, bytes_from=MEASURED).memory_pct == 200.0
    assert replace(point, peaks={}).bound == "unknown"
    assert replace(point, flop_from=PTX).basis == "bytes: declared, FLOP: PTX"


def test_launches_of_warm_up_are_in_the_table_and_not_in_findings(tmp_path):
    export, slow = Export(), declaration("slow", bytes=10**9, flop=10**9, kind="fp32")
    export.range("warm_up", 0, 2 * MS)
    for start in (0, MS, 2 * MS):
        run(export, slow, start, start + MS, name="slow")

    result = ask(ANALYSIS, export, tmp_path)

    [row], [finding] = list(result.tables["kernels"].rows()), result.findings
    assert row["calls"] == 3
    assert finding.time_at_stake_ns == pytest.approx(row["at_stake_ns"] / 3, abs=1)
    assert "2.00 ms of warm-up (before the first steady step" in result.notes[-1]


def test_what_runs_beside_other_work_is_not_blamed(tmp_path):
    export = Export()
    run(export, declaration("slow", bytes=10**9, flop=10**9, kind="fp32"), 0, MS + 200, name="slow")
    export.launch((300, 310), (MS // 2, MS), stream=8, name="other")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", "short_name", "beside_pct") == [("slow", 100.0)]
    assert not result.findings


def test_kernels_without_a_basis_are_left_out_and_counted(tmp_path):
    export = Export()
    run(export, declaration("work", bytes=10**9), 0, MS + 200, name="known")
    export.launch((2 * MS, 2 * MS + 1), (2 * MS + 10, 5 * MS + 10), name="other")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", "short_name") == [("known",)]
    assert result.summary["without_basis_ns"] == 3 * MS
    assert "75.0 % of kernel time (3.00 ms)" in result.notes[0]


def test_several_kernels_in_a_declaring_range_are_one_row(tmp_path):
    export = Export()
    manual = declaration("manual gelu", bytes=2_000_000_000, flop=10**9, kind="fp32")
    for start in (0, 10 * MS):
        export.range(manual, start, start + 100)
        for part in range(2):
            call = start + 10 + 20 * part
            kernel = (start + 200 + MS * part, start + 200 + MS * (part + 1))
            export.launch((call, call + 5), kernel, name=f"k{part}")

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("short_name", "grid", "calls", "total_ns", "bytes", "basis")
    assert rows(result, "kernels", *figures) == [
        ("manual gelu", None, 2, 4 * MS, 4_000_000_000, "declared")
    ]


def test_the_innermost_declaration_counts(tmp_path):
    export = Export()
    export.range(declaration("outer", bytes=9_000_000_000), 0, 500)
    run(export, declaration("inner", bytes=1_000_000_000), 10, MS + 210)

    assert rows(ask(ANALYSIS, export, tmp_path), "kernels", "bytes") == [(1_000_000_000,)]


def test_faster_than_the_memory_is_a_cache(tmp_path):
    export = Export()
    run(export, declaration("small", bytes=9_000_000_000, flop=10**9, kind="fp32"), 0, MS + 200)

    result = ask(ANALYSIS, export, tmp_path)

    columns = ("achieved_bytes_per_s", "memory_peak_pct", "bound")
    assert rows(result, "kernels", *columns) == [(9_000_000_000_000, None, "unknown")]


def test_flop_from_shapes(tmp_path):
    export = Export()
    mm = "aten::mm, seq = 12, op_id = 34, sizes = [[4096, 2048], [2048, 1024]]"
    run(export, mm, 0, MS + 200, name="ampere_bf16_s16816gemm_bf16_128x64")
    run(export, mm, 2 * MS, 3 * MS + 200, name="my_own_matmul")

    result = ask(ANALYSIS, export, tmp_path)

    flop, moved = 2 * 4096 * 2048 * 1024, 2 * (4096 * 2048 + 2048 * 1024 + 4096 * 1024)
    figures = ("short_name", "bytes", "flop", "flop_kind", "basis")
    assert sorted(rows(result, "kernels", *figures)) == [
        ("ampere_bf16_s16816gemm_bf16_128x64", moved, flop, "bf16", "tensor shapes"),
        ("my_own_matmul", None, flop, None, "FLOP: tensor shapes"),
    ]


def test_of_several_kernels_of_an_operator_the_product_has_the_flop(tmp_path):
    export = Export()
    export.range("aten::linear, op_id = 1, sizes = [[8, 16], [32, 16], [32]]", 0, 1000)
    export.range("aten::addmm, op_id = 2, sizes = [[32], [8, 16], [16, 32], [], []]", 10, 500)
    export.launch((20, 30), (2000, MS), name="ampere_sgemm_32x32_tn")
    export.launch((40, 50), (MS, 2 * MS), name="splitKreduce_kernel_of_none")
    export.launch((600, 610), (2 * MS, 3 * MS), name="bias_copy")

    result = ask(ANALYSIS, export, tmp_path)

    # Two kernels of the operator are named as products here: which has the FLOP is not known.
    assert rows(result, "kernels", "short_name", "flop") == [("bias_copy", 2 * 8 * 16 * 32)]


def test_sources_are_asked_for_bytes_and_for_flop(tmp_path):
    export = Export()
    run(export, declaration("gelu", bytes=1, flop=5_000_000, kind="fp32"), 0, 1_000_200)
    export.sampled(*((time, 40, 10) for time in range(0, 1_200_000, 100_000)))

    result = ask(ANALYSIS, export, tmp_path)

    [(moved, flop, basis)] = rows(result, "kernels", "bytes", "flop", "basis")
    assert moved == pytest.approx(4_814_304_000_000 / 2 * 0.001, rel=0.002)
    assert (flop, basis) == (5_000_000, "bytes: counters (GPU metrics), FLOP: declared")


def test_nothing_tells(tmp_path):
    outcome = ANALYSIS.run(Export().launch((0, 1), (2, 9)).load(tmp_path))

    assert isinstance(outcome, Skipped)
    assert "--ncu" in outcome.remedy
    assert "--gpu-metrics" in outcome.remedy


def test_an_unknown_gpu_and_the_figures_that_make_it_known(tmp_path):
    export = Export().gpu(0, name="Mystery", memoryBandwidth=None, smCount=None, clockRate=None)
    run(export, declaration("work", bytes=10**9, flop=10**9, kind="fp32"), 0, MS + 200)
    trace = export.load(tmp_path)

    outcome = ANALYSIS.run(trace)
    assert isinstance(outcome, Skipped)
    assert outcome.reason == "the peak rates of Mystery are not known"
    assert "--peak bandwidth=" in outcome.remedy

    known = ANALYSIS.run(trace.but(peaks=parse_figures(["bandwidth=1e12", "fp32=1e12"])))
    assert rows(known, "kernels", "memory_peak_pct", "compute_peak_pct", "bound") == [
        (pytest.approx(100.0), pytest.approx(100.0), "memory")
    ]
    assert rows(known, "roofs", "roof", "source") == [("memory", "--peak"), ("fp32", "--peak")]


def test_two_gpus_have_rows_of_their_own(tmp_path):
    export = Export().gpu(1, memoryBandwidth=10**12)
    for device in (0, 1):
        start = device * 10 * MS
        run(export, declaration("work", bytes=9 * 10**8), start, start + MS + 200, device=device)

    result = ask(ANALYSIS, export, tmp_path)

    assert sorted(rows(result, "kernels", "device_id", "bound")) == [(0, "unknown"), (1, "memory")]


def test_ranges_select(tmp_path):
    export = Export().range("keep", 0, MS)
    run(export, declaration("a", bytes=10**9), 10, MS + 210, name="a")
    run(export, declaration("b", bytes=10**9), 3 * MS, 4 * MS + 200, name="b")

    result = ask(ANALYSIS, export, tmp_path, include=("keep",))

    assert rows(result, "kernels", "short_name") == [("a",)]


def test_ranges_that_declare_one_kernel_apart_have_rates_of_their_own(tmp_path):
    """The mean of a copy at its peak and of one with a stride is a rate that no call had."""
    export = Export()
    for number, (name, took) in enumerate([("plain", 1), ("by-2", 4), ("by-32", 16)] * 2):
        start = 40 * MS * number
        said = declaration(name, bytes=4_000_000_000, flop=0)
        end = start + 200 + took * MS
        run(export, said, start, end, name="copy")
        export.sync("cudaDeviceSynchronize_v3020", start + 100, end + 10)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", "label", "declared_in", "calls", "bound") == [
        ("copy in by-32", "by-32", 2, "latency"),
        ("copy in by-2", "by-2", 2, "latency"),
        ("copy in plain", "plain", 2, "memory"),
    ]
    assert rows(result, "kernels", "achieved_bytes_per_s") == [
        (4_000_000_000_000 // took,) for took in (16, 4, 1)
    ]
    first, second = result.findings
    assert first.message.startswith("copy in by-32 reaches 5.2 % of peak bandwidth (250 GB/s). It")
    assert second.message.startswith("copy in by-2 reaches")
    assert first.action.startswith("Look at whether neighbouring threads access neighbouring")


def test_ranges_that_count_steps_are_one(tmp_path):
    export = Export()
    for number in range(20):
        start = 2 * MS * number
        run(
            export, declaration(f"copy {number}", bytes=10**9), start, start + MS + 200, name="copy"
        )

    assert rows(ask(ANALYSIS, export, tmp_path), "kernels", "label", "declared_in", "calls") == [
        ("copy", "copy #", 20)
    ]


@pytest.mark.parametrize("column", ["registersPerThread", "blockX"])
def test_variants_of_other_registers_or_blocks_are_apart(tmp_path, column):
    export, said = Export(), declaration("copy", bytes=10**9, flop=0)
    for start, value in ((0, 32), (2 * MS, 64)):
        run(export, said, start, start + MS + 200, name="copy", **{column: value})

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", "label", "calls") == [("copy", 1)] * 2


@pytest.mark.parametrize("sampled", [False, True])
def test_bytes_that_were_counted_are_not_blamed_on_coalescing(tmp_path, sampled):
    """What moved in vain is among them: then there is nothing left to join."""
    export = Export()
    run(export, declaration("slow", bytes=10**8, flop=10**6, kind="fp32"), 0, MS + 200, name="slow")
    if sampled:
        export.sampled(*((at, 5, 5) for at in range(0, MS + 10_000, 5_000)))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert ("counters (GPU metrics)" in finding.message) == sampled
    assert ("coalescing" in finding.action) == (not sampled)
