"""Trials are judged by their runs: results against noise, times by permutation."""

import random
from pathlib import Path

import pytest

from traceview.base.errors import InputError, TraceviewError
from traceview.trials.remedies import BY_NAME
from traceview.trials.tryout import ledger, schedule, verdict
from traceview.trials.tryout.planned import Planned, together
from traceview.trials.tryout.schedule import Limits, Schedule
from traceview.trials.tryout.spec import RunResult, Spec

SPEC = Spec("train.py", (), "/", "/scratch", "result.json")


def trial(name="bucket_view"):
    return Planned(name, (BY_NAME[name],))


def results(seed=0, losses=(2.0, 1.5, 1.0), factor=1.0, **more):
    values = tuple((step, loss * factor) for step, loss in enumerate(losses))
    return Spec(**{**vars(SPEC), "seed": seed}), RunResult(losses=values, norms=values, **more)


@pytest.mark.parametrize(
    ("name", "factor", "noise", "equal"),
    [
        ("bucket_view", 1.0, 1.0, True),
        ("bucket_view", 1 + 1e-6, 1.0, True),
        ("bucket_view", 1 + 1e-3, 1.0, False),
        ("bucket_view", 1 + 1e-3, 1 + 5e-4, True),
        ("bucket_view", 1 + 1e-3, None, None),
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
    assert verdict.compare_results(trial(name), base, results(factor=factor)).equal is equal


def test_other_random_numbers_may_differ_as_seeds_do():
    base = [results(), results(), results(2, factor=1.05)]
    for name, factor, equal in [
        ("num_workers", 1.04, True), ("num_workers", 1.06, False), ("bucket_view", 1.04, False),
    ]:  # fmt: skip
        assert verdict.compare_results(trial(name), base, results(factor=factor)).equal is equal
    compared = verdict.compare_results(trial("num_workers"), base, results(factor=1.04))
    assert "no more than two seeds do" in compared.text
    unknown = verdict.compare_results(trial("num_workers"), base[:2], results(factor=1.04))
    assert unknown.equal is None


def test_results_without_a_run_of_the_same_seed_or_without_losses_are_not_known():
    unknown = verdict.ResultComparison(None)
    assert verdict.compare_results(trial(), [results()], results(3)) == unknown
    assert verdict.compare_results(trial(), [results(losses=())], results(losses=())) == unknown
    assert verdict.compare_results(trial(), [results()] * 2, results(losses=(2.0,))).equal is False


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
            mean = self.step_ns.get(spec.remedies[-1] if on else "", 1e7)
            times.append((step, mean * own * self.random.gauss(1, self.noise)))
        _, result = results(spec.seed, factor=self.factor if spec.remedies else 1.0)
        more = self.more if spec.remedies else {}
        fields = {**vars(result), "applied": spec.remedies, **more}
        return RunResult(**{**fields, "steps": tuple(times)})


def made(runs, limits=None, left_s=1_800.0):
    return Schedule(runs, limits or Limits(), lambda _: None, schedule.monotonic() + left_s)


def outcomes(runs, *names, limits=None):
    schedule_ = made(runs, limits)
    return {each.planned.name: each for each in schedule_.measure([trial(n) for n in names])}


@pytest.mark.parametrize("name", ["bucket_view", "matmul_precision"])
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
    runs = FakeRuns({"": 1e7, "bucket_view": 1e7}, noise=0.02)
    found = [outcomes(runs, "bucket_view")["bucket_view"].outcome for _ in range(100)]
    assert found.count("keep") + found.count("slower") <= 10


def test_a_program_with_few_steps_is_not_switched_within_a_run():
    runs = FakeRuns({"": 1e7, "matmul_precision": 8e6}, steps=30)
    found = outcomes(runs, "matmul_precision")["matmul_precision"]
    assert (found.outcome, found.measured.runs) == ("keep", 4)


def test_runs_stop_when_a_trial_is_decided_and_turn_about():
    runs = FakeRuns({"": 1e7, "bucket_view": 8e6, "pad_vocabulary": 9.9e6}, noise=0.03)
    outcomes(runs, "bucket_view", "pad_vocabulary")
    assert runs.made[:6] == [
        (),
        ("bucket_view",),
        ("pad_vocabulary",),
        ("pad_vocabulary",),
        ("bucket_view",),
        (),
    ]
    assert runs.made.count(("bucket_view",)) == 4
    assert runs.made.count(("pad_vocabulary",)) == 8


@pytest.mark.parametrize(
    ("more", "outcome", "reason"),
    [
        ({"error": "RuntimeError: no"}, "failed", "RuntimeError: no"),
        ({"rejected": "it has none"}, "rejected", "it has none"),
        ({"applied": ()}, "rejected", "it changes nothing in this program"),
        ({"factor": 1.1}, "changes results", "10 %"),
    ],
)
def test_what_ends_a_trial(more, outcome, reason):
    factor = more.pop("factor", 1.0)
    found = outcomes(FakeRuns({"": 1e7, "bucket_view": 5e6}, factor=factor, **more), "bucket_view")[
        "bucket_view"
    ]
    assert found.outcome == outcome
    assert reason in found.reason


@pytest.mark.parametrize(
    ("reference", "error", "outcome"),
    [
        (1.0, "", "changes results"),  # The program's own values: only the remedy is off.
        (1 + 5e-5, "", "keep"),  # Either is off by as much.
        (1 + 1e-4, "", "changes results"),  # More than rounding: numbers that it draws.
        (1 + 1e-2, "", "changes results"),  # Too far from both: other random numbers.
        (1 + 5e-5, "RuntimeError: no", "changes results"),
    ],
)
def test_unequal_results_are_held_to_those_in_float64(reference, error, outcome):
    class WithReference(FakeRuns):
        def run(self, spec, limit_s):
            result = super().run(spec, limit_s)
            if spec.remedies != ("float64",):
                return result
            losses = () if error else results(factor=reference)[1].losses
            return RunResult(losses=losses, norms=losses, error=error)

    runs = WithReference({"": 1e7, "fused": 5e6}, factor=1 + 1e-4)
    found = outcomes(runs, "fused")["fused"]
    assert found.outcome == outcome
    assert ("of float64" in found.results) is (outcome == "keep")
    assert runs.made.count(("float64",)) == 1


def test_a_program_that_fails_or_makes_no_steps_ends_it_all():
    class Failing(FakeRuns):
        def run(self, spec, limit_s):
            return RunResult(error="ValueError: bad")

    with pytest.raises(TraceviewError, match="the program failed: ValueError: bad"):
        outcomes(Failing({}), "bucket_view")
    with pytest.raises(TraceviewError, match="made 3 training steps"):
        outcomes(FakeRuns({"": 1e7}, steps=3), "bucket_view")


class Clock:
    """Time that passes as runs are made, each of which takes 100 s."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(schedule, "monotonic", lambda: self.now)

    def runs(self, made):
        run = made.run

        def timed(spec, limit_s):
            self.now += min(limit_s, 100.0)
            late = RunResult(error="it did not finish", is_late=True)
            return run(spec, limit_s) if limit_s >= 100 else late

        made.run = timed
        return made


@pytest.mark.parametrize("seconds", range(150, 2_000, 130))
def test_all_time_is_bounded_and_what_was_measured_is_kept(monkeypatch, seconds):
    clock = Clock(monkeypatch)
    runs = clock.runs(FakeRuns({"": 1e7, "bucket_view": 5e6, "num_workers": 9e6}))
    schedule_ = made(runs, left_s=seconds)
    alone = schedule_.measure([trial("num_workers"), trial("bucket_view")])
    both = schedule_.measure([together(None, [trial("num_workers"), trial("bucket_view")])])
    assert clock.now <= seconds
    for found in (*alone, *both):
        assert found.outcome == "keep" or found.reason.startswith("time was up")
    assert (alone[1].outcome == "keep") is (seconds > 1_200)


def test_no_time_for_one_run_is_said(monkeypatch):
    runs = Clock(monkeypatch).runs(FakeRuns({"": 1e7}))
    with pytest.raises(TraceviewError, match="time was up: it did not finish") as raised:
        made(runs, left_s=50).measure([trial()])
    assert "--seconds" in raised.value.remedy


class Flaky(FakeRuns):
    """Runs of which those with these numbers fail."""

    def __init__(self, *failing):
        super().__init__({"": 1e7, "bucket_view": 5e6})
        self.failing = failing

    def run(self, spec, limit_s):
        result = super().run(spec, limit_s)
        return RunResult(error="OSError: busy") if len(self.made) in self.failing else result


@pytest.mark.parametrize("failing", [(1,), (3,), (4,), (1, 4, 8)])
def test_a_run_that_fails_once_is_made_again(failing):
    assert outcomes(Flaky(*failing), "bucket_view")["bucket_view"].outcome == "keep"


def test_a_program_that_goes_on_failing_leaves_what_was_measured():
    [found] = made(Flaky(*range(6, 20))).measure([trial()])
    assert (found.outcome, found.reason) == ("failed", "OSError: busy")
    schedule_ = made(Flaky(*range(4, 20)))
    [found] = schedule_.measure([trial()])
    assert (found.outcome, found.measured.runs) == ("undecided", 2)
    assert found.reason == schedule_.stopped == "the program failed: OSError: busy"


@pytest.mark.parametrize("few", [{"runs": 3}, {"steps": 3}])
def test_too_few_runs_or_steps_to_prove_anything_are_refused(few):
    with pytest.raises(InputError, match="can prove nothing"):
        Limits(**few)


def test_sites_of_all_runs_and_the_worst_comparison_are_kept():
    site = ("bucket_view", "a.py", 3, (3, 9), "Adam", {"bucket_view": True})
    other = ("bucket_view", "b.py", 3, (3, 9), "Adam", {"bucket_view": True})

    class Sites(FakeRuns):
        def run(self, spec, limit_s):
            result = super().run(spec, limit_s)
            seen = (site, other) if len(self.made) > 2 else (site,)
            factor = 1 + 1e-6 * spec.seed if spec.remedies else 1.0
            losses = tuple((at, loss * factor) for at, loss in result.losses)
            return RunResult(**{**vars(result), "sites": seen, "losses": losses})

    found = outcomes(Sites({"": 1e7, "bucket_view": 5e6}), "bucket_view")["bucket_view"]
    assert found.sites == (site, other)
    assert found.results.startswith("within 3e-06")


def test_all_that_are_kept_are_measured_together():
    runs = FakeRuns({"": 1e7, "bucket_view": 7e6})
    kept = [trial("num_workers"), trial("bucket_view")]
    (found,) = made(runs).measure([together(None, kept)])
    assert (found.planned.name, found.outcome) == ("together", "keep")
    assert runs.made[:2] == [(), ("num_workers", "bucket_view")]


def test_remedies_that_exclude_each_other_are_not_kept_together():
    from traceview.trials.tryout.answer import compatible

    measured = [verdict.StepDifference(1e7, delta, None, None, 4) for delta in (-1e6, -2e6, -1e6)]
    names = ("fused", "foreach", "num_workers")
    kept = [
        verdict.Trial(trial(name), "keep", measured=m)
        for name, m in zip(names, measured, strict=True)
    ]
    assert [each.planned.name for each in compatible(kept)] == ["foreach", "num_workers"]


def test_spec_and_result_are_read_as_written(tmp_path: Path):
    spec = Spec(**{**vars(SPEC), "remedies": ("bucket_view",), "arguments": ("--a", "ü")})
    spec.write(tmp_path / "spec.json")
    assert Spec.read(str(tmp_path / "spec.json")) == spec
    _, result = results(
        error="x", sites=(("bucket_view", "a.py", 3, (3, 9), "Adam", {"bucket_view": True}),)
    )
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


def test_results_before_the_first_step_count_as_those_of_the_first():
    before, after = (RunResult(losses=((-1, 1.0), (0, loss))) for loss in (1.0, 1.5))
    assert verdict.deviation(before, after) == 0.5
    assert verdict.deviation(RunResult(losses=((-1, 1.0),)), RunResult(losses=((-1, 2.0),))) == 1
