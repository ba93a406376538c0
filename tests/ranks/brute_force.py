"""Waits and clocks of simulated ranks by plain loops over what is known of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from tests.ranks.simulated_figures import Recorded, recorded_operations
from tests.ranks.simulation import COLLECTIVE, RankTimeline
from traceview.base.tables import Integers


def recorded_keys(line: RankTimeline, recorded: Recorded) -> list[Hashable]:
    """Which collective each row of the rank's RankCollectives is a part of."""
    kept, start = recorded_operations(line, recorded), recorded.clock(line.start_ns).tolist()
    rows = [
        (start[place], place)
        for place, op in enumerate(line.program.operations)
        if kept[place] and op.does == COLLECTIVE
    ]
    return [line.program.operations[place].key for _, place in sorted(rows)]


def waits(lines: Sequence[RankTimeline], recorded: Sequence[Recorded]) -> list[dict[Hashable, int]]:
    """By rank and collective: its duration less the shortest that was recorded of it.

    A collective that only one rank recorded has none.
    """
    durations: dict[Hashable, dict[int, int]] = {}
    for rank, (line, each) in enumerate(zip(lines, recorded, strict=True)):
        kept = recorded_operations(line, each)
        duration = (each.clock(line.end_ns) - each.clock(line.start_ns)).tolist()
        for place, op in enumerate(line.program.operations):
            if kept[place] and op.does == COLLECTIVE:
                durations.setdefault(op.key, {})[rank] = duration[place]
    result: list[dict[Hashable, int]] = [{} for _ in lines]
    for key, of_ranks in durations.items():
        if len(of_ranks) > 1:
            for rank, duration in of_ranks.items():
                result[rank][key] = duration - min(of_ranks.values())
    return result


def relative_offsets(
    recorded: Sequence[Recorded], reference: int, true_ns: Integers
) -> list[Integers]:
    """What to add to the clock of each rank for that of the reference, at some true times."""
    base = recorded[reference].clock(true_ns)
    return [np.asarray(base - each.clock(true_ns), np.int64) for each in recorded]
