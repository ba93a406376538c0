"""Whether kernels meet expectations, and the values found in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from traceview import units
from traceview.findings import shortened
from traceview.inspect.expectations.grammar import (
    BYTES,
    FIGURES,
    PERCENT,
    AccessWidth,
    Condition,
    Expectation,
)
from traceview.inspect.kernel_report import KernelReport, line_name
from traceview.inspect.rules.vector_width.split_vectors import full_width_bits
from traceview.ptx.addresses.provenance import Provenance
from traceview.ptx.demangle import plain_name
from traceview.ptx.model import Access
from traceview.records import record

_MOST_PLACES = 3
_Verdict = tuple[bool, str, tuple[str, ...]]
"""Whether a condition is met, the value found, and the source lines of accesses that fail."""


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
    verdicts = []
    for expectation in expectations:
        matching = [kernel for kernel in kernels if _is_named(kernel, expectation.kernel)]
        for condition in expectation.conditions:
            texts = (expectation.text, condition.text)
            for kernel in matching:
                judged = _widths if isinstance(condition.quantity, AccessWidth) else _figure
                met, found, lines = judged(condition, kernel)
                verdicts.append(ExpectationResult(*texts, kernel.name, met, found, lines))
            if not matching:
                names = ", ".join(dict.fromkeys(shortened(kernel.name) for kernel in kernels))
                found = f"no kernel has this name; the target has {names or 'no kernel'}"
                name = expectation.kernel or "every kernel"
                verdicts.append(ExpectationResult(*texts, name, False, found))
    return tuple(verdicts)


def unmet(verdicts: Sequence[ExpectationResult]) -> list[str]:
    """A line per verdict that is not met; variants of a kernel that fail alike share a line."""
    return list(dict.fromkeys(str(verdict) for verdict in verdicts if not verdict.met))


def _is_named(kernel: KernelReport, pattern: str | None) -> bool:
    if pattern is None:
        return True
    names = (kernel.name, plain_name(kernel.name), kernel.short_name, kernel.demangled_name or "")
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def _figure(condition: Condition, kernel: KernelReport) -> _Verdict:
    name = str(condition.quantity)
    value = _FIGURE[name](kernel)
    if value is None:
        why = f" ({kernel.notes[0]})" if kernel.notes else ""
        return False, f"{name} not known{why}", ()
    if FIGURES[name] is BYTES or FIGURES[name] is PERCENT:
        found = units.quantity("bytes" if FIGURES[name] is BYTES else "_pct", value)
    else:
        whole = value == int(value)
        found = units.count(int(value)) if whole else units.quantity(name, value)
    return condition.holds(value), found, ()


def _widths(condition: Condition, kernel: KernelReport) -> _Verdict:
    """Whether all accesses of a kind are wide enough, the widths, and the lines that fail.

    Bulk copies (TMA) are always wide enough.
    """
    width = condition.quantity
    assert isinstance(width, AccessWidth)
    accesses = list(_matching(width, kernel))
    sized = [access for access in accesses if access.width_bits]
    failing = [a for a in sized if not condition.holds(a.width_bits or 0)]
    if not accesses:
        loops = " in loops" if width.in_loops else ""
        which = " that differs by thread" if width.space == "global" else ""
        return False, f"it has no {width.space} {width.kind}{loops}{which}", ()
    shown = sorted(failing or sized, key=lambda access: access.width_bits or 0)
    places = _places(shown) or "bulk copies (TMA)"
    full = full_width_bits(kernel.compiled.arch)
    too_wide = condition.comparison == ">=" and condition.limit > full
    if failing and width.space == "global" and too_wide:
        places += f"; {kernel.compiled.arch} moves at most {full} bits at once"
    return not failing, places, tuple(dict.fromkeys(line_name(a.source) for a in failing))


def _places(accesses: Sequence[Access]) -> str:
    """Widths with their lines, and the opcodes there: `32 bits at gelu.py:19 (8 × LDG.E)`."""
    opcodes: dict[str, Counter[str]] = defaultdict(Counter)
    for access in accesses:
        place = f"{access.width_bits} bits at {line_name(access.source)}"
        opcodes[place][access.opcode] += access.count
    listed = [
        f"{place} ({' + '.join(f'{count} × {opcode}' for opcode, count in counts.items())})"
        for place, counts in opcodes.items()
    ]
    more = len(listed) - _MOST_PLACES
    return ", ".join(listed[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


def _matching(width: AccessWidth, kernel: KernelReport) -> Iterator[Access]:
    """The accesses that a condition is about.

    A global access with the same address in all threads moves one value, and is left out.
    """
    level = width.level or ("ptx" if kernel.ptx else "sass")
    of_ptx = kernel.ptx if (level, width.space) == ("ptx", "global") else None
    provenance = Provenance.of(of_ptx, kernel.compiled.arguments) if of_ptx else None
    kinds = {width.kind, "async-copy"} if width.kind == "load" else {width.kind}
    if width.kind == "atomic":
        kinds.add("reduction")
    for access in kernel.accesses:
        meant = (access.level, access.space) == (level, width.space) and access.kind in kinds
        if not meant or (width.in_loops and not access.loop_depth):
            continue
        if provenance is not None and access.width_bits is not None:
            address = provenance.address(access)
            if not (address.per_thread or address.gathered or address.through_shared):
                continue
        yield access


def _findings(*severities: str) -> Callable[[KernelReport], float | None]:
    return lambda kernel: sum(finding.severity in severities for finding in kernel.findings)


_FIGURE: Mapping[str, Callable[[KernelReport], float | None]] = {
    "registers": lambda kernel: kernel.registers,
    "spills": lambda kernel: kernel.spill_bytes,
    "stack": lambda kernel: kernel.stack_bytes,
    "shared memory": lambda kernel: kernel.shared_memory_bytes,
    "occupancy": lambda kernel: (
        kernel.occupancy.theoretical_occupancy_pct if kernel.occupancy else None
    ),
    "blocks per sm": lambda kernel: kernel.occupancy.blocks_per_sm if kernel.occupancy else None,
    "waves": lambda kernel: kernel.waves,
    "warps": lambda kernel: kernel.compiled.num_warps,
    "stages": lambda kernel: kernel.compiled.num_stages,
    "elements per thread": lambda kernel: kernel.elements_per_thread,
    "barriers": lambda kernel: kernel.barriers,
    "shuffles": lambda kernel: kernel.shuffles,
    "tensor ops": lambda kernel: sum(op.count for op in kernel.tensor_ops),
    "findings": _findings("high", "medium", "low"),
    "high findings": _findings("high"),
    "medium findings": _findings("medium"),
    "low findings": _findings("low"),
}
