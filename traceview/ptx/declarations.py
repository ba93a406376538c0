"""What a PTX function and a shared variable say of themselves before any instruction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from traceview.ptx.opcodes import TYPE_BITS

ATTRIBUTE = r"(?:\.attribute\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
HEADER = re.compile(
    rf"(?:\.\w+\s+)*?\.(?P<kind>entry|func)\b\s*{ATTRIBUTE}(?:\([^)]*\)\s*)?"
    r"(?P<name>[A-Za-z_$%][\w$]*)\s*(?:\((?P<parameters>[^)]*)\))?(?P<rest>.*)",
    re.DOTALL | re.ASCII,
)
LIMIT = re.compile(r"\.([a-z_]+)\s*(\d{1,9}(?:\s*,\s*\d{1,9})*)?", re.ASCII)
STRING = re.compile(r'"[^"]*"')
LAST_NAME = re.compile(r"([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*)*$")
VARIABLE = re.compile(r"([A-Za-z_$%][\w$]*)\s*((?:\[[^\]]*\]\s*)*)")
SHARED = re.compile(r"(?:\.(?:visible|weak|common)\s+)*\.shared\b", re.ASCII)
MODIFIER = re.compile(r"\s*\.(?:align\s+(?P<align>\d+)|(?P<word>\w+))", re.ASCII)
EXTENT = re.compile(r"\[([^\]]*)\]")
# The integers of PTX: those of C, where a leading 0 means octal, and not those of Python.
INTEGERS = (
    (re.compile(r"0[xX]([0-9a-fA-F]+)U?"), 16),
    (re.compile(r"0[bB]([01]+)U?"), 2),
    (re.compile(r"0([0-7]+)U?"), 8),
    (re.compile(r"(0|[1-9][0-9]*)U?"), 10),
)
WARP_THREADS = 32
MOST_BYTES = 1 << 63
VECTORS = {"v2": 2, "v4": 4}


class Header(NamedTuple):
    """The head of a function's definition."""

    name: str
    is_entry: bool
    parameters: tuple[str, ...]
    directives: dict[str, tuple[int, ...]]


class SharedVariable(NamedTuple):
    """A variable in a block's shared memory; its size is in bytes, its alignment too."""

    name: str
    bytes: int
    align: int


def read_header(text: str) -> Header | None:
    """The header of `.entry` or `.func`, without its brace; None where it is not one."""
    found = HEADER.fullmatch(text)
    if not found:
        return None
    parameters = (LAST_NAME.search(each.strip()) for each in (found["parameters"] or "").split(","))
    limits = {
        name: tuple(int(number) for number in numbers.split(",") if number)
        for name, numbers in LIMIT.findall(STRING.sub("", found["rest"]))
    }
    names = tuple(each[1] for each in parameters if each)
    return Header(found["name"], found["kind"] == "entry", names, limits)


def read_shared(text: str) -> list[SharedVariable]:
    """The variables that a `.shared` declaration gives room to.

    None for other directives and for `extern` variables, which only name what a launch or another
    module brings. Raises ValueError for a size that is no number.
    """
    found = SHARED.match(text)
    if not found:
        return []
    align, vector, bits, end = 0, 1, 0, found.end()
    while modifier := MODIFIER.match(text, end):
        align = int(modifier["align"] or align)
        vector = VECTORS.get(modifier["word"], vector)
        bits = TYPE_BITS.get(modifier["word"], bits)
        end = modifier.end()
    element = vector * bits // 8
    return [
        SharedVariable(name, element * _extent(extents), max(align or element, 1))
        for name, extents in VARIABLE.findall(text[end:])
    ]


def _extent(extents: str) -> int:
    size = 1
    for extent in EXTENT.findall(extents):
        size *= _length(extent.strip())
        if size > MOST_BYTES:
            raise ValueError("no memory is as large")
    return size


def _length(extent: str) -> int:
    """A dimension: ptxas takes an integer or WARP_SZ there, and no expression."""
    if extent == "WARP_SZ":
        return WARP_THREADS
    for form, base in INTEGERS:
        if found := form.fullmatch(extent):
            return int(found[1], base)
    raise ValueError(f"{extent!r} is no integer")


def room(variables: Iterable[SharedVariable]) -> int:
    """The bytes that variables take together, each on its alignment."""
    end = 0
    for variable in variables:
        end = -(-end // variable.align) * variable.align + variable.bytes
    return end
