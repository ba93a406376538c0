"""Bytes and FLOP of real kernels: Nsight Compute, sampled metrics and arithmetic must agree."""

import lzma
import sqlite3
from itertools import pairwise

import numpy as np
import pytest

import traceview
from tests.conftest import RATE_RECORDINGS
from tests.places import DATA
from traceview.traces.analyses.base import Result
from traceview.traces.facts.work.kernel_work import from_metrics, kernel_work
from traceview.traces.trace.load import load

GIB = 1 << 30
# What each kernel of tests/data/rates.py must move: x and y have 1 GiB each.
ELEMENTWISE = ("copy_kernel", "gelu_kernel", "gelu_scalar", "gelu_vector", "vectorized_elementwise")
ELEMENTS = 16_384**2
PEAK = 4_814_304_000_000


@pytest.fixture(scope="module")
def counters(tmp_path_factory):
    path = tmp_path_factory.mktemp("ncu") / "rates.ncu.csv"
    path.write_bytes(lzma.decompress((DATA / "rates.ncu.csv.xz").read_bytes()))
    return path


@pytest.fixture(scope="module", params=RATE_RECORDINGS)
def counted(request, unpack, counters):
    report = traceview.analyze(load(unpack(request.param)), "roofline", ncu=counters)
    outcome = report.outcomes["roofline"]
    assert isinstance(outcome, Result)
    return list(outcome.tables["kernels"].rows())


@pytest.fixture(scope="module")
def metrics(unpack):
    return load(unpack("metrics"))


def rows_of(rows, name):
    return [row for row in rows if row["short_name"].startswith(name)]


def test_every_kernel_has_counters(counted):
    assert len(counted) == 9
    assert {row["basis"] for row in counted} == {"counters (ncu)"}
    assert sum(row["calls"] for row in counted) == 23


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_bytes_are_those_of_the_arrays(counted, name):
    """Some 2 % of what is written is still in the L2 cache when the kernel ends."""
    [row] = rows_of(counted, name)
    assert 0.95 < row["bytes"] / (3 * 2 * GIB) < 1.0
    assert row["flop_per_byte"] == pytest.approx(row["flop"] / row["bytes"])


def test_gelu_in_triton_does_thirteen_flop_an_element(counted):
    [row] = rows_of(counted, "gelu_kernel")
    assert row["flop"] == 3 * 13 * ELEMENTS


def test_the_bf16_product_pads_to_its_tiles(counted):
    """8192 rows in tiles of 320 are 26 tiles, 8320 rows: 1.6 % more than 2 m n k."""
    [row] = rows_of(counted, "nvjet_sm90_tst_320x128")
    assert row["flop"] == 3 * 2 * 8320 * 8192 * 8192
    assert row["flop_kind"] == "bf16"
    assert row["bound"] == "compute"


def test_the_fp32_product_is_two_m_n_k(counted):
    [row] = rows_of(counted, "sm80_xmma_gemm_f32f32_f32f32")
    assert row["flop"] == pytest.approx(3 * 2 * 4096**3, rel=0.001)
    assert row["bound"] == "compute"


def test_wide_loads_reach_peak_bandwidth_and_narrow_ones_half_of_it(counted):
    for name in ("copy_kernel", "gelu_kernel", "gelu_vector", "vectorized_elementwise"):
        [row] = rows_of(counted, name)
        assert row["bound"] == "memory"
        assert row["memory_peak_pct"] > 80
    [narrow] = rows_of(counted, "gelu_scalar")
    assert narrow["bound"] == "latency"
    assert 45 < narrow["memory_peak_pct"] < 55
    assert narrow["at_stake_ns"] == pytest.approx(narrow["total_ns"] / 2, rel=0.1)


def test_sampled_bytes_agree_with_those_counted(metrics, counted):
    """Within 5 % wherever the samples say anything: at 10 % of the peak rate and more."""
    outcome = next(iter(traceview.analyze(metrics, "roofline").outcomes.values()))
    assert isinstance(outcome, Result)
    found = list(outcome.tables["kernels"].rows())
    compared = 0
    for row in found:
        assert row["basis"] == "bytes: counters (GPU metrics)"
        for other in counted:
            if (other["name"], other["calls"]) == (row["name"], row["calls"]):
                assert row["bytes"] == pytest.approx(other["bytes"], rel=0.05)
                compared += 1
    assert compared == 7
    # At under 4 % of the peak rate a whole per cent says too little.
    assert not rows_of(found, "sm80_xmma")
    assert any(note.startswith("Bytes and FLOP are unknown for ") for note in outcome.notes)


def test_the_samples_inside_against_brute_force(metrics, unpack):
    """The mean rate of the samples that a kernel holds, by plain loops over the file's rows."""
    connection = sqlite3.connect(unpack("metrics"))
    told = connection.execute("SELECT metricId, metricName FROM TARGET_INFO_GPU_METRICS").fetchall()
    wanted = [number for number, name in told if name.startswith("DRAM")]
    assert len(wanted) == 2
    at = {}
    for time, metric, value in connection.execute(
        "SELECT timestamp, metricId, value FROM GPU_METRICS"
    ):
        if metric in wanted:
            at[time] = at.get(time, 0) + value
    kernels = connection.execute(
        "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start"
    ).fetchall()
    connection.close()
    times = sorted(at)
    ours = from_metrics(metrics).bytes
    told_of = 0
    for (start, end), moved in zip(kernels, ours, strict=True):
        inside = [at[a] for a, b in pairwise(times) if start <= a and b <= end]
        if len(inside) < 3:
            assert np.isnan(moved)
        elif not np.isnan(moved):
            by_mean = PEAK * sum(inside) / len(inside) / 100 * (end - start) / 1e9
            assert moved == pytest.approx(by_mean, rel=0.08)
            told_of += 1
    assert told_of >= 18


def test_code_counts_what_ncu_counts(unpack, counters):
    """Bytes by PTX and by ncu; FLOP but for what the hardware does for exp and a division."""
    if "rates" not in RATE_RECORDINGS:
        pytest.skip("rates.sqlite.xz is not there")
    trace = load(unpack("rates"))
    if "kernel_code" not in trace.tables:
        pytest.skip("rates.sqlite.xz was recorded without code")
    part = kernel_work(trace).estimate
    names = trace.kernels.cells("short_name")
    for row, name in enumerate(names):
        if name in ("copy_kernel", "gelu_kernel"):
            assert part.bytes[row] == 2 * GIB
            assert part.flop[row] == (0 if name == "copy_kernel" else 12 * ELEMENTS)
