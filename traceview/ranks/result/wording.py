"""Clauses on what a late rank does, and remedies."""

from __future__ import annotations

from traceview.ranks.figures import Place
from traceview.ranks.lateness import GPU_WORK
from traceview.ranks.stragglers import Straggler

_DOES = {
    "sleep": "sleeps",
    "data-wait": "waits for the data loader",
    "data-loading": "loads data",
    "lock": "waits for a lock",
    "process": "waits for another process",
    "file": "reads or writes files",
    "import": "imports modules",
    "compilation": "compiles code",
    "result-wait": "waits for results of JAX",
}
_REASONS = {
    "sync-drain": "its GPU runs dry after a synchronization",
    "dependency": "its GPU waits for work on other streams",
    "copy-wait": "its GPU waits for copies",
    "graph-launch": "it launches a CUDA graph",
    "jit-compile": "the driver compiles its kernels",
    "module-load": "it loads kernels",
    "allocation": "its CPU allocates memory",
    "profiler": "the profiler holds it up",
    "compilation": "it compiles code",
    "lost-work": "work of its GPU is missing in the recording",
    "unknown": "its GPU is idle",
}


def activity_of_rank(cause: str, place: Place | None) -> str:
    """A clause with `{place}` in it where the place is known: `its CPU sleeps in {place}`."""
    where = " in {place}" if place is not None and place.text else ""
    if cause == "launch-late" or (cause == "sync-drain" and where):
        verb = _DOES.get(place.what if place else "", "works" if where else "")
        return f"its CPU {verb}{where}" if verb else "its CPU launches work late"
    return f"{_REASONS.get(cause, 'its GPU is idle')}{where}"


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
