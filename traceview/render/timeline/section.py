"""The timeline's section of a page."""

from __future__ import annotations

from markupsafe import Markup

from traceview.facts.operations.operations import operations
from traceview.records import record
from traceview.render.timeline.document import MOST_POINTS, timeline_document
from traceview.render.timeline.packing import script_json
from traceview.render.timeline.strip import strip
from traceview.timeline.timeline import timeline
from traceview.trace import Trace, fact


@record
class TimelineView:
    """The document for the script, and the strip that the page shows without it."""

    document: Markup
    strip: Markup


def timeline_view(trace: Trace | None) -> TimelineView | None:
    """The timeline of a trace with GPU work or CUDA calls; None without either."""
    return None if trace is None else _timeline_view(trace)


@fact
def _timeline_view(trace: Trace) -> TimelineView | None:
    # A memoised fact, so that it can be computed ahead.
    if not (len(operations(trace)) or len(trace.recorded("api_calls"))):
        return None
    whole = timeline(trace, MOST_POINTS)
    document = script_json(timeline_document(trace, whole))
    # Escaped, so that no text can end the script element.
    return TimelineView(Markup(document), strip(trace, whole))  # noqa: S704
