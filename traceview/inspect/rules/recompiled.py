"""Remedies against register pressure, tested by recompiling, and their results as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

from traceview.inspect.recompilations import Outcome, Recompilations
from traceview.inspect.rules.remedies import (
    Tested,
    both,
    fewer_stages,
    more_warps,
    smaller_tiles,
    tested_remedies,
)
from traceview.ptx.model import Compiled

MOST_REMEDIES = 2
T = TypeVar("T")


def relieving_remedies(
    compiled: Compiled, trials: Recompilations | None, measure: Callable[[Outcome], int | None]
) -> list[Tested[int]]:
    """Tested remedies: more warps and fewer stages, then smaller tiles, then both.

    Each group is tested only if no remedy of the groups before it measures 0.
    """
    tries = tested_remedies(chain(more_warps(compiled), fewer_stages(compiled)), trials, measure)
    if any(each.after == 0 for each in tries):
        return tries
    tries += tested_remedies(smaller_tiles(compiled), trials, measure)
    if any(each.after == 0 for each in tries):
        return tries
    return tries + tested_remedies(both(compiled), trials, measure)


def results_clause(
    helped: Sequence[Tested[T]], tries: Sequence[Tested[T]], compared: Callable[[T], str]
) -> str:
    """The results of recompilations, to be appended to the basis of a finding."""
    each = [f"; recompiled with {t.remedy.change.description}: {compared(t.after)}" for t in helped]
    return "".join(each[:MOST_REMEDIES]) or ("; no recompilation helped" if tries else "")
