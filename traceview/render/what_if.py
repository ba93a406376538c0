"""What edits would win, as document, text and JSON. No name is taken as markup."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.render.base.json_text import JsonKey, JsonShape, items_of
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text import GAP, SENTENCE, drawn, grid, note_block
from traceview.render.document import Document, Grid, GridRow, ScoreTile, Section
from traceview.traces.edits import wording
from traceview.traces.edits.answer import (
    EditOutcome,
    GpuTime,
    NextLimit,
    ReplayQuality,
    WhatIfReport,
)
from traceview.traces.facts.forecast import StepForecast

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
    steps = "the whole run"
    if answer.steps:
        # One fewer than the report has: the first only begins the second.
        each = "each " if answer.steps > 1 else ""
        steps = f"{units.counted(answer.steps, 'step')}, {each}from the end of the one before"
        if answer.set_aside:
            left_out = units.counted(answer.set_aside, "step")
            steps += f"; {left_out} of mostly first uses and compilation left out"
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


_LEAST_NAME = 16
_REPR = 90
_ONE_LINE = 100
"""Least width in cells to show an edit and what it touches on one line."""


def render_text(answer: WhatIfReport, *, width: int = 80, color: bool = False) -> str:
    """The answer in lines of at most `width` cells; with ANSI styles if `color`."""
    return drawn(_blocks(answer, width), width, color)


def described(answer: WhatIfReport) -> str:
    """The `repr`: the text that the command prints."""
    return f"<WhatIfReport {render_text(answer, width=_REPR).rstrip()}>"


def _blocks(answer: WhatIfReport, width: int) -> Iterator[RenderableType]:
    about = " · ".join(facts(answer))
    name = shortened(visible(answer.name), width)
    lead = " · " if cell_len(name) + cell_len(about) + 3 <= width else "\n"
    yield Text.assemble((name, "bold"), (f"{lead}{visible(about)}", "dim"))
    yield _edit_lines(answer, width)
    yield Group(
        note_block("", wording.headline(answer), "bold"), note_block("", wording.limit(answer))
    )
    yield _part_lines(answer)
    listed = [*wording.notes(answer), wording.quality(answer), wording.LEFT_OUT]
    yield Group(*(note_block("", each, "", SENTENCE) for each in listed))


def _edit_lines(answer: WhatIfReport, width: int) -> RenderableType:
    times = [wording.replayed(each) for each in answer.edits]
    saved = [wording.difference(each) for each in answer.edits]
    touched = [visible(wording.touches(each.applied, answer)) for each in answer.edits]
    numbers = max(map(cell_len, times)) + max(map(cell_len, saved)) + 2 * GAP + len("→ ")
    one_line = width >= _ONE_LINE
    beside = max(map(cell_len, touched)) + GAP if one_line else 0
    room = max(width - numbers - beside - 2, _LEAST_NAME)
    rows = grid("", "", "right", "right") if one_line else grid("", "right", "right")
    recorded = Text(f"{units.duration(answer.recorded_ns)}{wording.per_step(answer)}")
    blank = [Text("")] if one_line else []
    rows.add_row(Text(AS_RECORDED), *blank, recorded, Text(""))
    for edit, what, time, difference in zip(answer.edits, touched, times, saved, strict=True):
        name = Text(shortened(visible(wording.label(edit.applied)), room), "bold")
        style = "green" if edit.saved_ns > 0 else "red" if edit.saved_ns < 0 else "dim"
        cells = (Text(f"→ {time}"), Text(difference, style))
        if one_line:
            rows.add_row(name, Text(what, "dim"), *cells)
        else:
            rows.add_row(name, *cells)
            rows.add_row(Text(shortened(f"  {what}", room), "dim"), Text(""), Text(""))
    return rows


def _part_lines(answer: WhatIfReport) -> RenderableType:
    rows = grid("", "right", "", "right")
    rows.add_row(Text(f"The GPU's time{wording.per_step(answer)}", "dim"), "", "", "")
    for _, words, before, after in wording.parts(answer.before, answer.after):
        one, other = units.duration(before), units.duration(after)
        rows.add_row(Text(words), Text(one), Text("→", "dim"), Text(other))
    return rows


# JSON, version 1.
#
# Times are per measured step, or of the run where `steps` is 0. Rows of `edits` are cumulative:
# each has the time with its edit and all before it. Absent values are null.

_ERROR = JsonShape(
    StepForecast,
    "error_ns spread_ns inferred_ns recorder_ns",
    error_ns="plus or minus; the root of the sum of squares of the terms",
    spread_ns="of the saving over steps of equal length, 95 %",
    inferred_ns="how far the saving rests on inferred order",
    recorder_ns="how far the saving changes with the recorder's cost per call",
)
_EDIT = JsonShape(
    EditOutcome,
    "edit=applied.request.text kind=applied.request.kind target=applied.request.target "
    "factor=applied.request.factor",
    JsonKey("label", str, lambda each, _: wording.label(each.applied)),
    "noun=applied.noun items=applied.items time_ns=applied.time_ns values=applied.values "
    "names=applied.names replayed_ns=forecast.replayed_ns saved_ns",
    JsonKey("error", _ERROR, lambda each, _: each.forecast),
    edit="as `traceview.what_if` takes it",
    target="the pattern, place, range, direction or product",
    factor="the part of the time that is left",
    noun="what the edit touches: kernel, operation, copy, wait, launch, pause or call",
    items="how many of these per step",
    time_ns="the time that these take per step as recorded",
    replayed_ns="the time per step with this edit and all before it",
    saved_ns="what this edit adds to the saving; negative where it takes longer",
)
_GPU = JsonShape(
    GpuTime,
    "step_ns busy_ns busy_pct idle_ns",
    idle_ns="by what the GPU waits for: " + ", ".join(wording.REASONS),
)
_NEXT = JsonShape(
    NextLimit,
    "gpu_ns cpu_ns",
    gpu_ns="saved per step by a tenth less GPU work, on top of all edits",
    cpu_ns="saved per step by a tenth less CPU time in calls and between them",
)
_QUALITY = JsonShape(
    ReplayQuality,
    "*",
    is_exact="a replay without edits is the recording to the nanosecond",
    inferred_idle_pct="of the idle time of the GPU, the part found along inferred edges",
    items="calls and operations that were replayed",
    first_calls="a start and first calls alone were recorded: later passes may take other times",
)
WHAT_IF = JsonShape(
    WhatIfReport,
    JsonKey("headline", str, lambda answer, _: wording.headline(answer)),
    JsonKey("limit", str, lambda answer, _: wording.limit(answer)),
    "path gpus ranks edited_ranks ranges excluded_ranges steps recorded_ns",
    "replayed_ns=forecast.replayed_ns saved_ns=forecast.saved_ns",
    JsonKey("error", _ERROR, lambda answer, _: answer.forecast),
    items_of("edits", _EDIT),
    JsonKey("gpu_before", _GPU, lambda answer, _: answer.before),
    JsonKey("gpu_after", _GPU, lambda answer, _: answer.after),
    JsonKey("next", _NEXT, lambda answer, _: answer.next),
    JsonKey("quality", _QUALITY, lambda answer, _: answer.quality),
    JsonKey("notes", list[str], lambda answer, _: list(wording.notes(answer))),
    ranks="of a job of several recordings: what edits touch is the mean of its ranks",
    edited_ranks="empty where all are edited",
    steps="measured steps; 0 where times are of the whole run",
    recorded_ns="time per step as recorded",
    replayed_ns="time per step with all edits",
    edits="in the order given, each on top of those before it",
)
