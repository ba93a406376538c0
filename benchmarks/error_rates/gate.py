"""False alarms and power of `compare` and `gate`, by drawing from runs measured on an H200.

    python -m benchmarks.error_rates.gate [PAIRS]

tests/data/gate/step_times.json has the step time (ns) of each run: a process of its own with 20
steps, recorded by torch.profiler, the variants in an order drawn anew in each round. Sides of equal
programs are drawn from the 20 runs of one program without replacement; a slow-down is planted by
making the runs of one side longer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from traceview.base.statistics import difference_bounds, mann_whitney

DATA = Path(__file__).parents[2] / "tests/data/gate/step_times.json"
EQUAL = ("mlp", "blocks_printed")
SLOWER_PCT = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)
PLANTED = ("mlp_spin_0.5", "mlp_spin_1.0", "mlp_spin_2.0", "mlp_spin_3.0", "mlp_spin_5.0")
_TWO_SIDED, _ONE_SIDED = 0.025, 0.05

Alarm = Callable[[list[float], list[float]], bool]


def by_interval(before: list[float], after: list[float]) -> bool:
    """`compare` is certain: the 95 % interval excludes zero."""
    low, high = difference_bounds(before, after, _TWO_SIDED)
    return low is not None and high is not None and (low > 0 or high < 0)


def by_rank_test(before: list[float], after: list[float]) -> bool:
    return mann_whitney(before, after) <= 2 * _TWO_SIDED


def by_gate(limit_pct: float) -> Alarm:
    """`gate` says regressed under max_increase at 95 % certainty."""

    def alarm(before: list[float], after: list[float]) -> bool:
        low, _ = difference_bounds(before, after, _ONE_SIDED)
        return low is not None and low > limit_pct / 100 * float(np.mean(before))

    return alarm


def rate(runs: list[float], alarm: Alarm, size: int, pairs: int, slower_pct: float = 0.0) -> float:
    """The share of drawn pairs of sides that raise the alarm."""
    draw = np.random.default_rng(17)
    raised = 0
    for _ in range(pairs):
        chosen = draw.permutation(runs)[: 2 * size]
        after = chosen[size:] * (1 + slower_pct / 100)
        raised += alarm(chosen[:size].tolist(), after.tolist())
    return raised / pairs


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    times = json.loads(DATA.read_text("utf-8"))
    for name in EQUAL:
        scatter = np.std(times[name], ddof=1) / np.mean(times[name]) * 100
        print(f"{name}: {len(times[name])} runs, standard deviation {scatter:.2f} %")
        for size in (4, 5, 8):
            alarms = {
                "interval": by_interval,
                "U test": by_rank_test,
                "gate, limit 0": by_gate(0.0),
                "gate, limit 1 %": by_gate(1.0),
            }
            rates = (f"{k} {rate(times[name], a, size, pairs):.2%}" for k, a in alarms.items())
            print(f"  false alarms, {size} and {size} runs: {', '.join(rates)}")
        for pct in SLOWER_PCT:
            rates = [rate(times[name], by_interval, size, pairs // 10, pct) for size in (5, 8)]
            found = (f"{n} and {n} runs {r:.1%}" for n, r in zip((5, 8), rates, strict=True))
            print(f"  {pct:.2f} % slower is found: {', '.join(found)}")
    for name in PLANTED:
        measured = np.mean(times[name]) / np.mean(times["mlp"]) * 100 - 100
        groups = [times["mlp"][at : at + 5] for at in range(0, 20, 5)]
        found = sum(by_interval(group, times[name]) for group in groups)
        print(f"{name}: {measured:+.2f} % measured, found against {found} of 4 groups of 5 runs")


if __name__ == "__main__":
    main()
