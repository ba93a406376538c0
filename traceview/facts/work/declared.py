"""Work that a program declares: an NVTX range whose text says its bytes and FLOP.

    gelu {"bytes": 2147483648, "flop": 3489660928, "kind": "fp32"}

A name, and behind it a JSON object with any of: `bytes` moved between device memory and the GPU,
`flop` (a multiply-add is two), `flop_per_byte` in place of `flop`, and `kind`, the unit that does
them (see hardware.FLOP_KINDS). `"payload"` in place of a number is the whole number that was passed
to the range as its NVTX payload, so that the text may stay the same while the size changes:

    with nvtx.annotate('gelu {"bytes": "payload", "flop_per_byte": 1.6}', payload=2 * x.nbytes):

The figures are those of one passage through the range. This is the only place that knows the
format: `text` writes it, `declared` reads it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from traceview.hardware.rates import FLOP_KINDS

_FORM = re.compile(r"(?P<name>[^{]*?)\s*(?P<json>\{[^{}]*\})\s*", re.DOTALL)
PAYLOAD = "payload"
_LONGEST = 1000
_MOST = 1e24


@dataclass(frozen=True)
class Declared:
    """What a range declares; None for what it does not say."""

    name: str
    bytes: float | None
    flop: float | None
    kind: str | None


def text(
    name: str,
    *,
    bytes: float | None = None,  # noqa: A002 - the quantity is a number of bytes
    flop: float | None = None,
    kind: str | None = None,
) -> str:
    """The text of a range that declares work; what is None is left out."""
    said = {"bytes": bytes, "flop": flop, "kind": kind}
    return f"{name} {json.dumps({key: value for key, value in said.items() if value is not None})}"


def declared(range_text: str, payload: int | None = None) -> Declared | None:
    """What a range's text declares; None if it declares nothing that makes sense."""
    if len(range_text) > _LONGEST or '"' not in range_text or not range_text.rstrip().endswith("}"):
        return None
    found = _FORM.fullmatch(range_text)
    if not found:
        return None
    try:
        said = json.loads(found["json"])
    except (ValueError, RecursionError):
        return None
    moved, flop, each = (
        _amount(payload if said.get(key) == PAYLOAD else said.get(key))
        for key in ("bytes", "flop", "flop_per_byte")
    )
    if flop is None and moved is not None and each is not None:
        flop = _amount(moved * each)
    kind = said.get("kind")
    known = kind if isinstance(kind, str) and kind in FLOP_KINDS else None
    result = Declared(found["name"] or "(unnamed)", moved, flop, known)
    return result if (result.bytes, result.flop) != (None, None) else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 <= number < _MOST else None
