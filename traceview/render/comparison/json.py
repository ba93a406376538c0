"""A comparison of runs as JSON, version 1.

Times per step are means and may have a fraction of a nanosecond. The `difference_ns` of the parts
sum to the `difference_ns` of the step. Absent values are null.
"""

from __future__ import annotations

from fractions import Fraction

from traceview.render.base import json_text
from traceview.render.base.json_text import JsonKey, JsonShape
from traceview.traces.comparison import wording
from traceview.traces.comparison.changes import main_changes
from traceview.traces.comparison.comparison import (
    Certainty,
    CountDifference,
    PartDifference,
    RunComparison,
)
from traceview.traces.comparison.figures import RunFigures, StepPart


def _pct(part: Fraction, whole: Fraction) -> float | None:
    return float(part / whole) * 100 if whole else None


def _sentence(part: PartDifference, comparison: RunComparison) -> str:
    return wording.sentence(part, wording.PER_STEP if wording.has_steps(comparison) else "")


_SIDE = JsonShape(StepPart, "name place shape")
_PART = JsonShape(
    PartDifference,
    "kind group name place change",
    JsonKey("sentence", str, _sentence),
    "before_ns after_ns difference_ns=delta_ns",
    JsonKey("share_pct", float, lambda part, whole: _pct(part.delta_ns, whole.delta_ns)),
    "calls_before calls_after from_calls_ns=calls_ns from_time_per_call_ns=each_ns",
    json_text.object_of("before", _SIDE),
    json_text.object_of("after", _SIDE),
    group="class of a kernel, direction of a copy, kind of a collective",
    place="range path or source line, empty where unknown",
    from_calls_ns="what more or fewer calls account for",
    from_time_per_call_ns="what the time per call accounts for",
)
_STEP = JsonShape(
    RunComparison,
    JsonKey("has_steps", bool, lambda comparison, _: wording.has_steps(comparison)),
    "before_ns after_ns difference_ns=delta_ns",
    JsonKey("difference_pct", float, lambda of, _: _pct(of.delta_ns, of.before_ns)),
    before_ns="mean time per step; of the steady window without steps",
    difference_ns="after less before; the sum over the parts",
)
_CERTAINTY = JsonShape(Certainty, "* is_certain")
_COUNT = JsonShape(CountDifference, "name before after varies")
_RUN = JsonShape(
    RunFigures, "name recorder devices has_steps steps window_ns environment figures warnings"
)
COMPARISON = JsonShape(
    RunComparison,
    JsonKey("headline", str, lambda of, _: wording.headline(of)),
    JsonKey("step", _STEP, lambda of, _: of),
    JsonKey("certainty", _CERTAINTY, lambda of, _: of.certainty),
    JsonKey("changes", list[str], lambda of, _: [change.text for change in main_changes(of)]),
    JsonKey("parts", [_PART], lambda of, _: sorted(of.parts, key=lambda each: -abs(each.delta_ns))),
    json_text.items_of("counts", _COUNT),
    "environment",
    json_text.items_of("before", _RUN),
    json_text.items_of("after", _RUN),
    JsonKey("notes", list[str], lambda of, _: list(wording.notes(of))),
    context=lambda of, _: of,
    headline="how much less or more time, and how sure that is",
    changes="what explains the difference, causes first",
    parts="largest difference first",
)
