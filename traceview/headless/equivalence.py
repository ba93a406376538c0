"""Whether a kernel computes the same results with other constexprs."""

from __future__ import annotations

from typing import Literal

from traceview.records import record


@record
class Equivalence:
    """Whether results stay the same with a change, and how that is known or why it is not.

    `grid` is the grid that the changed launch needs, if the program passes a fixed one.
    """

    verdict: Literal["same", "differs", "unknown"]
    detail: str
    grid: tuple[int, int, int] | None = None
