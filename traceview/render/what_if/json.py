"""What edits would win as JSON, version 1.

Times are per measured step, or of the run where `steps` is 0. Rows of `edits` are cumulative: each
has the time with its edit and all before it. Absent values are null.
"""

from __future__ import annotations

from traceview.render.base.json_text import JsonKey, JsonShape, document, items_of, written
from traceview.traces.edits import wording
from traceview.traces.edits.answer import (
    EditOutcome,
    GpuTime,
    NextLimit,
    ReplayQuality,
    WhatIfReport,
)
from traceview.traces.facts.dependencies.forecast import StepForecast

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


def render_json(answer: WhatIfReport, version: str) -> str:
    """The answer as one JSON document in ASCII."""
    return f"{written(document(WHAT_IF, answer, version))}\n"
