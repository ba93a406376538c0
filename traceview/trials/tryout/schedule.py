"""Runs the program with and without each remedy in turns until each trial is decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import monotonic

from traceview.base.errors import InputError, TraceviewError
from traceview.base.records import record
from traceview.trials.tryout import verdict
from traceview.trials.tryout.planned import Planned
from traceview.trials.tryout.reference import REFERENCE
from traceview.trials.tryout.runs import Runs
from traceview.trials.tryout.spec import BLOCK, FIGURE_STEPS, RunResult, Spec
from traceview.trials.tryout.verdict import ERROR, ResultComparison, StepDifference, Trial

FIRST_LOOK = 4
"""Runs a side after which a difference can be proven: its bounds are then the extreme values."""
_FIRST_TAIL = 1 / 70
"""One of the 70 ways to divide eight runs into two sides; the last look has the rest of ERROR."""
BLOCKS_A_SIDE, MOST_BLOCKS = 4, 6
"""Blocks of a run with a remedy and without it, at least, and at most where there are the steps."""
_BLOCK_LOOK = 2
"""Runs with alternating blocks after which to look: one alone shows nothing of other processes."""
_PATIENCE_S, _PATIENCE = 120.0, 10.0
"""A run with a remedy may take ten times what one without takes, and two minutes to compile."""


@record
class Limits:
    """Steps that are timed per run, most runs per side, and seconds for all of it.

    Raises InputError for fewer than can decide.
    """

    steps: int = 20
    runs: int = 8
    seconds: float = 1_800.0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("steps", self.steps, verdict.LEAST_STEPS),
            ("runs", self.runs, FIRST_LOOK),
        ):
            if value < least:
                raise InputError(f"{value} {name} can prove nothing", f"pass {least} or more")


@dataclass
class _Open:
    """A trial in progress: its runs, and the outcome once there is one."""

    planned: Planned
    alternates: bool
    runs: list[tuple[Spec, RunResult]] = field(default_factory=list)
    trial: Trial | None = None


class _StoppedError(Exception):
    """No more runs: time is up, or the program fails without a remedy."""


_TIME_UP = "time was up"


class Schedule:
    """Measures planned trials until `deadline`, on the clock of `monotonic`.

    `base` are the runs without any remedy. `stopped` says why runs ended early.
    """

    def __init__(
        self, runs: Runs, limits: Limits, note: Callable[[str], object], deadline: float
    ) -> None:
        self._runs, self._limits, self._note = runs, limits, note
        self._deadline = deadline
        self.base: list[tuple[Spec, RunResult]] = []
        self.stopped = ""
        self._base_s = 0.0
        self.warmup = FIGURE_STEPS
        self._blocks = 0
        self._reference: RunResult | None = None

    def measure(self, planned: Sequence[Planned]) -> list[Trial]:
        """The outcome of each trial.

        Raises TraceviewError where the program itself fails before anything is measured.
        """
        measured, self.base = self.base, []
        settles = [remedy.settles for each in planned for remedy in each.remedies]
        self.warmup = max([FIGURE_STEPS, *settles])
        switched = any(map(_is_switchable, planned))
        trials: list[_Open] = []
        try:
            # Whether the program makes enough steps to switch within a run shows in the first one.
            most = 2 * MOST_BLOCKS * BLOCK
            self._run_base(0, max(most - self._limits.steps, 0) if switched else 0)
            made = len(self.base[0][1].steps) - self.warmup
            self._blocks = min(made // (2 * BLOCK), MOST_BLOCKS)
            trials += [_Open(each, self._alternates(each)) for each in planned]
            for number in range(self._limits.runs):
                if left := [each for each in trials if each.trial is None]:
                    self._round(left, number)
        except _StoppedError as stopped:
            self.stopped = str(stopped)
            if not measured and not self.base:
                raise TraceviewError(self.stopped, advice(self.stopped)) from None
        for each in trials:
            self._look(each, last=True)
        never = f"{self.stopped} before its first run"
        done = [each.trial or Trial(each.planned, "undecided", never) for each in trials]
        return done or [Trial(each, "undecided", never) for each in planned]

    def _round(self, left: Sequence[_Open], number: int) -> None:
        """A run of each trial and one without remedies: A B C, then C B A, so that drift evens."""
        needs_base = any(not each.alternates or self._is_unclear(each) for each in left)
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
        return _is_switchable(planned) and self._blocks >= BLOCKS_A_SIDE

    def _is_unclear(self, trial: _Open) -> bool:
        """Whether a second unchanged run would tell how much results may differ."""
        compared = (verdict.compare_results(trial.planned, self.base, run) for run in trial.runs)
        return len(self.base) == 1 and any(each.equal is None for each in compared)

    def _run_base(self, number: int, more: int = 0) -> None:
        began = monotonic()
        spec, result = self._once(
            "unchanged",
            again=True,
            limit_s=math.inf,
            steps=self._limits.steps,
            more=more,
            seed=_seed(number),
        )
        self._base_s = max(self._base_s, monotonic() - began)
        if result.error:
            raise _StoppedError(f"the program failed: {result.error}")
        if verdict.step_ns(spec, result) is None:
            raise _StoppedError(too_few_steps(result))
        self.base.append((spec, result))

    def _run(self, trial: _Open, number: int) -> None:
        run = self._once(
            trial.planned.name,
            # What has worked before may do so again.
            again=bool(trial.runs),
            limit_s=_PATIENCE_S + _PATIENCE * self._base_s,
            remedies=trial.planned.names,
            steps=2 * self._blocks * BLOCK if trial.alternates else self._limits.steps,
            seed=_seed(number),
            alternates=trial.alternates,
        )
        trial.trial = self._ruled_out(trial, *run)
        trial.runs.append(run)

    def _once(
        self, name: str, *, again: bool, limit_s: float, **options: object
    ) -> tuple[Spec, RunResult]:
        """A run, made `again` where it failed. Raises _StoppedError as time is up."""
        left_s = self._deadline - monotonic()
        if left_s <= 0:
            raise _StoppedError(_TIME_UP)
        self._note(f"run {self._runs.count + 1}: {name}")
        spec = self._runs.spec(warmup=self.warmup, **options)
        result = self._runs.run(spec, min(limit_s, left_s))
        if result.is_late and limit_s > left_s:
            raise _StoppedError(f"{_TIME_UP}: {result.error}")
        if result.error and not result.is_late and again:
            return self._once(name, again=False, limit_s=limit_s, **options)
        return spec, result

    def _ruled_out(self, trial: _Open, spec: Spec, result: RunResult) -> Trial | None:
        """The outcome where a run ends a trial; None where it goes on."""
        planned = trial.planned
        if result.rejected:
            return Trial(planned, "rejected", result.rejected)
        if result.error:
            return Trial(planned, "failed", result.error)
        missing = [each.name for each in planned.remedies if each.name not in result.applied]
        if len(missing) == len(planned.remedies):
            return Trial(planned, "rejected", "it changes nothing in this program")
        if not self._is_timed(trial, spec, result):
            return Trial(planned, "failed", f"it made only {len(result.steps)} steps")
        compared = self._compared(planned, (spec, result))
        if compared.equal is False:
            return Trial(planned, "changes results", compared.text, compared.text)
        return None

    def _compared(self, planned: Planned, run: tuple[Spec, RunResult]) -> ResultComparison:
        """As `compare_results`; unequal ones are held to the program's in float64, too."""
        compared = verdict.compare_results(planned, self.base, run)
        spec, result = run
        if compared.equal is not False or spec.seed != self.base[0][0].seed:
            return compared
        if self._reference is None:
            try:
                _, self._reference = self._once(
                    "in float64",
                    again=False,
                    limit_s=_PATIENCE_S + _PATIENCE * self._base_s,
                    remedies=(REFERENCE.name,),
                    steps=verdict.LEAST_STEPS,
                    seed=spec.seed,
                )
            except _StoppedError:
                return compared
        return (
            verdict.held_to(self._reference, self.base[0][1], result, compared.differs) or compared
        )

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
        checked = [self._compared(trial.planned, run) for run in trial.runs]
        # The worst of them: one that is not equal, else the one that differs most.
        known = [each for each in checked if each.equal is not None]
        worst = max(known, key=lambda each: (not each.equal, each.differs), default=None)
        text = worst.text if worst else "not compared"
        sites = tuple({site[:5]: site for _, run in trial.runs for site in run.sites}.values())
        if worst and not worst.equal:
            trial.trial = Trial(trial.planned, "changes results", text, text, measured, sites)
            return
        outcome = verdict.judged(measured)
        reason = self.stopped if outcome == "undecided" else ""
        if outcome == "keep" and not worst:
            outcome, reason = "undecided", "no results to compare"
        if outcome != "undecided" or last or runs >= most:
            trial.trial = Trial(trial.planned, outcome, reason, text, measured, sites)

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
        return verdict.measured(*sides, tail, len(runs), self._blocks)

    def _is_timed(self, trial: _Open, spec: Spec, result: RunResult) -> bool:
        if trial.alternates:
            return all(len(side) == self._blocks for side in verdict.blocks(spec, result))
        return verdict.step_ns(spec, result) is not None


def too_few_steps(result: RunResult) -> str:
    """What to say of a program that has no training loop that can be timed."""
    made = f"made {len(result.steps)} training steps"
    return f"{_TIME_UP}: it {made}" if result.is_late else f"the program {made} that can be timed"


def advice(why: str) -> str:
    """What to do where nothing could be measured."""
    if why.startswith(_TIME_UP):
        return "pass more seconds (--seconds), or fewer steps (--steps)"
    if "training steps" in why:
        least = 2 * verdict.LEAST_STEPS
        return f"a step ends with a torch optimizer; at least {least} are needed"
    if "ermission denied" in why:
        return "it may write to this folder only by relative paths, and C code only new files"
    if "EOFError" in why:
        return "let it read a file: its standard input is empty"
    return "without a remedy it must run to its training steps first"


def _seed(number: int) -> int:
    """The first two runs share a seed: their difference is the noise of the program."""
    return 0 if number < 2 else number


def _is_switchable(planned: Planned) -> bool:
    return all(remedy.is_switchable for remedy in planned.remedies)
