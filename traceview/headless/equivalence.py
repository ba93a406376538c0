"""Whether a kernel computes the same with other constexprs."""

from __future__ import annotations

from typing import Literal

from traceview.records import record


@record
class Equivalence:
    """Whether the results are the same, and how that is known or why it is not.

    `grid` is the one that the launch then needs, where the program passes a fixed grid.
    """

    verdict: Literal["same", "differs", "unknown"]
    detail: str
    grid: tuple[int, int, int] | None = None
