"""Whether a kernel computes the same with other constexprs, in words."""

from __future__ import annotations

from traceview import units
from traceview.headless.equivalence import Equivalence


def results_text(change: str, compared: Equivalence) -> str:
    """A clause for the basis of a finding, of a change that does not make results differ."""
    if compared.verdict == "same":
        return f"results with {change} are the same in Triton's interpreter ({compared.detail})"
    return f"not verified that results with {change} are the same: {compared.detail}"


def with_grid(compared: Equivalence) -> str:
    """The grid to launch where the program passes a fixed one, to be appended to a remedy."""
    if compared.grid is None:
        return ""
    blocks = units.counted(compared.grid[0] * compared.grid[1] * compared.grid[2], "block")
    return f" with {blocks} (the program passes a fixed grid)"
