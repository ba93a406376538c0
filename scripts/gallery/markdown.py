"""Tables, lists and numbers as the pages of the gallery show them."""

from __future__ import annotations

import re
import textwrap

_WIDTH = 97
_SPACE_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[nµm]?s\b|[kMGT]?B\b|[GT]FLOP)")


def table(heads: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table. The first `left` columns are text, the others numbers, right-aligned."""
    rule = ["---" if column < left else "---:" for column in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))


def numbered(points: list[str]) -> str:
    """A numbered list, wrapped like the rest of a page; a number stays with its unit."""
    return "\n".join(_wrapped(f"{number}. {point}") for number, point in enumerate(points, 1))


def _wrapped(point: str) -> str:
    whole = _SPACE_BEFORE_UNIT.sub("\u00a0", point)
    lines = textwrap.wrap(whole, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n   ".join(lines).replace("\u00a0", " ")


def times(ratio: float) -> str:
    """Such as `1.84×`."""
    return f"{ratio:.3g}×"


def terabytes(bytes_per_s: float) -> str:
    """Such as `4.28 TB/s`."""
    return f"{bytes_per_s / 1e12:.2f} TB/s"
