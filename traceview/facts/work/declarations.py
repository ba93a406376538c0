"""Declarations of work: NVTX ranges whose text states bytes and FLOP.

    gelu {"bytes": 2147483648, "flop": 3489660928, "kind": "fp32"}

A name and a JSON object with any of: `bytes` moved to and from device memory, `flop` (a
multiply-add counts two), `flop_per_byte` in place of `flop`, and `kind`, the unit that computes
(see hardware.FLOP_KINDS). `"payload"` in place of a number stands for the integer NVTX payload of
the range, so that the text can stay the same while the size changes:

    with nvtx.annotate('gelu {"bytes": "payload", "flop_per_byte": 1.6}', payload=2 * x.nbytes):

The figures are those of one pass through the range. Only this module knows the format:
`declaration` writes it, `parse_declaration` reads it.
"""

from __future__ import annotations

import json
import math
import re

from traceview.hardware.rates import FLOP_KINDS
from traceview.records import record

_FORM = re.compile(r"(?P<name>[^{]*?)\s*(?P<json>\{[^{}]*\})\s*", re.DOTALL)
PAYLOAD = "payload"
_LONGEST = 1000
_MOST = 1e24


@record
class DeclaredWork:
    """The work declared by a range; None for what its text leaves out."""

    name: str
    bytes: float | None
    flop: float | None
    kind: str | None


def declaration(
    name: str,
    *,
    bytes: float | None = None,  # noqa: A002 - the quantity is a number of bytes
    flop: float | None = None,
    kind: str | None = None,
) -> str:
    """The text of a range that declares this work; None is left out."""
    work = {"bytes": bytes, "flop": flop, "kind": kind}
    return f"{name} {json.dumps({key: value for key, value in work.items() if value is not None})}"


def may_declare(range_text: str) -> bool:
    """Whether a range's text may declare work; asked of every range."""
    short = len(range_text) <= _LONGEST
    return short and '"' in range_text and range_text.rstrip().endswith("}")


def parse_declaration(range_text: str, payload: int | None = None) -> DeclaredWork | None:
    """The work that a range's text declares; None without a valid declaration."""
    if not may_declare(range_text):
        return None
    match = _FORM.fullmatch(range_text)
    if not match:
        return None
    try:
        fields = json.loads(match["json"])
    except (ValueError, RecursionError):
        return None
    size, flop, each = (
        _amount(payload if fields.get(key) == PAYLOAD else fields.get(key))
        for key in ("bytes", "flop", "flop_per_byte")
    )
    if flop is None and size is not None and each is not None:
        flop = _amount(size * each)
    kind = fields.get("kind")
    known = kind if isinstance(kind, str) and kind in FLOP_KINDS else None
    result = DeclaredWork(match["name"] or "(unnamed)", size, flop, known)
    return result if (result.bytes, result.flop) != (None, None) else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 <= number < _MOST else None
