"""The sentences of an answer: its edits, what they touch, what then limits, how sure it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from traceview.base import units
from traceview.traces.edits.answer import EditOutcome, GpuTime, WhatIfReport
from traceview.traces.edits.scope import AppliedEdit

REASONS: Mapping[str, str] = {
    "cpu": "CPU work outside CUDA calls",
    "calls": "time in CUDA calls",
    "synchronization": "return from synchronizations",
    "hand-over": "hand-over between threads",
    "gpu-latency": "latency between kernels",
    "other-gpu": "work of another GPU",
    "unexplained": "what the recording does not show",
}
"""What holds up the next work of an idle GPU, by reason."""
_LEAST_SPEEDUP = 1.05
"""Smaller ones would read as 1.0×."""
_PLURALS = {"copy": "copies", "launch": "launches"}


def per_step(answer: WhatIfReport) -> str:
    """What times are of: ` per step`, or nothing where they are of the run."""
    return " per step" if answer.steps else ""


def label(edit: AppliedEdit) -> str:
    """An edit in a few words, such as `kernel gemm* × 0.5`."""
    asked = edit.request
    if asked.kind == "no-sync":
        return f"no wait at {asked.target}"
    if asked.kind == "graph":
        return f"one launch per {asked.target}"
    if asked.kind == "gpu":
        return f"on {edit.names['product']}"
    if asked.kind == "no-recorder":
        return "without the recorder"
    lead = {"cpu": "CPU at", "fuse": "fused"}.get(asked.kind, asked.kind)
    return f"{lead} {asked.target} {_factor(edit)}".replace("  ", " ")


def _factor(edit: AppliedEdit) -> str:
    """`× 0.5`, or `2× as fast`, as it was written."""
    asked = edit.request
    if asked.factor and (asked.kind == "link" or asked.written[-1:] in "x×"):
        return f"{1 / asked.factor:g}× as fast"
    return f"× {asked.factor:g}"


def touches(edit: AppliedEdit, answer: WhatIfReport) -> str:
    """What an edit touches, such as `412 kernels, 18.2 ms per step`."""
    per, number = per_step(answer), _number(edit.items)
    noun = edit.noun if number == "1" else _PLURALS.get(edit.noun, f"{edit.noun}s")
    if edit.request.kind == "graph":
        verb = "becomes" if number == "1" else "become"
        return f"{number} {noun} {verb} {_number(edit.values['graphs'])}{per}"
    if edit.request.kind == "no-recorder":
        cost = units.duration(edit.values["recorder_call_ns"])
        return f"{number} {noun}{per}, {cost} less each"
    time = units.duration(edit.time_ns)
    if edit.request.kind == "fuse":
        return f"{number} {noun}, {time}, become {_number(edit.values['chains'])}{per}"
    return f"{number} {noun}, {time}{per}"


def _number(number: float) -> str:
    """A mean number per step: whole, or with one digit."""
    return units.count(round(number)) if abs(number - round(number)) < 0.05 else f"{number:,.1f}"


def replayed(outcome: EditOutcome) -> str:
    """The time per step with an edit and all before it, such as `24.9 ± 0.3 ms`."""
    return units.with_error(outcome.forecast.replayed_ns, outcome.forecast.error_ns)


def difference(outcome: EditOutcome) -> str:
    """What an edit adds: `−8.7 ms`."""
    return units.difference(-outcome.saved_ns) if outcome.saved_ns else "0"


def headline(answer: WhatIfReport) -> str:
    """The time as recorded and with all edits."""
    last, per = answer.forecast, per_step(answer)
    before = units.duration(answer.recorded_ns)
    after = units.with_error(last.replayed_ns, last.error_ns)
    if abs(last.saved_ns) <= last.error_ns or not last.saved_ns:
        return f"{after} instead of {before}{per}: no difference beyond the error."
    error = 100 * last.error_ns / answer.recorded_ns
    share = units.percent(100 * abs(last.saved_ns) / answer.recorded_ns, error)
    word = "less" if last.saved_ns > 0 else "more"
    times = ""
    if 0 < last.replayed_ns <= answer.recorded_ns / _LEAST_SPEEDUP:
        factor = units.times_as_fast(answer.recorded_ns, last.replayed_ns, last.error_ns)
        times = f", {factor} as fast"
    return f"{after} instead of {before}{per}: {share} {word}{times}."


def limit(answer: WhatIfReport) -> str:
    """How busy the GPU is before and after, and what would win most next."""
    before, after, per = answer.before, answer.after, per_step(answer)
    busy = f"{units.percent(before.busy_pct)} before, {units.percent(after.busy_pct)} after"
    gains = [(answer.next.gpu_ns, "GPU work"), (answer.next.cpu_ns, "CPU time")]
    (most, what), (least, other) = sorted(gains, key=lambda each: -each[0])
    if most <= 0:
        return f"GPU busy {busy}. Then neither GPU work nor CPU time limits it."
    more = f"{units.duration(max(least, 0))} for {other}"
    return (
        f"GPU busy {busy}. Then {what} limits it: a tenth less wins {units.duration(most)}{per}, "
        f"against {more}."
    )


def parts(before: GpuTime, after: GpuTime) -> Iterator[tuple[str, str, float, float]]:
    """The parts of a step: key, words, time before and after; busy first, then most idle time."""
    yield "busy", "GPU busy", before.busy_ns, after.busy_ns
    reasons = {**before.idle_ns, **after.idle_ns}
    pairs = [(r, before.idle_ns.get(r, 0.0), after.idle_ns.get(r, 0.0)) for r in reasons]
    for reason, one, other in sorted(pairs, key=lambda each: -max(each[1:])):
        yield reason, f"idle: {REASONS[reason]}", one, other


def notes(answer: WhatIfReport) -> Iterator[str]:
    """What to know about the recording and some edits."""
    if answer.quality.first_calls:
        yield (
            "The recording shows first calls alone, so times do not tell what the edits win of "
            "later passes. Record more passes, ten or so after those that load and compile."
        )
    yield from _edit_notes(answer)
    if answer.ranks:
        edited = (
            f"rank {', '.join(map(str, answer.edited_ranks))}" if answer.edited_ranks else "all"
        )
        yield (
            f"{units.count(len(answer.ranks))} ranks were replayed as one job, {edited} with the "
            "edits. A step ends with its last rank; other figures are means of the ranks."
        )
    if answer.ranges or answer.excluded_ranges:
        only = ", ".join(answer.ranges) or "all ranges"
        without = f" but {', '.join(answer.excluded_ranges)}" if answer.excluded_ranges else ""
        yield f"The edits touch only what was launched in {only}{without}."
    if not answer.steps:
        yield "The recording has no steps after warm-up: times are of the whole run."
    if answer.quality.items < answer.quality.recorded_items:
        yield (
            f"Of {units.count(answer.quality.recorded_items)} calls and operations, "
            f"{units.count(answer.quality.items)} in the middle of the recording were replayed."
        )


def _edit_notes(answer: WhatIfReport) -> Iterator[str]:
    for outcome in answer.edits:
        edit, per = outcome.applied, per_step(answer)
        if not edit.items and edit.request.kind != "gpu":
            yield f"{label(edit)}: only outside the measured steps."
        if missing := edit.names.get("unmatched"):
            yield f"{label(edit)}: no kernel matches {missing}."
        if slow := edit.values.get("pageable_ns"):
            yield (
                f"{label(edit)}: {units.duration(slow)}{per} of these copies use pageable memory, "
                "which the CPU moves: a faster link alone does not speed these up."
            )
        if edit.request.kind == "gpu":
            yield f"{label(edit)}: {_roofline(edit)}"


def _roofline(edit: AppliedEdit) -> str:
    """Which part of the kernel time follows which ceiling."""
    whole = edit.time_ns or 1.0

    def share(name: str) -> str:
        return units.percent(100 * edit.values[name] / whole)

    return (
        f"of kernel time, {share('memory_bound_ns')} follows the memory bandwidth and "
        f"{share('compute_bound_ns')} the FLOP/s; {share('far_from_ceilings_ns')} is far from both "
        f"and {share('unknown_ns')} of unknown bytes and FLOP: these stay."
    )


def quality(answer: WhatIfReport) -> str:
    """How good the model is: the unchanged replay, inferred edges, and the terms of the error."""
    of, last = answer.quality, answer.forecast
    same = "is the recording to the nanosecond" if of.is_exact else "differs from the recording"
    inferred = units.percent(of.inferred_idle_pct)
    terms = [
        (last.spread_ns, f"the spread over {units.counted(last.steps, 'step')}"),
        (last.inferred_ns, "the inferred order"),
        (last.recorder_ns, "the recorder's cost"),
    ]
    shown = ", ".join(f"{units.duration(term)} {what}" for term, what in terms if term)
    return (
        f"A replay without edits {same}. {inferred} of the GPU's idle time rests on inferred order."
        + (f" In the ±: {shown}." if shown else "")
    )


LEFT_OUT = "Not modelled: kernels that slow each other down, and a full launch queue."
