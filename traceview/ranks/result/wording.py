"""Clauses on what a late rank does, and remedies."""

from __future__ import annotations

from traceview.ranks.figures import Place
from traceview.ranks.lateness import GPU_WORK
from traceview.ranks.stragglers import Straggler
from traceview.vocabulary.activities import ACTIVITIES
from traceview.vocabulary.causes import CAUSE_NAMES, CAUSES, LAUNCH_LATE, SYNC_DRAIN


def activity_of_rank(cause: str, place: Place | None) -> str:
    """A clause with `{place}` in it where the place is known: `its CPU sleeps in {place}`."""
    where = " in {place}" if place is not None and place.text else ""
    if cause == CAUSE_NAMES[LAUNCH_LATE] or (cause == CAUSE_NAMES[SYNC_DRAIN] and where):
        does = (each.rank for each in ACTIVITIES if place and each.name == place.what)
        verb = next(does, "") or ("works" if where else "")
        return f"its CPU {verb}{where}" if verb else "its CPU launches work late"
    return f"{next((each.rank for each in CAUSES if each.name == cause), 'its GPU is idle')}{where}"


def remedy(each: Straggler) -> str:
    """The remedy for a late rank, an imperative with the fields of its finding."""
    if each.is_once:
        return "Record more steps: one pause does not tell whether it comes again, and how often."
    if each.more_work:
        return "Share the work evenly: balance batch sizes, tokens per expert or layers per stage."
    if each.cause == GPU_WORK:
        return (
            "Check the clock and the temperature of the GPU of rank {rank}, or give it less work."
        )
    if each.place is not None and each.place.text:
        return (
            "Move what rank {rank} does in {place} out of the step, or let all ranks do it at once."
        )
    return "Read the report of rank {rank} alone: run the same command with --rank {rank}."
