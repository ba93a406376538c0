"""The document of an answer to what edits would win."""

from __future__ import annotations

from traceview.base import units
from traceview.render.document import Document, Grid, GridRow, ScoreTile, Section
from traceview.traces.edits import wording
from traceview.traces.edits.answer import WhatIfReport

AS_RECORDED = "as recorded"


def what_if_document(answer: WhatIfReport) -> Document:
    """A row per edit, each on top of those before it, and the parts of a step before and after."""
    per, last = wording.per_step(answer).strip(), answer.forecast
    saved = units.difference(-last.saved_ns) if last.saved_ns else "0"
    busy = (units.percent(each.busy_pct) for each in (answer.before, answer.after))
    return Document(
        title=answer.name,
        facts=facts(answer),
        headline=wording.headline(answer),
        tiles=(
            ScoreTile("recorded_ns", "Recorded", units.duration(answer.recorded_ns), per),
            ScoreTile(
                "replayed_ns",
                "With the edits",
                units.duration(last.replayed_ns),
                f"± {units.duration(last.error_ns)}",
            ),
            ScoreTile("saved_ns", "Difference", saved, per),
            ScoreTile("gpu_busy_pct", "GPU busy", " → ".join(busy)),
        ),
        sections=(
            Section("Edits, each on top of those before it", (_edits(answer),), aside=False),
            Section(f"The GPU's time{wording.per_step(answer)}", (_parts(answer),), aside=False),
        ),
        notes=(
            wording.limit(answer),
            *wording.notes(answer),
            wording.quality(answer),
            wording.LEFT_OUT,
        ),
    )


def facts(answer: WhatIfReport) -> tuple[str, ...]:
    """The GPUs and the steps that the answer rests on."""
    steps = units.counted(answer.steps, "step") if answer.steps else "the whole run"
    ranks = (units.counted(len(answer.ranks), "rank"),) if answer.ranks else ()
    return (*dict.fromkeys(answer.gpus), *ranks, steps)


def _edits(answer: WhatIfReport) -> Grid:
    first = GridRow((AS_RECORDED, "", units.duration(answer.recorded_ns), ""))
    rows = (
        GridRow(
            (
                wording.label(each.applied),
                wording.touches(each.applied, answer),
                wording.replayed(each),
                wording.difference(each),
            )
        )
        for each in answer.edits
    )
    numbers = (f"time{wording.per_step(answer)}", "difference")
    return Grid(("edit", "touches"), (first, *rows), numbers)


def _parts(answer: WhatIfReport) -> Grid:
    rows = (
        GridRow((words, units.duration(before), units.duration(after)))
        for _, words, before, after in wording.parts(answer.before, answer.after)
    )
    whole = units.duration(answer.before.step_ns), units.duration(answer.after.step_ns)
    return Grid(("part",), (*rows, GridRow(("sum", *whole), strong=True)), ("recorded", "edited"))
