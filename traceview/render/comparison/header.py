"""The head of every output of a comparison: its runs, their GPU and number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from traceview import units
from traceview.comparison.comparison import RunComparison
from traceview.comparison.figures import RunFigures

_MOST_NAMED = 2


def sides(comparison: RunComparison) -> tuple[str, str]:
    """The names of the runs of each side."""
    return _named(comparison.before), _named(comparison.after)


def _named(runs: Sequence[RunFigures]) -> str:
    names = [PurePath(run.name).name or run.name for run in runs]
    if len(names) > _MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} more"
    return ", ".join(names)


def compared_sides(comparison: RunComparison) -> list[str]:
    """The GPU, and the runs and steps of both sides."""
    gpus = {run.environment.get("gpu", "") for run in (*comparison.before, *comparison.after)}
    steps = [sum(run.steps for run in runs) for runs in (comparison.before, comparison.after)]
    runs = [len(comparison.before), len(comparison.after)]
    stepped = all(run.has_steps for run in (*comparison.before, *comparison.after))
    return [
        *(gpus if len(gpus) == 1 and all(gpus) else ()),
        both_sides(runs, "run"),
        *([both_sides(steps, "steady step")] if stepped else []),
    ]


def both_sides(numbers: Sequence[int], noun: str) -> str:
    """Counts of both sides: `5 runs per side`, `4 and 5 runs`."""
    one, other = numbers
    if one == other:
        return f"{units.counted(one, noun)} per side"
    return f"{units.count(one)} and {units.counted(other, noun)}"
