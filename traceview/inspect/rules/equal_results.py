"""Sentences on whether a kernel computes the same results with other constexprs."""

from __future__ import annotations

from traceview import units
from traceview.headless.change import Equivalence


def results_text(change: str, compared: Equivalence) -> str:
    """A clause for the basis of a finding: whether results stay the same with a change."""
    if compared.verdict == "same":
        return f"results with {change} are the same in Triton's interpreter ({compared.detail})"
    return f"not verified that results with {change} are the same: {compared.detail}"


def with_grid(compared: Equivalence) -> str:
    """The grid to launch, as the end of a remedy; empty unless the program fixes its grid."""
    if compared.grid is None:
        return ""
    blocks = units.counted(compared.grid[0] * compared.grid[1] * compared.grid[2], "block")
    return f" with {blocks} (the program passes a fixed grid)"
