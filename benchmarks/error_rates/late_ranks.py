"""Error rates of the answer for a job of many ranks, from simulated jobs with known truth.

    python -m benchmarks.error_rates.late_ranks [JOBS]

Draws JOBS jobs (1,000) with one late rank (a tenth of the large ones: two), and as many balanced
ones with noise, and counts: the late rank named first, its cause, its place; jobs without a late
rank in which one is named; clocks within their stated error; the saving forecast against the time
that the same job takes without its fault.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from tests.ranks.judgement import Judged, clock_errors, judge
from tests.ranks.simulated_jobs import balanced, with_straggler, worth_of_steady_steps


def planted(jobs: int) -> None:
    counted: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    errors: list[tuple[int, int]] = []
    savings: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for seed in range(jobs):
        job, losses = with_straggler(seed), seed % 4 == 3
        judged = judge(job, per_host=(8, 2)[seed % 2], losses=losses, graphs=True)
        fault = judged.job.fault
        assert fault is not None
        right = judged.late_rank_named and judged.cause_named
        counted.update(rank=judged.late_rank_named, cause=right, place=right and judged.place_named)
        if not right:
            missed[f"{judged.job.shape} {fault.name} period {fault.period}"] += 1
            print(f"  missed: seed {seed}, {_what(judged)}")
        errors += clock_errors(judged)
        finding = judged.finding
        if finding is not None and len(fault.ranks) == 1:
            worth = worth_of_steady_steps(judged.job)
            error_ns = finding.error_ns or 0
            savings[finding.saving].append((finding.time_at_stake_ns, error_ns, worth))
    print(f"{jobs} jobs with a late rank: named first", _percent(counted["rank"], jobs))
    print("  with its cause", _percent(counted["cause"], jobs))
    print("  with its place or class", _percent(counted["place"], jobs))
    print("  missed:", dict(missed))
    _clocks(errors)
    for kind, pairs in sorted(savings.items()):
        _savings(kind, pairs)


def _what(judged: Judged) -> str:
    row = judged.stragglers[0] if judged.stragglers else {}
    figures = {
        name: row.get(name) for name in ("rank", "cause", "place", "kernel_class", "late_ns")
    }
    return f"{judged.job.shape}, {judged.job.fault}: {figures}"


def alarms(jobs: int) -> None:
    named: Counter[str] = Counter()
    for seed in range(jobs):
        judged = judge(balanced(seed), per_host=(8, 2)[seed % 2], losses=seed % 4 == 3)
        if judged.stragglers:
            named[judged.job.shape] += 1
            print(f"  alarm: seed {seed}, {_what(judged)}")
    print(f"{jobs} balanced jobs: a late rank named", _percent(sum(named.values()), jobs))
    print("  by shape:", dict(named))


def _savings(kind: str, savings: Sequence[tuple[int, int, int]]) -> None:
    """Forecasts against what the job wins without its fault."""
    forecast, error, true = np.array(savings, float).T
    ratio = forecast / np.maximum(true, 1)
    off = np.abs(ratio - 1)
    inside = _percent(int((np.abs(forecast - true) <= error).sum()), len(off))
    quarter, middle, most = np.percentile(ratio, [25, 50, 75])
    print(f"{len(ratio)} forecasts, {kind}: within their error {inside}")
    print(f"  forecast over won: {middle:.2f} (median), {quarter:.2f} to {most:.2f} (half of them)")
    print(f"  off by {100 * np.median(off):.1f} % (median), {100 * np.percentile(off, 90):.1f} %")


def _clocks(errors: Sequence[tuple[int, int]]) -> None:
    off, stated = np.array(errors).T
    inside = int((off <= stated).sum())
    print(f"{len(off)} clocks: within the stated error", _percent(inside, len(off)))
    print(f"  off by {np.median(off):.0f} ns (median), stated {np.median(stated):.0f} ns")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    planted(jobs)
    alarms(jobs)


if __name__ == "__main__":
    main()
