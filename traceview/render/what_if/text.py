"""What edits would win, as text for a terminal or a pipe. No name is taken as markup."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text import GAP, SENTENCE, drawn, grid, note_block
from traceview.render.what_if.document import AS_RECORDED, facts
from traceview.traces.edits import wording
from traceview.traces.edits.answer import WhatIfReport

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
    yield _edits(answer, width)
    yield Group(
        note_block("", wording.headline(answer), "bold"), note_block("", wording.limit(answer))
    )
    yield _parts(answer)
    listed = [*wording.notes(answer), wording.quality(answer), wording.LEFT_OUT]
    yield Group(*(note_block("", each, "", SENTENCE) for each in listed))


def _edits(answer: WhatIfReport, width: int) -> RenderableType:
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


def _parts(answer: WhatIfReport) -> RenderableType:
    rows = grid("", "right", "", "right")
    rows.add_row(Text(f"The GPU's time{wording.per_step(answer)}", "dim"), "", "", "")
    for _, words, before, after in wording.parts(answer.before, answer.after):
        one, other = units.duration(before), units.duration(after)
        rows.add_row(Text(words), Text(one), Text("→", "dim"), Text(other))
    return rows
