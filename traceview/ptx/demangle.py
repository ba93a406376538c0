"""Plain names of mangled C++ functions."""

from __future__ import annotations

import re

_MANGLED = re.compile(r"_ZN?K?L?(?=\d)")
_LENGTH = re.compile(r"L?(\d{1,5})")


def plain_name(symbol: str) -> str:
    """The unqualified name of a function: `scale` for _ZN2my5scaleIfEEvPT_.

    A C symbol is returned as it is. Template arguments are not demangled.
    """
    start = _MANGLED.match(symbol)
    name, at = symbol, start.end() if start else len(symbol)
    while found := _LENGTH.match(symbol, at):
        at = found.end() + int(found[1])
        name = symbol[found.end() : at]
    return name if name and at <= len(symbol) else symbol
