"""Names of C++ functions, as linkers write them."""

from __future__ import annotations

import re

_MANGLED = re.compile(r"_ZN?K?L?(?=\d)")
_LENGTH = re.compile(r"L?(\d{1,5})")


def plain_name(symbol: str) -> str:
    """A function's own name: `scale` of _ZN2my5scaleIfEEvPT_; a symbol of C is its own.

    Names within the arguments of a template around it are not looked for.
    """
    start = _MANGLED.match(symbol)
    name, at = symbol, start.end() if start else len(symbol)
    while found := _LENGTH.match(symbol, at):
        at = found.end() + int(found[1])
        name = symbol[found.end() : at]
    return name if name and at <= len(symbol) else symbol
