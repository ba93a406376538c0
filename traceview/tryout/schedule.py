"""Runs the program with and without each remedy in turns until each trial is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import monotonic

from traceview.errors import TraceviewError
from traceview.records import record
from traceview.tryout import verdict
from traceview.tryout.planned import Planned
from traceview.tryout.runs import Runs
from traceview.tryout.spec import BLOCK, FIGURE_STEPS, RunResult, Spec
from traceview.tryout.verdict import ERROR, StepDifference, Trial

FIRST_LOOK = 4
"""Runs a side after which a difference can be proven: its bounds are then the extreme values."""
_FIRST_TAIL = 1 / 70
"""One of the 70 ways to divide eight runs into two sides; the last look has the rest of ERROR."""
BLOCKS_A_SIDE = 4
_BLOCK_LOOK = 2
"""Runs with alternating blocks after which to look: one alone shows nothing of other processes."""
_PATIENCE_S, _PATIENCE = 120.0, 10.0
"""A run with a remedy may take ten times what one without takes, and two minutes to compile."""


@record
class Limits:
    """Steps that are timed per run, runs per side, and seconds after which no run starts."""

    steps: int = 20
    runs: int = 8
    seconds: float = 1_800.0


@dataclass
class _Open:
    """A trial in progress: its runs, and the outcome once there is one."""

    planned: Planned
    alternates: bool
    runs: list[tuple[Spec, RunResult]] = field(default_factory=list)
    trial: Trial | None = None


_NOT_RUN = "time was up before its first run"


class Schedule:
    """Measures planned trials. `base` are the runs without any remedy."""

    def __init__(self, runs: Runs, limits: Limits, note: Callable[[str], object]) -> None:
        self._runs, self._limits, self._note = runs, limits, note
        self._deadline = monotonic() + limits.seconds
        self.base: list[tuple[Spec, RunResult]] = []
        self._base_s = 0.0
        self.warmup = FIGURE_STEPS

    def measure(self, planned: Sequence[Planned]) -> list[Trial]:
        """The outcome of each trial. Raises TraceviewError where the program itself fails."""
        self.base = []
        settles = [remedy.settles for each in planned for remedy in each.remedies]
        self.warmup = max([FIGURE_STEPS, *settles])
        switched = any(map(_is_switchable, planned))
        # Whether the program makes enough steps to switch within a run shows in the first one.
        self._run_base(0, max(self._block_steps() - self._limits.steps, 0) if switched else 0)
        trials = [_Open(each, self._alternates(each)) for each in planned]
        for number in range(self._limits.runs):
            left = [each for each in trials if each.trial is None]
            if not left or monotonic() > self._deadline:
                break
            self._round(left, number)
        for each in trials:
            self._look(each, last=True)
        return [each.trial or Trial(each.planned, "undecided", _NOT_RUN) for each in trials]

    def _round(self, left: Sequence[_Open], number: int) -> None:
        """A run of each trial and one without remedies: A B C, then C B A, so that drift evens."""
        needs_base = number == 1 or any(not each.alternates for each in left)
        turns = [*([None] if number and needs_base else []), *left]
        for turn in reversed(turns) if number % 2 else turns:
            if turn is None:
                self._run_base(number)
            else:
                self._run(turn, number)
        for each in left:
            self._look(each)

    def _alternates(self, planned: Planned) -> bool:
        """Whether a remedy can be switched within a run, and the program has enough steps."""
        whole = self._block_steps() + self.warmup
        return _is_switchable(planned) and len(self.base[0][1].steps) >= whole

    @staticmethod
    def _block_steps() -> int:
        return 2 * BLOCKS_A_SIDE * BLOCK

    def _run_base(self, number: int, more: int = 0) -> None:
        began = monotonic()
        self._note(f"run {self._runs.count + 1}: unchanged")
        spec = self._runs.spec(
            warmup=self.warmup, steps=self._limits.steps, more=more, seed=_seed(number)
        )
        result = self._runs.run(spec, self._limits.seconds)
        self._base_s = max(self._base_s, monotonic() - began)
        if result.error:
            remedy = "it must run to its steps without a remedy first"
            raise TraceviewError(f"the program failed: {result.error}", remedy)
        if verdict.step_ns(spec, result) is None:
            what = f"the program made {len(result.steps)} training steps that can be timed"
            remedy = f"a step ends with a torch optimizer; at least {2 * verdict.LEAST_STEPS}"
            raise TraceviewError(what, f"{remedy} are needed")
        self.base.append((spec, result))

    def _run(self, trial: _Open, number: int) -> None:
        self._note(f"run {self._runs.count + 1}: {trial.planned.name}")
        spec = self._runs.spec(
            remedies=trial.planned.names,
            warmup=self.warmup,
            steps=self._block_steps() if trial.alternates else self._limits.steps,
            seed=_seed(number),
            alternates=trial.alternates,
        )
        limit_s = _PATIENCE_S + _PATIENCE * self._base_s
        trial.runs.append((spec, self._runs.run(spec, limit_s)))
        trial.trial = self._ruled_out(trial)

    def _ruled_out(self, trial: _Open) -> Trial | None:
        """The outcome where the last run ends a trial; None where it goes on."""
        planned, (spec, result) = trial.planned, trial.runs[-1]
        if result.rejected:
            return Trial(planned, "rejected", result.rejected)
        if result.error:
            return Trial(planned, "failed", result.error)
        missing = [each.name for each in planned.remedies if each.name not in result.applied]
        if len(missing) == len(planned.remedies):
            return Trial(planned, "rejected", "the program has nothing that it changes")
        if not _is_timed(trial, spec, result):
            return Trial(planned, "failed", f"it made only {len(result.steps)} steps")
        equal, text = verdict.compare_results(planned, self.base, trial.runs[-1])
        if equal is False:
            return Trial(planned, "changes results", text, text)
        return None

    def _look(self, trial: _Open, *, last: bool = False) -> None:
        """Decide a trial where its runs so far can, or at the end."""
        if trial.trial is not None or not trial.runs:
            return
        most = max(self._limits.runs // 2, 1) if trial.alternates else self._limits.runs
        first = min(_BLOCK_LOOK if trial.alternates else FIRST_LOOK, most)
        runs = len(trial.runs)
        if not last and runs not in (first, most):
            return
        tail = (_FIRST_TAIL if runs <= first else ERROR - _FIRST_TAIL) if first < most else ERROR
        measured = self._measured(trial, tail)
        # Runs before the second unchanged one could not be told from noise.
        checked = [verdict.compare_results(trial.planned, self.base, run) for run in trial.runs]
        texts = [text for equal, text in checked if equal]
        worst = next((text for equal, text in checked if equal is False), "")
        sites = trial.runs[0][1].sites
        if worst:
            trial.trial = Trial(trial.planned, "changes results", worst, worst, measured, sites)
            return
        outcome = verdict.judged(measured)
        reason = ""
        if outcome == "keep" and not texts:
            outcome, reason = "undecided", "no results to compare"
        if outcome != "undecided" or last or runs >= most:
            said = max(texts, key=len, default="not compared")
            trial.trial = Trial(trial.planned, outcome, reason, said, measured, sites)

    def _measured(self, trial: _Open, tail: float) -> StepDifference:
        if not trial.alternates:
            before = [time for run in self.base if (time := verdict.step_ns(*run))]
            after = [time for run in trial.runs if (time := verdict.step_ns(*run))]
            return verdict.measured(before[: len(after)], after, tail, len(after))
        sides: tuple[list[float], list[float]] = [], []
        runs = [verdict.blocks(*run) for run in trial.runs]
        whole = fmean(time for run in runs for side in run for time in side)
        for run in runs:
            # What a process is slower in all of its blocks is no difference of the sides.
            own = fmean(time for side in run for time in side)
            for side, times in zip(sides, run, strict=True):
                side.extend(time - own + whole for time in times)
        return verdict.measured(*sides, tail, len(runs), BLOCKS_A_SIDE)


def _seed(number: int) -> int:
    """The first two runs share a seed: their difference is the noise of the program."""
    return 0 if number < 2 else number


def _is_timed(trial: _Open, spec: Spec, result: RunResult) -> bool:
    if trial.alternates:
        return all(len(side) == BLOCKS_A_SIDE for side in verdict.blocks(spec, result))
    return verdict.step_ns(spec, result) is not None


def _is_switchable(planned: Planned) -> bool:
    return all(remedy.is_switchable for remedy in planned.remedies)
