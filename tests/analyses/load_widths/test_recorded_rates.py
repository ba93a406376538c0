"""The analysis `load-widths` on a recording of narrow and wide kernels."""

import re
from pathlib import Path

import pytest

from traceview import analyze
from traceview.traces.analyses.load_widths import ANALYSIS
from traceview.traces.trace.load import load

TESTS = Path(__file__).parents[2]

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
    # Some calls of it are launched one by one: the GPU would only wait longer.
    assert 0.3 < finding.time_at_stake_ns / spent["gelu_scalar"] < 0.6


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
