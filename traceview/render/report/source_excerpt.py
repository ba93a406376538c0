"""The source line that a finding is about, with the recorded lines around it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview.findings import Subject
from traceview.records import record
from traceview.render.base.code_block import CodeBlock, CodeLine
from traceview.render.base.safe_text import visible
from traceview.trace import Trace
from traceview.units import Value

_AROUND = 4
_THE_LINE = "here"
"""Class of the line that the finding is about."""


@record
class SourceView:
    """A place such as `train.py:31`, and its lines if they were recorded."""

    place: str
    code: CodeBlock


def source_view(
    trace: Trace | None, subject: Subject, row: Mapping[str, Value]
) -> SourceView | None:
    """The source of a finding; None if it is about no line. `row` is its row in its table.

    Source files are not read: whoever wrote the trace chose their names.
    """
    if not subject.file:
        return None
    place = f"{subject.file}:{subject.line}" if subject.line else subject.file
    lines = _recorded_lines(trace, subject) or _line_of_row(subject, row)
    return SourceView(place, CodeBlock(place, lines))


def _recorded_lines(trace: Trace | None, subject: Subject) -> tuple[CodeLine, ...]:
    """The subject's line and those around it; empty if that line was not recorded."""
    if trace is None or not subject.line:
        return ()
    table = trace.recorded("source_lines")
    near = np.abs(table["line"].astype(np.int64) - subject.line) <= _AROUND
    rows = np.flatnonzero(near & table.texts("file").isin([subject.file or ""]))
    texts = {int(table["line"][row]): str(table.texts("text")[row]) for row in rows.tolist()}
    if subject.line not in texts:
        return ()
    indent = min((len(text) - len(text.lstrip()) for text in texts.values() if text), default=0)
    return tuple(
        _code_line(text[indent:], number, is_it=number == subject.line)
        for number, text in sorted(texts.items())
    )


def _line_of_row(subject: Subject, row: Mapping[str, Value]) -> tuple[CodeLine, ...]:
    # In other tables, such as that of load-widths, `source` is a place and not a line's text.
    source = row.get("source") if "line" in row or "call_site" in row else None
    text = str(source or "").strip()
    return (_code_line(text, subject.line or 0, is_it=True),) if text and subject.line else ()


def _code_line(text: str, number: int, *, is_it: bool) -> CodeLine:
    mark = _THE_LINE if is_it else None
    return CodeLine(visible(text), "", narrow=False, mark=mark, number=number)
