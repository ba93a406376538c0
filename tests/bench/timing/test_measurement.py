"""Timing calls: measurements, remarks on them, and how the GPU is kept busy meanwhile."""

import contextlib
import time
from dataclasses import dataclass, field

import pytest

from traceview.base.errors import InputError
from traceview.trials.bench import Timing, benchmark
from traceview.trials.bench.clock import CudaClock

MS = 1_000_000


def timing(*samples, clock="cuda-events", **figures):
    given = {"cache": "cold", "calls_per_trial": 1, "host_ns": 1.0, "floor_ns": 0.0} | figures
    return Timing(clock=clock, samples_ns=tuple(map(float, samples)), **given)


def test_a_call_takes_the_time_it_takes():
    found = benchmark(lambda: time.sleep(0.005), warmup=0, trials=5, device="cpu")
    assert found.trials == 5
    assert found.calls_per_trial == 1
    # A loaded machine wakes late, and never early.
    assert found.median_ns >= 5 * MS
    assert found.p10_ns <= found.median_ns <= found.p90_ns


def test_short_calls_are_measured_in_groups():
    found = benchmark(lambda: None, warmup=0, trials=5, device="cpu")
    assert found.calls_per_trial > 100
    assert found.median_ns < 10_000
    assert f"measured in groups of {found.calls_per_trial} calls" in found.remarks


def test_warmup_and_trials_are_counted():
    calls = []

    def run():
        calls.append(1)
        time.sleep(0.001)

    benchmark(run, warmup=7, trials=4, device="cpu")
    # 7 to warm up, 1 for the time on the CPU, 3 to see whether it is short, 4 trials.
    assert len(calls) == 7 + 1 + 3 + 4


def test_once_the_budget_is_spent_five_trials_are_enough():
    found = benchmark(lambda: time.sleep(0.002), 0, 1000, device="cpu", budget_s=0.0)
    assert found.trials == 5


def test_what_the_call_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        benchmark(lambda: 1 / 0, device="cpu")


@pytest.mark.parametrize(("warmup", "trials"), [(-1, 5), (0, 0), (0, 1.5), ("1", 2)])
def test_invalid_counts(warmup, trials):
    with pytest.raises(InputError, match="request at least one trial"):
        benchmark(lambda: None, warmup, trials, device="cpu")


@pytest.mark.parametrize("device", ["mps", "xpu", "CUDA", "gpu", "cuda:", "cuda:-1", ""])
def test_a_device_that_cannot_be_timed(device):
    """A CPU clock would time only the launch."""
    with pytest.raises(InputError, match=r"cannot be timed; pass cpu, cuda or cuda:1"):
        benchmark(lambda: None, device=device or " ")


def test_a_missing_gpu():
    pytest.importorskip("torch")
    with pytest.raises(InputError, match="torch sees no device cuda:999; pass another, or cpu"):
        benchmark(lambda: None, device="cuda:999")


def test_spread_is_between_the_nearest_samples():
    found = timing(10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110)
    assert (found.p10_ns, found.median_ns, found.p90_ns) == (20, 60, 100)
    assert found.mad_ns == 30
    assert timing(5, 6).p90_ns == pytest.approx(5.9)


def test_outliers_are_far_by_deviations_and_by_percent():
    steady = [100, 101, 99, 100, 100, 101, 99, 100]
    assert timing(*steady).outliers == 0
    assert timing(*steady, 104).outliers == 0  # Five deviations are 7: not far.
    assert timing(*steady, 150, 40).outliers == 2
    assert "1 of 9 trials are outliers" in timing(*steady, 150).remarks
    # A clock that shows the same value again and again makes 1 % no outlier.
    assert timing(*[100] * 9, 101).outliers == 0


def test_cautions_name_launch_overhead_and_the_clock_itself():
    exposed = timing(10_000, 10_000, exposed_trials=2)
    assert exposed.cautions == (
        "in 2 of 2 trials the GPU waited for the CPU, so those times include launch overhead",
    )
    assert timing(4_000, floor_ns=2_000).cautions == ("up to 2.00 µs of this is the clock itself",)
    assert timing(400_000, floor_ns=2_000).cautions == ()
    assert timing(400_000, elsewhere_ns=30_000.0).cautions == ()
    assert timing(4_000, elsewhere_ns=900_000.0).cautions == (
        "at least 900 µs of work on other streams is not timed (wall=True includes it)",
    )


def test_launch_bound_is_the_cpu_longer_than_the_gpu():
    assert timing(5_000, host_ns=9_000).is_launch_bound
    assert not timing(9_000, host_ns=5_000).is_launch_bound
    assert timing(10_000, host_ns=8_000, clock="wall").is_launch_bound
    assert not timing(10_000, host_ns=7_000, clock="wall").is_launch_bound
    assert not timing(5_000, host_ns=9_000, clock="perf-counter").is_launch_bound


def test_a_timing_as_text():
    steady = timing(*[10_000] * 9, 20_000, exposed_trials=1)
    assert str(steady) == (
        "10.0 µs (10.0 µs – 11.0 µs), 10 trials by CUDA events, cold L2; "
        "in 1 of 10 trials the GPU waited for the CPU, so those times include launch overhead; "
        "1 of 10 trials are outliers"
    )
    assert str(timing(2_000, clock="perf-counter")) == (
        "2.00 µs (2.00 µs – 2.00 µs), 1 trial by perf_counter"
    )


@dataclass
class FakeGpu:
    """A GPU with a queue of launches and a clock that only the CPU's calls advance.

    It shows in which order work is launched.
    """

    launch_ns: float = 0.0
    queue: list = field(default_factory=list)
    cpu_ns: float = 0.0
    gpu_free_ns: float = 0.0

    def launch(self, what, duration_ns):
        self.cpu_ns += self.launch_ns
        self.gpu_free_ns = max(self.gpu_free_ns, self.cpu_ns) + duration_ns
        self.queue.append(what)
        return self.gpu_free_ns

    def event(self, **_):
        gpu = self

        class Event:
            def record(self):
                self.at = gpu.launch("event", 0.0)

            def query(self):
                return self.at <= gpu.cpu_ns

            def synchronize(self):
                gpu.cpu_ns = max(gpu.cpu_ns, self.at)

            def elapsed_time(self, other):
                return (other.at - self.at) / 1e6

        return Event()


@pytest.fixture
def fake_gpu(monkeypatch):
    torch = pytest.importorskip("torch")
    gpu = FakeGpu()

    class Properties:
        L2_cache_size = 50 << 20

    monkeypatch.setattr(torch, "zeros", lambda *_, **__: "memory")
    monkeypatch.setattr(torch, "sum", lambda *_, **__: gpu.launch("fill", 30_000.0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return gpu


def test_with_a_cold_cache_every_call_is_measured_alone_behind_a_fill(fake_gpu):
    clock = CudaClock(cold=True)
    clock._host_ns = 10_000.0
    assert clock.calls_at_once(lambda: None) == 1
    fake_gpu.queue.clear()
    found = clock.sample(lambda: fake_gpu.launch("run", 5_000.0), 1)
    assert fake_gpu.queue == ["fill", "event", "run", "event"]
    assert found.call_ns == pytest.approx(5_000)
    assert not found.exposed


def test_with_a_warm_cache_short_calls_are_grouped_behind_an_untimed_one(fake_gpu):
    clock = CudaClock(cold=False)

    def run():
        fake_gpu.launch("run", 40_000.0)

    assert clock.calls_at_once(run) == 5
    fake_gpu.queue.clear()
    assert clock.sample(run, 5).call_ns == pytest.approx(40_000)
    assert fake_gpu.queue == ["fill", "run", "event", *["run"] * 5, "event"]


def test_slow_launches_are_hidden_behind_more_fills(fake_gpu):
    clock = CudaClock(cold=True)
    fake_gpu.launch_ns = 4_000.0
    clock._host_ns = 10_000.0  # Too little: launching takes ten times as long.

    def run():
        for _ in range(25):
            fake_gpu.launch("run", 100.0)

    # One fill of 30 µs does not hide 100 µs of launching; four of them do.
    found = clock.sample(run, 1)
    assert not found.exposed
    assert found.call_ns == pytest.approx(2_500)
    # A call that waits for the GPU cannot be hidden, and is marked as exposed.
    assert clock.sample(lambda: setattr(fake_gpu, "cpu_ns", fake_gpu.gpu_free_ns), 1).exposed


@pytest.mark.parametrize("elsewhere_s", [0.0, 0.02])
def test_work_on_other_streams_is_noticed(fake_gpu, monkeypatch, elsewhere_s):
    import torch

    left = [0.0]

    class Stream:
        def synchronize(self):
            pass

    def wait_for_all():
        time.sleep(left[0])
        left[0] = 0.0

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "synchronize", wait_for_all)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    found = benchmark(lambda: left.__setitem__(0, elsewhere_s), 0, 1, device="cuda")
    assert (found.elsewhere_ns >= 10 * MS) == bool(elsewhere_s)


def test_the_current_gpu_is_the_one_that_is_timed(fake_gpu, monkeypatch):
    import torch

    entered = []

    class Current:
        def __init__(self, index):
            entered.append(index)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            entered.append("left")

    class Stream:
        def synchronize(self):
            pass

    monkeypatch.setattr(torch.cuda, "device", Current)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    found = benchmark(lambda: entered.append("run"), 0, 1, device="cuda:1")
    assert found.clock == "cuda-events"
    assert (entered[0], entered[1], entered[-1]) == (1, "run", "left")
