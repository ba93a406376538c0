"""On a GPU: the clock measures the kernel and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
]

from traceview.trials.bench import (  # noqa: E402 (needs torch)
    BenchRequest,
    benchmark,
    measure,
    profile,
)
from traceview.trials.bench.growth import fit_timings  # noqa: E402 (needs torch)

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def test_a_large_copy_takes_the_time_that_events_measure():
    x = torch.randn(64 * MIB, device="cuda")
    y = torch.empty_like(x)
    found = benchmark(lambda: y.copy_(x), trials=20)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(20):
        y.copy_(x)
    last.record()
    last.synchronize()
    assert found.median_ns == pytest.approx(first.elapsed_time(last) * 1e6 / 20, rel=0.1)
    assert (found.clock, found.cache, found.exposed_trials) == ("cuda-events", "cold", 0)


def test_a_warm_cache_is_faster_than_a_cold_one():
    x = torch.randn(2 * MIB, device="cuda")
    y = torch.empty_like(x)
    warm = benchmark(lambda: y.copy_(x), cold=False)
    cold = benchmark(lambda: y.copy_(x))
    assert warm.median_ns < cold.median_ns
    assert warm.calls_per_trial > 1 == cold.calls_per_trial


def test_launch_overhead_is_hidden():
    x = torch.zeros(1, device="cuda")

    def run():
        for _ in range(8):
            x.add_(1)

    found = benchmark(run, cold=False)
    assert found.exposed_trials == 0
    assert found.is_launch_bound
    assert found.median_ns < found.host_ns


def test_a_call_that_waits_for_the_gpu_includes_launch_overhead():
    x = torch.zeros(1, device="cuda")
    found = benchmark(x.item, trials=5)
    assert found.exposed_trials == 5
    assert "launch overhead" in found.cautions[0]


def test_the_wall_clock_shows_where_launches_are_the_limit():
    def make(size):
        x = torch.randn(size, device="cuda")

        def run():
            y = x
            for _ in range(40):
                y = y + 1
            return y

        return run

    # Forty launches take the CPU longer than the GPU needs for so few numbers.
    sizes = [1 << k for k in range(8, 17, 2)]
    found = fit_timings([(size, benchmark(make(size), 2, 10, wall=True)) for size in sizes])
    assert found.kind == "flat"
    assert found.launch_bound
    assert found.sentence().endswith("(launch-bound)")


def test_gelu_is_right_and_fast():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "traceview", "bench", "kernels/gelu.py"),
            *("--size", str(1 << 26), "--json"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    rows = {row["version"]: row for row in document["rows"]}
    assert {row["status"] for row in rows.values()} == {"timed"}
    assert rows["cuda-scalar"]["load_width"]["bits"] == 32
    assert rows["cuda-vector"]["load_width"]["bits"] == 128
    assert rows["triton"]["load_width"]["bits"] == 128
    assert rows["manual"]["median_ns"] > 3 * rows["torch"]["median_ns"]
    assert rows["cuda-scalar"]["median_ns"] > rows["cuda-vector"]["median_ns"]
    assert document["machine"]["driver_version"]
    if document["peaks"]["memory_bytes_per_s"]:
        assert 70 < rows["triton"]["peak_pct"] < 101
        assert rows["triton"]["bound"] == "memory"


def test_a_profile_has_the_kernels_of_each_operator():
    x = torch.randn(MIB, device="cuda")
    found = profile(lambda: torch.nn.functional.gelu(x) * 2, calls=3)
    assert found.on_gpu
    assert {"aten::gelu", "aten::mul"} <= {row.operator for row in found.kernels}
    named = [row for row in found.kernels if row.operator in ("aten::gelu", "aten::mul")]
    assert {row.calls for row in named} == {3}
    assert found.tree.total_ns(gpu=True) == sum(row.total_ns for row in found.kernels)


def test_kernels_of_triton_are_in_the_profile_though_no_operator_launches_them():
    from kernels.gelu import OPERATION

    x = torch.randn(MIB, device="cuda")
    found = profile(lambda: OPERATION.version("triton").run(x), calls=3)
    (row,) = [row for row in found.kernels if row.kernel == "gelu_kernel"]
    assert row.calls == 3
    assert row.total_ns > 0


def test_a_declared_range_reaches_the_text(monkeypatch):
    from kernels.gelu import OPERATION
    from traceview.traces.facts.work.from_ranges import parse_declaration

    texts = []
    push = torch.cuda.nvtx.range_push
    monkeypatch.setattr(
        torch.cuda.nvtx, "range_push", lambda text: (texts.append(text), push(text))
    )
    request = BenchRequest(sizes=[MIB], versions=["torch"], trials=2, widths=False)
    measure(OPERATION, request)
    found = parse_declaration(texts[0])
    assert (found.name, found.bytes, found.flop) == ("gelu torch", 8 * MIB, 9 * MIB)
