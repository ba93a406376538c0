"""Expectations of kernels as text: `gelu*: global load >= 128, spills = 0`.

    expectation = [KERNEL ":"] condition ("," condition)*
    condition   = quantity (">=" | "<=" | "=" | "!=" | ">" | "<") NUMBER [UNIT]
    quantity    = [ptx | sass] (global | shared | local) (load | store | atomic) [in loops] | figure

KERNEL is a name or a glob; without one every kernel of the target must meet the conditions. Widths
are in bits per thread per instruction. The figures are in `FIGURES`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from traceview.errors import InputError, suggestion
from traceview.findings import shortened
from traceview.ptx.model import Kind, Level
from traceview.records import record

BYTES = {"": 1, "b": 1, "byte": 1, "bytes": 1, "kb": 1000, "kib": 1024}
PERCENT = {"": 1, "%": 1}
BITS = {"": 1, "bit": 1, "bits": 1}
COUNT = {"": 1}

FIGURES: Mapping[str, Mapping[str, int]] = {
    "registers": COUNT,
    "spills": BYTES,
    "stack": BYTES,
    "shared memory": BYTES,
    "occupancy": PERCENT,
    "blocks per sm": COUNT,
    "waves": COUNT,
    "warps": COUNT,
    "stages": COUNT,
    "elements per thread": COUNT,
    "barriers": COUNT,
    "shuffles": COUNT,
    "tensor ops": COUNT,
    "findings": COUNT,
    "high findings": COUNT,
    "medium findings": COUNT,
    "low findings": COUNT,
}
"""Figures of a kernel, each with its units and their factors."""
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_SPACES = ("global", "shared", "local")
_KINDS: Mapping[str, Kind] = {"load": "load", "store": "store", "atomic": "atomic"}
_LEVELS: Mapping[str, Level] = {"ptx": "ptx", "sass": "sass"}
_CONDITION = re.compile(r"(?P<what>[^<>=!]*?)\s*(?P<how>[<>=!]=|[<>=])\s*(?P<limit>[^<>=!]*)")
_LIMIT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z%]*)")
_EXAMPLE = 'write, for example, "gelu: global load >= 128, spills = 0"'


@record
class AccessWidth:
    """The width of memory accesses; `level` None is PTX, or SASS where there is no PTX."""

    space: str
    kind: Kind
    level: Level | None = None
    in_loops: bool = False


@record
class Condition:
    """A quantity (an access width or the name of a figure) compared with a limit.

    The limit is in bits, bytes or %, or it is a count.
    """

    text: str
    quantity: AccessWidth | str
    comparison: str
    limit: float

    def holds(self, value: float) -> bool:
        """Whether a value meets the condition."""
        return _COMPARISONS[self.comparison](value, self.limit)


@record
class Expectation:
    """Conditions for the kernels that a name or a glob matches; `kernel` None means all."""

    text: str
    kernel: str | None
    conditions: tuple[Condition, ...]


def parse_expectation(text: str) -> Expectation:
    """Parse one expectation. Raises InputError that says which part of it is not understood."""
    # A mangled or C++ name may hold colons, a condition does not.
    name, colon, rest = text.rpartition(":")
    conditions = [part.strip() for part in rest.split(",")]
    if colon and not name.strip():
        raise _refused(text, "there is no kernel before the colon", _EXAMPLE)
    if not all(conditions):
        raise _refused(text, "a condition is missing", _EXAMPLE)
    parsed = tuple(_condition(condition, text) for condition in conditions)
    return Expectation(text.strip(), name.strip() or None, parsed)


def parse_all(texts: Sequence[str]) -> list[Expectation]:
    """Parse expectations; `@FILE` stands for those in a file, one per line, `#` for comments.

    Raises InputError if one is not understood or a file cannot be read or has none.
    """
    expected = []
    for text in texts:
        if not text.startswith("@"):
            expected.append(text)
            continue
        try:
            lines = Path(text[1:]).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            what = f"the expectations in {text[1:]} cannot be read: {reason}"
            raise InputError(what, "check the path") from None
        written = [line for row in lines if (line := row.partition("#")[0].strip())]
        if not written:
            raise InputError(f"{text[1:]} holds no expectation", _EXAMPLE)
        expected += written
    return [parse_expectation(text) for text in expected]


def _condition(text: str, whole: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if not match:
        what = f"{shortened(text)!r} is not a comparison of a quantity with a number"
        raise _refused(whole, what, _EXAMPLE)
    words = " ".join(match["what"].lower().split())
    quantity, units = _quantity(words, whole)
    limit = _LIMIT.fullmatch(match["limit"].strip())
    if not limit:
        what = f"{shortened(match['limit'].strip() or 'nothing')!r} is not a number"
        raise _refused(whole, what, f"compare {words} with one, such as {words} >= 1")
    factor = units.get(limit["unit"].lower())
    if factor is None:
        what = f"{limit['unit']!r} is not a unit of {words}"
        raise _refused(whole, what, f"its units: {', '.join(filter(None, units)) or 'none'}")
    text = " ".join(text.split())
    return Condition(text, quantity, match["how"], float(limit["number"]) * factor)


def _quantity(words: str, whole: str) -> tuple[AccessWidth | str, Mapping[str, int]]:
    if words in FIGURES:
        return words, FIGURES[words]
    parts = words.removesuffix(" in loops").split()
    level = _LEVELS.get(parts[0]) if parts else None
    place = parts[1:] if level else parts
    if len(place) == 2 and place[0] in _SPACES and place[1].removesuffix("s") in _KINDS:
        kind = _KINDS[place[1].removesuffix("s")]
        return AccessWidth(place[0], kind, level, words.endswith(" in loops")), BITS
    accesses = [f"{space} {kind}" for space in _SPACES for kind in _KINDS]
    known = suggestion(words, [*accesses, *FIGURES])
    raise _refused(whole, f"{shortened(words) or 'nothing'!r} is not a quantity of a kernel", known)


def _refused(whole: str, what: str, remedy: str) -> InputError:
    return InputError(f"expectation {shortened(whole)!r}: {what}", remedy)
