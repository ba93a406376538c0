"""Names of C++ functions: unqualified from a mangled symbol, short from a demangled name."""

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
    while match := _LENGTH.match(symbol, at):
        at = match.end() + int(match[1])
        name = symbol[match.end() : at]
    return name if name and at <= len(symbol) else symbol


_ABI_TAG = re.compile(r"\[abi:\w*\]")


def short_name(demangled: str) -> str:
    """A demangled name without return type, parameters and ABI tags: `ops::scale<__half, 8>`.

    A name that is not understood is returned unchanged.
    """
    name = _ABI_TAG.sub("", demangled)
    at = _parameters_at(name)
    if at is None:
        return name
    name = name[:at]
    blank = _last_blank(name)
    return name[blank + 1 :] or demangled


def _parameters_at(name: str) -> int | None:
    end = name.rfind(")")
    depth = 0
    for at in range(end, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return at or None
    return None


def _last_blank(name: str) -> int:
    """The last blank outside of all brackets, which separates the return type; -1 without one."""
    depth, last = 0, -1
    for at, letter in enumerate(name):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == " " and depth == 0:
            last = at
    return last
