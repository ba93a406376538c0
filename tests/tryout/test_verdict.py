"""Trials are judged by their runs: results against noise, times by permutation."""

import random
from pathlib import Path

import pytest

from traceview.errors import TraceviewError
from traceview.remedies import BY_NAME
from traceview.tryout import ledger, schedule, verdict
from traceview.tryout.planned import Planned, together
from traceview.tryout.schedule import Limits, Schedule
from traceview.tryout.spec import RunResult, Spec

SPEC = Spec("train.py", (), "/", "/scratch", "result.json")


def trial(name="fused"):
    return Planned(name, (BY_NAME[name],))


def results(seed=0, losses=(2.0, 1.5, 1.0), factor=1.0, **more):
    values = tuple((step, loss * factor) for step, loss in enumerate(losses))
    return Spec(**{**vars(SPEC), "seed": seed}), RunResult(losses=values, norms=values, **more)


@pytest.mark.parametrize(
    ("name", "factor", "noise", "equal"),
    [
        ("fused", 1.0, 1.0, True),
        ("fused", 1 + 1e-6, 1.0, True),
        ("fused", 1 + 1e-3, 1.0, False),
        ("fused", 1 + 1e-3, 1 + 5e-4, True),
        ("fused", 1 + 1e-3, None, None),
        ("matmul_precision", 1 + 5e-4, 1.0, True),
        ("matmul_precision", 1 + 5e-3, 1.0, False),
        ("autocast", 1 + 5e-3, 1.0, True),
        ("autocast", float("nan"), 1.0, False),
        ("autocast", float("inf"), 1.0, False),
    ],
)
def test_results_are_compared_with_the_noise_and_what_a_remedy_may_change(
    name, factor, noise, equal
):
    base = [results()] + ([results(factor=noise)] if noise else [])
    assert verdict.compare_results(trial(name), base, results(factor=factor))[0] is equal


def test_other_random_numbers_may_differ_as_seeds_do():
    base = [results(), results(), results(2, factor=1.05)]
    for name, factor, equal in [
        ("num_workers", 1.04, True), ("num_workers", 1.06, False), ("fused", 1.04, False),
    ]:  # fmt: skip
        assert verdict.compare_results(trial(name), base, results(factor=factor))[0] is equal
    assert verdict.compare_results(trial("num_workers"), base[:2], results(factor=1.04))[0] is None


def test_results_without_a_run_of_the_same_seed_or_without_losses_are_not_known():
    assert verdict.compare_results(trial(), [results()], results(3)) == (None, "")
    assert verdict.compare_results(trial(), [results(losses=())], results(losses=())) == (None, "")
    assert verdict.compare_results(trial(), [results()] * 2, results(losses=(2.0,)))[0] is False


class FakeRuns:
    """Runs of a program whose steps take a given time, with noise, for each set of remedies."""

    def __init__(self, step_ns, noise=0.01, factor=1.0, steps=10_000, **more):
        self.step_ns, self.noise, self.factor, self.more = step_ns, noise, factor, more
        self.count, self.random, self.made, self.steps = 0, random.Random(3), [], steps

    def spec(self, **options):
        self.count += 1
        return Spec(**{**vars(SPEC), **options})

    def run(self, spec, _limit_s):
        self.made.append(spec.remedies)
        own = self.random.gauss(1, self.noise)
        times = []
        for step in range(min(spec.last_step, self.steps)):
            on = spec.is_on(step) and spec.remedies
            mean = self.step_ns[spec.remedies[-1] if on else ""]
            times.append((step, mean * own * self.random.gauss(1, self.noise)))
        _, result = results(spec.seed, factor=self.factor if spec.remedies else 1.0)
        ended = spec.last_step > self.steps
        more = self.more if spec.remedies else {}
        fields = {**vars(result), "applied": spec.remedies, **more}
        return RunResult(**{**fields, "steps": tuple(times), "ended": ended})


def outcomes(runs, *names, limits=None):
    schedule_ = Schedule(runs, limits or Limits(), lambda _: None)
    return {each.planned.name: each for each in schedule_.measure([trial(n) for n in names])}


@pytest.mark.parametrize("name", ["fused", "matmul_precision"])
@pytest.mark.parametrize(
    ("factor", "outcome"), [(0.8, "keep"), (1.0, "no gain|undecided"), (1.2, "slower")]
)
def test_times_decide(name, factor, outcome):
    runs = FakeRuns({"": 1e7, name: factor * 1e7})
    found = outcomes(runs, name)[name]
    assert found.outcome in outcome.split("|")
    assert found.measured.delta_pct == pytest.approx(100 * (factor - 1), abs=3)
    low, high = found.measured.low_ns, found.measured.high_ns
    assert low <= 1e7 * (factor - 1) + 2e5
    assert high >= 1e7 * (factor - 1) - 2e5
    if factor != 1:
        # Decided at the first look.
        assert found.measured.runs == (2 if name == "matmul_precision" else 4)


def test_a_remedy_is_kept_by_chance_as_seldom_as_stated():
    runs = FakeRuns({"": 1e7, "fused": 1e7}, noise=0.02)
    found = [outcomes(runs, "fused")["fused"].outcome for _ in range(100)]
    assert found.count("keep") + found.count("slower") <= 10


def test_a_program_with_few_steps_is_not_switched_within_a_run():
    runs = FakeRuns({"": 1e7, "matmul_precision": 8e6}, steps=30)
    found = outcomes(runs, "matmul_precision")["matmul_precision"]
    assert (found.outcome, found.measured.runs) == ("keep", 4)


def test_runs_stop_when_a_trial_is_decided_and_turn_about():
    runs = FakeRuns({"": 1e7, "fused": 8e6, "foreach": 9.9e6}, noise=0.03)
    outcomes(runs, "fused", "foreach")
    assert runs.made[:6] == [(), ("fused",), ("foreach",), ("foreach",), ("fused",), ()]
    assert runs.made.count(("fused",)) == 4
    assert runs.made.count(("foreach",)) == 8


@pytest.mark.parametrize(
    ("more", "outcome", "reason"),
    [
        ({"error": "RuntimeError: no"}, "failed", "RuntimeError: no"),
        ({"rejected": "it has none"}, "rejected", "it has none"),
        ({"applied": ()}, "rejected", "the program has nothing that it changes"),
        ({"factor": 1.1}, "changes results", "10 %"),
    ],
)
def test_what_ends_a_trial(more, outcome, reason):
    factor = more.pop("factor", 1.0)
    found = outcomes(FakeRuns({"": 1e7, "fused": 5e6}, factor=factor, **more), "fused")["fused"]
    assert found.outcome == outcome
    assert reason in found.reason


def test_a_program_that_fails_or_makes_no_steps_ends_it_all():
    class Failing(FakeRuns):
        def run(self, spec, limit_s):
            return RunResult(error="ValueError: bad")

    with pytest.raises(TraceviewError, match="the program failed: ValueError: bad"):
        outcomes(Failing({}), "fused")
    with pytest.raises(TraceviewError, match="made 3 training steps"):
        outcomes(FakeRuns({"": 1e7}, steps=3), "fused")


def test_time_up_leaves_trials_undecided(monkeypatch):
    now = iter(range(0, 10_000, 100))
    monkeypatch.setattr(schedule, "monotonic", lambda: next(now))
    found = outcomes(FakeRuns({"": 1e7, "fused": 5e6}), "fused", limits=Limits(seconds=700))
    assert found["fused"].outcome == "undecided"
    assert found["fused"].measured.high_ns is None


def test_all_that_are_kept_are_measured_together():
    runs = FakeRuns({"": 1e7, "fused": 7e6})
    kept = [trial("num_workers"), trial("fused")]
    (found,) = Schedule(runs, Limits(), lambda _: None).measure([together(None, kept)])
    assert (found.planned.name, found.outcome) == ("together", "keep")
    assert runs.made[:2] == [(), ("num_workers", "fused")]


def test_remedies_that_exclude_each_other_are_not_kept_together():
    from traceview.tryout.answer import compatible

    measured = [verdict.StepDifference(1e7, delta, None, None, 4) for delta in (-1e6, -2e6, -1e6)]
    names = ("fused", "foreach", "num_workers")
    kept = [
        verdict.Trial(trial(name), "keep", measured=m)
        for name, m in zip(names, measured, strict=True)
    ]
    assert [each.planned.name for each in compatible(kept)] == ["foreach", "num_workers"]


def test_spec_and_result_are_read_as_written(tmp_path: Path):
    spec = Spec(**{**vars(SPEC), "remedies": ("fused",), "arguments": ("--a", "ü")})
    spec.write(tmp_path / "spec.json")
    assert Spec.read(str(tmp_path / "spec.json")) == spec
    _, result = results(error="x", sites=(("fused", "a.py", 3, "Adam", {"fused": True}),))
    result.write(str(tmp_path / "result.json"))
    assert RunResult.read(tmp_path / "result.json") == result
    assert RunResult.read(tmp_path / "none.json") is None


def test_how_far_a_forecast_was_off():
    def row(said, saving, saved=10.0):
        return ledger.Row(*[""] * 5, saved_pct=saved, said_pct=said, saving=saving).off_pct

    assert row(12.0, "about") == 2.0
    assert row(8.0, "about") == -2.0
    assert row(12.0, "at-most") == 0.0
    assert row(8.0, "at-most") == -2.0
    assert row(12.0, "at-least") == 2.0
    assert row(8.0, "at-least") == 0.0
    assert row(None, "") is None
    assert row(12.0, "about", None) is None
