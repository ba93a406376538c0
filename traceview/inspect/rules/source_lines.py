"""Source lines in the message of a finding, each a value of its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.inspect.kernel_report import line_name
from traceview.ptx.model import SourceLine
from traceview.units import Value

_MOST_LINES = 3


def lines_in_message(
    lines: Sequence[SourceLine | None], leads: Sequence[str] = ()
) -> tuple[str, dict[str, Value]]:
    """A template that lists lines, `{line} and {line_2}`, and its values.

    `leads` go before the lines, one per line: `loads at {line} and stores at {line_2}`; a lead that
    repeats is left out. Of more than three lines the rest are counted.
    """
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
    return " and ".join(shown), values
