"""Function headers and shared variable declarations of PTX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.lexer import TYPE_BITS

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
# PTX integers are those of C, where a leading 0 means octal.
INTEGERS = (
    (re.compile(r"0[xX]([0-9a-fA-F]+)U?"), 16),
    (re.compile(r"0[bB]([01]+)U?"), 2),
    (re.compile(r"0([0-7]+)U?"), 8),
    (re.compile(r"(0|[1-9][0-9]*)U?"), 10),
)
MOST_BYTES = 1 << 63
VECTORS = {"v2": 2, "v4": 4}


class Header(NamedTuple):
    """The header of a function definition."""

    name: str
    is_entry: bool
    parameters: tuple[str, ...]
    directives: dict[str, tuple[int, ...]]


class SharedVariable(NamedTuple):
    """A variable in shared memory; size and alignment in bytes."""

    name: str
    bytes: int
    align: int


def read_header(text: str) -> Header | None:
    """Parse the text of `.entry` or `.func` up to its brace; None if it is not a header."""
    match = HEADER.fullmatch(text)
    if not match:
        return None
    parameters = (LAST_NAME.search(each.strip()) for each in (match["parameters"] or "").split(","))
    limits = {
        name: tuple(int(number) for number in numbers.split(",") if number)
        for name, numbers in LIMIT.findall(STRING.sub("", match["rest"]))
    }
    names = tuple(each[1] for each in parameters if each)
    return Header(match["name"], match["kind"] == "entry", names, limits)


def read_shared(text: str) -> list[SharedVariable]:
    """The variables that a `.shared` declaration allocates.

    Empty for other directives and for `extern` variables, which a launch or another module
    allocates. Raises ValueError for a size that is not a number.
    """
    match = SHARED.match(text)
    if not match:
        return []
    align, vector, bits, end = 0, 1, 0, match.end()
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
            raise ValueError("larger than any memory")
    return size


def _length(extent: str) -> int:
    """An array dimension: an integer or WARP_SZ; ptxas accepts no expression."""
    if extent == "WARP_SZ":
        return WARP_THREADS
    for form, base in INTEGERS:
        if match := form.fullmatch(extent):
            return int(match[1], base)
    raise ValueError(f"{extent!r} is not an integer")


def allocated_bytes(variables: Iterable[SharedVariable]) -> int:
    """The total size of variables in bytes, each at its alignment."""
    end = 0
    for variable in variables:
        end = -(-end // variable.align) * variable.align + variable.bytes
    return end


# Static shared memory of PTX functions: their own variables, the module's, their callees'.

# Registers, which begin with %, are not variables.
IDENTIFIER = re.compile(r"(?<![%\w$])[A-Za-z_$][\w$]*", re.ASCII)


class Uses(NamedTuple):
    """A function's shared variables, and its operands, which name what else it uses."""

    own: Sequence[SharedVariable]
    operands: Iterable[str]


def static_shared_bytes(
    functions: Mapping[str, Uses], of_module: Sequence[SharedVariable]
) -> dict[str, int]:
    """The bytes of static shared memory per block, by function."""
    if not of_module and not any(uses.own for uses in functions.values()):
        return dict.fromkeys(functions, 0)
    # The module's variables lie below those of functions, as ptxas places them.
    owned: dict[str, Sequence[SharedVariable]] = {
        **{variable.name: (variable,) for variable in of_module},
        **{name: uses.own for name, uses in functions.items()},
    }
    named = {
        name: set(chain.from_iterable(map(IDENTIFIER.findall, uses.operands)))
        for name, uses in functions.items()
    }
    reached = _reached(owned, named)
    return {
        name: allocated_bytes(variable for owner in reached[name] for variable in owned[owner])
        for name in functions
    }


def _reached(
    owned: Mapping[str, Sequence[SharedVariable]], named: Mapping[str, set[str]]
) -> dict[str, list[str]]:
    """The owners of variables that each function uses, directly or through its callees.

    Walks from each owner up to its users, as most functions own no variable. In order of `owned`.
    """
    users: dict[str, list[str]] = {}
    for function, names in named.items():
        for name in names & owned.keys():
            users.setdefault(name, []).append(function)
    reached: dict[str, list[str]] = {name: [] for name in named}
    for owner in filter(owned.get, owned):
        # The owner and all its direct and indirect users.
        seen = {owner}
        waiting = [owner]
        while waiting:
            fresh = set(users.get(waiting.pop(), ())) - seen
            seen |= fresh
            waiting.extend(fresh)
        for function in seen:
            if function in reached:
                reached[function].append(owner)
    return reached
