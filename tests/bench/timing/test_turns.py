"""The order in which calls are measured, with a clock that writes it down."""

import gc
from dataclasses import dataclass

import pytest

from traceview.trials.bench import measurement as module
from traceview.trials.bench.clock import Sample
from traceview.trials.bench.measurement import Timing, Turns, benchmark_in_turns, take_turns


@dataclass
class FakeClock:
    """A clock that gets slower by 1 ns with each measurement of any call."""

    log: list
    name = "perf-counter"
    floor_ns = elsewhere_ns = 0.0

    def host_ns(self, run):
        return 1.0

    def calls_at_once(self, run):
        return 1

    def sample(self, run, calls):
        run()
        return Sample(float(len(self.log)))


def lanes(*names, raising=""):
    log: list[str] = []

    def called(name):
        def run():
            log.append(name)
            if name == raising and log.count(name) > 1:
                raise RuntimeError(f"{name} is broken")

        return run

    return log, [Turns(called(name), FakeClock(log)) for name in names]


def test_versions_take_turns():
    log, given = lanes("A", "B", "C")
    take_turns(given, warmup=2, trials=3, budget_s=10)
    assert "".join(log) == "AABBCC" + "ABC" * 3
    # So a drift touches all alike: their means differ by their places, not by whole rounds.
    means = [sum(each.call_ns for each in turn.samples) / 3 for turn in given]
    assert [mean - means[0] for mean in means] == [0, 1, 2]


def test_a_call_that_raises_is_left_out_and_the_others_go_on():
    log, given = lanes("A", "B", "C", raising="B")
    take_turns(given, warmup=1, trials=3, budget_s=10)
    assert "".join(log) == "ABC" + "ABC" + "AC" * 2
    assert [type(each.error) for each in given] == [type(None), RuntimeError, type(None)]


def test_nothing_runs_after_a_fatal_error():
    log, given = lanes("A", "B", "C", raising="B")
    take_turns(given, 1, 3, 10, is_fatal=lambda error: "broken" in str(error))
    assert "".join(log) == "ABC" + "AB"
    assert [len(each.samples) for each in given] == [1, 0, 0]


def test_the_budget_is_that_of_all_calls(monkeypatch):
    log, given = lanes("A", "B")
    now = iter(range(100))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    # The clock shows 0, then 1, 2, 3 … from the sixth round on: 2 × 2 s are over at 5.
    take_turns(given, warmup=0, trials=100, budget_s=2)
    assert "".join(log) == "AB" * 9


def test_timings_and_errors_in_the_order_of_the_calls():
    def broken():
        raise ValueError("no")

    times = benchmark_in_turns([lambda: None, broken, lambda: None], 0, 5, device="cpu")
    assert [type(each) for each in times] == [Timing, ValueError, Timing]


def test_what_a_fatal_error_kept_from_running_has_no_time():
    def broken():
        raise ValueError("no")

    runs = [broken, lambda: None]
    _, left = benchmark_in_turns(runs, 0, 5, device="cpu", is_fatal=lambda _: True)
    assert left is None


@pytest.mark.parametrize("is_on", [True, False])
def test_garbage_collection_is_as_before(is_on):
    (gc.enable if is_on else gc.disable)()
    try:
        take_turns(lanes("A")[1], 0, 1, 10)
        assert gc.isenabled() == is_on
    finally:
        gc.enable()
