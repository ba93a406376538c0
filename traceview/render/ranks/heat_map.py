"""The heat map of ranks and steps as a document for the script of the page.

Times have three significant digits, as they are shown: a 16-bit code per cell, which packs to a
third of the exact nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.ranks.job import PARTS, HeatMap, JobReport
from traceview.records import record
from traceview.render.base.safe_text import visible
from traceview.render.ranks.aligned import step_columns
from traceview.render.timeline.packing import packed_numbers
from traceview.tables import NULL, Array, Integers

MOST_STEPS, MOST_CELLS = 300, 250_000
"""Most columns and cells of the map; in a longer job, a column is the mean of several steps."""
_LEAST_SHARE = 0.005
"""Fraction of a step below which a part is not shown."""
_FIRST = len(("compute", "communication", "wait"))
"""Number of the first parts, which are always included."""


def heat_document(job: JobReport) -> dict[str, object] | None:
    """The document that the script reads; None without steps."""
    heat = job.heat
    if not len(heat.steps) or not len(job.ranks) or not (heat.duration_ns != NULL).any():
        return None
    binned = _binned(heat, _cpu_times(job))
    parts = [part for part in range(len(PARTS)) if part < _FIRST or binned.parts_ns[part].any()]
    late = {int(rank) for rank in job.result.tables["stragglers"]["rank"]}
    hosts = list(dict.fromkeys(visible(rank.name.host, 120) for rank in job.ranks))
    place = {host: at for at, host in enumerate(hosts)}
    return {
        "ranks": [rank.name.rank for rank in job.ranks],
        "late": sorted(late),
        "hosts": hosts,
        "host": [place[visible(rank.name.host, 120)] for rank in job.ranks],
        "steps": [visible(name, 60) for name in binned.steps],
        "loop": visible(_loop_name(heat.steps), 60),
        "mean_of": binned.width,
        "warm_up": binned.warm_up.tolist(),
        "parts": [PARTS[part] for part in parts],
        "duration": packed_numbers(three_digits(binned.duration_ns).ravel()),
        "cpu": packed_numbers(three_digits(binned.cpu_ns).ravel()) if binned.cpu_ns.any() else None,
        "lateness": packed_numbers(three_digits(binned.late_ns).ravel()),
        "times": [packed_numbers(three_digits(binned.parts_ns[part]).ravel()) for part in parts],
    }


@record
class _Binned:
    """Columns of the map; each is the mean over `width` steps. Times have shape (ranks, columns).

    `duration_ns` is 0 where a rank lacks the step, `cpu_ns` where it is not known; `parts_ns` has
    one array per part.
    """

    steps: list[str]
    width: int
    warm_up: Array
    duration_ns: Array
    late_ns: Array
    cpu_ns: Array
    parts_ns: list[Array]


def _cpu_times(job: JobReport) -> Integers:
    """The CPU time of each rank per step, 0 where unknown."""
    result = np.zeros(job.heat.duration_ns.shape, np.int64)
    for place, rank in enumerate(job.ranks):
        if rank.steps.cpu_ns is not None:
            column = step_columns(job, place)
            rows = np.flatnonzero(column >= 0)
            result[place, column[rows]] = np.maximum(rank.steps.cpu_ns[rows], 0)
    return result


def _binned(heat: HeatMap, cpu_ns: Integers) -> _Binned:
    ranks, steps = heat.duration_ns.shape
    width = -(-steps // min(MOST_STEPS, max(MOST_CELLS // ranks, 1)))
    first = np.arange(0, steps, width)
    present = heat.duration_ns != NULL
    count = np.maximum(np.add.reduceat(present, first, axis=1, dtype=np.int64), 1)

    def mean(values: Array) -> Array:
        kept = np.where(present, values, 0)
        result: Array = np.add.reduceat(kept, first, axis=1) / count
        return result

    duration = mean(heat.duration_ns)
    parts = [mean(heat.parts_ns[:, :, part]) for part in range(len(PARTS))]
    shown = [np.where(times >= _LEAST_SHARE * duration, times, 0) for times in parts]
    last = np.minimum(first + width, steps) - 1
    warm_up = np.maximum.reduceat(heat.warm_up.any(axis=0), first)
    short = short_names(heat.steps)
    names = [_name(short[a], short[b]) for a, b in zip(first, last, strict=True)]
    return _Binned(names, width, warm_up, duration, mean(heat.late_ns), mean(cpu_ns), shown)


def short_names(steps: Sequence[str]) -> list[str]:
    """The step names without their common prefix: `10` for `step_10`."""
    loop = _loop_name(steps)
    return [name.removeprefix(loop).lstrip("_# ") for name in steps]


def _loop_name(steps: Sequence[str]) -> str:
    """The common prefix of numbered step names, such as `step` for `step_10`; else empty."""
    names = {name.rstrip("0123456789") for name in steps}
    numbered = all(name[-1:].isdecimal() for name in steps)
    return names.pop().rstrip("_# ") if len(names) == 1 and numbered else ""


def _name(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def three_digits(times_ns: Array) -> Integers:
    """Times ≥ 0 as 1000 × exponent + mantissa: 57,432,118 becomes 5574, which is 574 × 10^5 ns."""
    times = np.asarray(times_ns, np.float64)
    large = np.maximum(times, 1.0)
    exponent = np.maximum(np.floor(np.log10(large)) - 2, 0).astype(np.int64)
    mantissa = np.rint(times / 10.0**exponent).astype(np.int64)
    carried = mantissa >= 1_000
    result: Integers = np.where(carried, 1_000 * (exponent + 1) + 100, 1_000 * exponent + mantissa)
    return result
