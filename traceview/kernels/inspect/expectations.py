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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from traceview.base import units
from traceview.base.errors import InputError, suggestion
from traceview.base.findings import shortened
from traceview.base.records import record
from traceview.kernels.inspect.kernel_report import KernelReport, line_name
from traceview.kernels.inspect.rules.global_memory import full_width_bits
from traceview.kernels.ptx.addresses.slicing import Provenance
from traceview.kernels.ptx.model import Access, Kind, Level
from traceview.kernels.ptx.producers import plain_name

BYTES = {"": 1, "b": 1, "byte": 1, "bytes": 1, "kb": 1000, "kib": 1024}
PERCENT = {"": 1, "%": 1}
BITS = {"": 1, "bit": 1, "bits": 1}
COUNT = {"": 1}


def _findings(*severities: str) -> Callable[[KernelReport], float | None]:
    return lambda kernel: sum(each.severity in severities for each in kernel.findings)


Figure = tuple[Mapping[str, int], Callable[[KernelReport], float | None]]
FIGURES: Mapping[str, Figure] = {
    "registers": (COUNT, lambda kernel: kernel.registers),
    "spills": (BYTES, lambda kernel: kernel.spill_bytes),
    "stack": (BYTES, lambda kernel: kernel.stack_bytes),
    "shared memory": (BYTES, lambda kernel: kernel.shared_memory_bytes),
    "occupancy": (
        PERCENT,
        lambda kernel: kernel.occupancy.theoretical_occupancy_pct if kernel.occupancy else None,
    ),
    "blocks per sm": (
        COUNT,
        lambda kernel: kernel.occupancy.blocks_per_sm if kernel.occupancy else None,
    ),
    "waves": (COUNT, lambda kernel: kernel.waves),
    "warps": (COUNT, lambda kernel: kernel.compiled.num_warps),
    "stages": (COUNT, lambda kernel: kernel.compiled.num_stages),
    "elements per thread": (COUNT, lambda kernel: kernel.elements_per_thread),
    "barriers": (COUNT, lambda kernel: kernel.barriers),
    "shuffles": (COUNT, lambda kernel: kernel.shuffles),
    "tensor ops": (COUNT, lambda kernel: sum(op.count for op in kernel.tensor_ops)),
    "findings": (COUNT, _findings("high", "medium", "low")),
    "high findings": (COUNT, _findings("high")),
    "medium findings": (COUNT, _findings("medium")),
    "low findings": (COUNT, _findings("low")),
}
"""Figures of a kernel, each with its units and their factors, and how a report has it."""
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
    return [parse_expectation(line) for text in texts for line in _lines(text)]


def _lines(text: str) -> Iterator[str]:
    if not text.startswith("@"):
        yield text
        return
    try:
        lines = Path(text[1:]).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(
            f"the expectations in {text[1:]} cannot be read: {reason}", "check the path"
        ) from None
    expected = [line.partition("#")[0].strip() for line in lines]
    if not any(expected):
        raise InputError(f"{text[1:]} holds no expectation", _EXAMPLE)
    yield from filter(None, expected)


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
        known = ", ".join(unit for unit in units if unit) or "none"
        what = f"{limit['unit']!r} is not a unit of {words}"
        raise _refused(whole, what, f"its units: {known}")
    text = " ".join(text.split())
    return Condition(text, quantity, match["how"], float(limit["number"]) * factor)


def _quantity(words: str, whole: str) -> tuple[AccessWidth | str, Mapping[str, int]]:
    if words in FIGURES:
        return words, FIGURES[words][0]
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


_MOST_PLACES = 3


@record
class ExpectationResult:
    """Whether one kernel meets one condition.

    `kernel` is its name, or that of the expectation if no kernel has it. `found` is the value
    found, and `sources` are the source lines of accesses that fail.
    """

    expectation: str
    condition: str
    kernel: str
    met: bool
    found: str
    sources: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{shortened(self.kernel)}: {self.condition}: {self.found}"


def judge(
    expectations: Sequence[Expectation], kernels: Sequence[KernelReport]
) -> tuple[ExpectationResult, ...]:
    """A verdict per condition and matching kernel; a name that matches no kernel is not met."""
    return tuple(verdict for each in expectations for verdict in _judged(each, kernels))


def unmet(verdicts: Sequence[ExpectationResult]) -> list[str]:
    """A line per verdict that is not met; variants of a kernel that fail alike share a line."""
    return list(dict.fromkeys(str(verdict) for verdict in verdicts if not verdict.met))


def _judged(
    expectation: Expectation, kernels: Sequence[KernelReport]
) -> Iterator[ExpectationResult]:
    matching = [k for k in kernels if _is_named(k, expectation.kernel)]
    for condition in expectation.conditions:
        for kernel in matching:
            yield _verdict(expectation, condition, kernel)
        if not matching:
            names = ", ".join(dict.fromkeys(shortened(kernel.name) for kernel in kernels))
            found = f"no kernel has this name; the target has {names or 'no kernel'}"
            name = expectation.kernel or "every kernel"
            yield ExpectationResult(expectation.text, condition.text, name, False, found)


def _is_named(kernel: KernelReport, pattern: str | None) -> bool:
    if pattern is None:
        return True
    names = (kernel.name, plain_name(kernel.name), kernel.short_name, kernel.demangled_name or "")
    return pattern in names or any(fnmatchcase(each, pattern) for each in names)


def _verdict(
    expectation: Expectation, condition: Condition, kernel: KernelReport
) -> ExpectationResult:
    if isinstance(condition.quantity, AccessWidth):
        met, found, sources = _widths(condition, condition.quantity, kernel)
    else:
        met, found, sources = _figure(condition, condition.quantity, kernel)
    return ExpectationResult(expectation.text, condition.text, kernel.name, met, found, sources)


def _figure(
    condition: Condition, name: str, kernel: KernelReport
) -> tuple[bool, str, tuple[str, ...]]:
    value = FIGURES[name][1](kernel)
    if value is None:
        why = f" ({kernel.notes[0]})" if kernel.notes else ""
        return False, f"{name} not known{why}", ()
    return condition.holds(value), _figure_text(name, value), ()


def _figure_text(name: str, value: float) -> str:
    if FIGURES[name][0] is BYTES:
        return units.quantity("bytes", value)
    if FIGURES[name][0] is PERCENT:
        return units.quantity("_pct", value)
    return units.count(int(value)) if value == int(value) else units.quantity(name, value)


def _widths(
    condition: Condition, wanted: AccessWidth, kernel: KernelReport
) -> tuple[bool, str, tuple[str, ...]]:
    """Whether all accesses of a kind are wide enough, the widths, and the lines that fail.

    Bulk copies (TMA) are always wide enough.
    """
    accesses = list(_matching(wanted, kernel))
    sized = [access for access in accesses if access.width_bits]
    failing = [a for a in sized if not condition.holds(a.width_bits or 0)]
    if not accesses:
        loops = " in loops" if wanted.in_loops else ""
        which = " that differs by thread" if wanted.space == "global" else ""
        return False, f"it has no {wanted.space} {wanted.kind}{loops}{which}", ()
    shown = sorted(failing or sized, key=lambda access: access.width_bits or 0)
    sources = tuple(dict.fromkeys(line_name(access.source) for access in failing))
    places = _places(shown) or "bulk copies (TMA)"
    full = full_width_bits(kernel.compiled.arch)
    if (
        failing
        and wanted.space == "global"
        and condition.comparison == ">="
        and condition.limit > full
    ):
        places += f"; {kernel.compiled.arch} moves at most {full} bits at once"
    return not failing, places, sources


def _places(accesses: Sequence[Access]) -> str:
    """Widths with their lines, and the opcodes there: `32 bits at gelu.py:19 (8 × LDG.E)`."""
    opcodes: dict[str, Counter[str]] = defaultdict(Counter)
    for access in accesses:
        place = f"{access.width_bits} bits at {line_name(access.source)}"
        opcodes[place][access.opcode] += access.count
    places = [
        f"{place} ({' + '.join(f'{count} × {opcode}' for opcode, count in listed.items())})"
        for place, listed in opcodes.items()
    ]
    return units.first(places, _MOST_PLACES)


def _matching(wanted: AccessWidth, kernel: KernelReport) -> Iterator[Access]:
    """The accesses that a condition is about.

    A global access with the same address in all threads moves one value, and is left out.
    """
    level = wanted.level or ("ptx" if kernel.ptx else "sass")
    of_ptx = kernel.ptx if (level, wanted.space) == ("ptx", "global") else None
    provenance = Provenance.of(of_ptx, kernel.compiled.arguments) if of_ptx else None
    kinds = {wanted.kind, "async-copy"} if wanted.kind == "load" else {wanted.kind}
    if wanted.kind == "atomic":
        kinds.add("reduction")
    for access in kernel.accesses:
        meant = (access.level, access.space) == (level, wanted.space) and access.kind in kinds
        if not meant or (wanted.in_loops and not access.loop_depth):
            continue
        if provenance is None or access.width_bits is None or _differs(access, provenance):
            yield access


def _differs(access: Access, provenance: Provenance) -> bool:
    address = provenance.address(access)
    return address.per_thread or address.gathered or address.through_shared
