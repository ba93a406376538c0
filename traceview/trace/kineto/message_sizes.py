"""Bytes that a collective call moves, from the element counts that torch.distributed notes.

The split sizes of an all-to-all count rows: a rank's elements are its split times the elements per
row, which is the number of all elements ÷ the sum of the splits. Torch lists at most 30 splits.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from traceview.tables import NULL

ITEM_BYTES = {
    "double": 8, "long": 8, "complexfloat": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2,
    "short": 2, "byte": 1, "char": 1, "bool": 1, "complexdouble": 16,
}  # fmt: skip
_MOST_ELEMENTS, _MOST_BYTES = 1 << 48, 1 << 60
_SPLITS = re.compile(r"\[\d{1,15}(?:, ?\d{1,15})*\]")
_FROM_OUTPUT = ("reduce-scatter", "receive", "scatter")


class MessageSizes(NamedTuple):
    """`bytes`, `total_bytes` and `bus_bytes` of collective_calls: see their columns there."""

    message: int
    total: int = NULL
    bus: int = NULL


def sizes_of(args: Any, kind: str | None) -> MessageSizes:
    """The sizes of a call; for messages of different sizes, `exchanged_bytes` has the bus bytes."""
    item = item_bytes(args.dtype)
    sent, taken = args.elements_in, args.elements_out
    count = taken if kind in _FROM_OUTPUT else sent
    if not item or not _is_count(count):
        return MessageSizes(NULL)
    ranks = args.group_size if type(args.group_size) is int and args.group_size > 0 else 0
    if kind == "all-to-all" and ranks:
        larger = max(count, taken if _is_count(taken) else 0)
        uneven = _is_uneven(args.splits_in) or _is_uneven(args.splits_out)
        return MessageSizes(larger // ranks * item, larger * item if uneven else NULL)
    if kind == "all-gather" and _is_count(taken) and ranks and taken != count * ranks:
        return MessageSizes(count * item, taken * item, max(taken - count, 0) * item)
    return MessageSizes(count * item)


def item_bytes(dtype: Any) -> int:
    """Bytes of an element of a data type, 0 for an unknown type."""
    name = str(dtype).lower()
    return ITEM_BYTES.get(name, 1 if name.startswith("float8") else 0)


def splits_of(args: Any, kind: str | None) -> str:
    """Splits (in, out) and bytes per row of an all-to-all as text; "" if equal, or not known."""
    splits = [text for text in (args.splits_in, args.splits_out) if _is_uneven(text)]
    both = [args.splits_in, args.splits_out]
    if kind != "all-to-all" or not splits or not all(map(_is_listed, both)):
        return ""
    rows = [sum(_parsed(text)) for text in both]
    counts = [args.elements_in, args.elements_out]
    known = [(n, r) for n, r in zip(counts, rows, strict=True) if _is_count(n) and r]
    if not known or known[0][0] % known[0][1]:
        return ""
    return f"{both[0]}|{both[1]}|{known[0][0] // known[0][1] * item_bytes(args.dtype)}"


def exchanged_bytes(splits: str, own: int) -> MessageSizes | None:
    """Sizes of an all-to-all for rank `own`, from a text of `splits_of`; None if unknown."""
    if not splits:
        return None
    sent_text, taken_text, row = splits.split("|")
    sent, taken = _parsed(sent_text), _parsed(taken_text)
    if not 0 <= own < min(len(sent), len(taken)):
        return None
    total = max(sum(sent), sum(taken)) * int(row)
    bus = max(sum(sent) - sent[own], sum(taken) - taken[own]) * int(row)
    return MessageSizes(total // len(sent), total, bus) if total < _MOST_BYTES else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST_ELEMENTS


def _is_listed(text: Any) -> bool:
    return type(text) is str and bool(_SPLITS.fullmatch(text))


def _is_uneven(text: Any) -> bool:
    """Whether the splits differ, or are too many to be listed completely."""
    return type(text) is str and ("..." in text or len(set(_parsed(text))) > 1)


def _parsed(text: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d{1,15}", text)]
