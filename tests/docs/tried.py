"""The table of tried remedies in docs/accuracy.md, made of rows that `traceview try` appended."""

import json
import re
from statistics import median

from tests.places import DATA
from traceview.trials.tryout.ledger import Row

_TABLE = re.compile(r"(?<=<!-- tried -->\n).*?(?=<!-- end of tried -->)", re.DOTALL)
_SAVING = {"at-most": "at most ", "at-least": "at least "}


def rows() -> list[Row]:
    lines = (DATA / "tried" / "h200.jsonl").read_text().splitlines()
    return [Row(**json.loads(line)) for line in lines]


def with_tried(page: str) -> str:
    """The page with the table, where it has one, as it is now."""
    return _TABLE.sub(lambda _: _table(rows()), page)


def _table(tried: list[Row]) -> str:
    off = [abs(row.off_pct) for row in tried if row.off_pct is not None]
    kept = sum(row.outcome == "keep" for row in tried if row.remedy != "together")
    return "".join(
        (
            "| program | remedy | forecast, % | measured, % | off | verdict |\n",
            "|---|---|---|---|---|---|\n",
            *map(_line, tried),
            f"\n{len({row.program for row in tried})} programs, {kept} remedies kept; ",
            f"{len(off)} forecasts, median error {median(off):.1f} % of a step.\n",
        )
    )


def _line(row: Row) -> str:
    said = measured = off = "–"
    if row.said_pct is not None:
        error = f" ± {row.said_error_pct:.1f}" if row.said_error_pct else ""
        said = f"{_SAVING.get(row.saving, '')}{row.said_pct:.1f}{error}"
    if row.saved_pct is not None:
        measured = f"{row.saved_pct:.1f}"
        if row.low_pct is not None and row.high_pct is not None:
            measured += f" ({row.low_pct:.1f} to {row.high_pct:.1f})"
    if row.off_pct is not None:
        off = f"{row.off_pct:+.1f}"
    reason = "time was up" if row.reason.startswith("time was up") else row.reason
    why = f": {reason}" if reason else ""
    numbers = f"{said} | {measured} | {off}".replace("-", "−")
    return f"| {row.program} | `{row.remedy}` | {numbers} | {row.outcome}{why} |\n"
