"""Source lines in the message of a finding, each a value of its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.inspect.kernel_report import line_name
from traceview.ptx.model import SourceLine
from traceview.units import Value

_MOST_LINES = 3
_AT = " at "


def lines_in_message(
    lines: Sequence[SourceLine | None], leads: Sequence[str] = ()
) -> tuple[str, dict[str, Value]]:
    """A template that lists lines, `{line}, {line_2} and {line_3}`, and its values.

    `leads`, one per line, end in `at` and precede the lines: `loads at {line} and stores at
    {line_2}`. A repeated lead is left out, and several leads of one line are joined. Beyond three
    lines only the number of the others is given. Code without a line table has only the leads:
    `loads and stores`.
    """
    if leads and not any(lines):
        alone = (lead.removesuffix(_AT) for lead in leads)
        return " and ".join(dict.fromkeys(alone)), {"line": line_name(None)}
    if leads:
        lines, leads = _of_each_line(lines, leads)
    keys = ["line", *(f"line_{number}" for number in range(2, _MOST_LINES + 1))]
    values: dict[str, Value] = {
        key: line_name(line) for key, line in zip(keys, lines, strict=False)
    }
    shown, before = [], ""
    for number, key in enumerate(values):
        lead = leads[number] if leads else ""
        shown.append(f"{lead if lead != before else ''}{{{key}}}")
        before = lead
    if len(lines) > _MOST_LINES:
        shown.append("{more_lines:more line}")
        values["more_lines"] = len(lines) - _MOST_LINES
    if len(set(leads[: len(shown)])) > 1:
        return " and ".join(shown), values
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:]))), values


def _of_each_line(
    lines: Sequence[SourceLine | None], leads: Sequence[str]
) -> tuple[list[SourceLine | None], list[str]]:
    """Each line once, with its leads joined: `loads and stores at `."""
    joined: dict[SourceLine | None, list[str]] = {}
    for line, lead in zip(lines, leads, strict=True):
        joined.setdefault(line, []).append(lead)
    return list(joined), [
        " and ".join([*(lead.removesuffix(_AT) for lead in some[:-1]), some[-1]])
        for some in joined.values()
    ]
