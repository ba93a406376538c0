"""Versions of kernels side by side: what is equal, what differs, which findings come and go.

Compares finished reports; versions.py plans the versions to compile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from traceview import display
from traceview.errors import InputError
from traceview.findings import Finding
from traceview.inspect.compare import lines, matching
from traceview.inspect.compare.versions import option_label
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.target_report import PtxReport
from traceview.records import record

_MOST_NAMES = 6
Value = int | float | str | None


@record
class ComparedVersion:
    """One side of a comparison with its label: `4` of `--num-warps`, `old.ptx`."""

    label: str
    report: PtxReport


@record
class Quantity:
    """One property of a kernel, with its value in each version; None where unknown."""

    topic: str
    name: str
    values: tuple[Value, ...]

    @property
    def differs(self) -> bool:
        """Whether any two versions have different values."""
        return len(set(self.values)) > 1


@record
class Comparison:
    """One kernel in all versions.

    `findings` has one tuple per finding, with None for each version that does not have it.
    """

    kernels: tuple[KernelReport, ...]
    quantities: tuple[Quantity, ...]
    moves: tuple[lines.PlaceAccesses, ...]
    findings: tuple[tuple[Finding | None, ...], ...]

    @property
    def name(self) -> str:
        """The kernel's name; all its names where the versions differ."""
        return " → ".join(dict.fromkeys(kernel.name for kernel in self.kernels))

    @property
    def short_name(self) -> str:
        """The kernel's short C++ name; all its short names where the versions differ."""
        return " → ".join(dict.fromkeys(kernel.short_name for kernel in self.kernels))


@dataclass(frozen=True, repr=False)
class Diff(display.Described):
    """Versions and the comparison of each kernel.

    `option` is the one that varies (`--num-warps`), None between targets. `left_out` are the
    kernels without a counterpart in every version, each with the number of its version.
    """

    option: str | None
    versions: tuple[ComparedVersion, ...]
    comparisons: tuple[Comparison, ...]
    left_out: tuple[tuple[int, KernelReport], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The full labels of the versions: `--num-warps 4`."""
        return tuple(option_label(self.option, version.label) for version in self.versions)


def compare(
    versions: Sequence[ComparedVersion],
    option: str | None = None,
    varied: frozenset[str] = frozenset(),
) -> Diff:
    """Put versions side by side. `varied` is as in `match_kernels`.

    Raises InputError if no kernel has a counterpart in every version.
    """
    comparisons, left_out = [], []
    for row in matching.match_kernels([version.report.kernels for version in versions], varied):
        kernels = tuple(kernel for kernel in row if kernel)
        if len(kernels) < len(row):
            left_out += [(version, kernel) for version, kernel in enumerate(row) if kernel]
            continue
        quantities, findings = tuple(_quantities(kernels)), [kernel.findings for kernel in kernels]
        matched = matching.match_findings(findings)
        accesses = lines.compared_lines(kernels)
        comparisons.append(Comparison(kernels, quantities, accesses, matched))
    if not comparisons:
        sides = []
        for version in versions:
            names = list(dict.fromkeys(kernel.name[:80] for kernel in version.report.kernels))
            more = " …" if len(names) > _MOST_NAMES else ""
            sides.append(f"{version.label} has {', '.join(names[:_MOST_NAMES])}{more}")
        what = f"no kernel has the same name and configuration in all versions: {'; '.join(sides)}"
        raise InputError(what, "name one kernel of each: --diff A:kernel B:kernel")
    return Diff(option, tuple(versions), tuple(comparisons), tuple(left_out))


def _quantities(kernels: Sequence[KernelReport]) -> Iterator[Quantity]:
    """The properties of a kernel that are a word or a number, if any version knows them.

    Instruction counts are left out if some versions have PTX and others only SASS.
    """
    counted = len({kernel.ptx is None for kernel in kernels}) == 1
    for topic, properties in _TOPICS.items():
        if topic in _COUNTED and not counted:
            continue
        versions = [properties(kernel) for kernel in kernels]
        absent = 0 if topic in _COUNTED else None
        for name in dict.fromkeys(name for values in versions for name in values):
            values = tuple(figures.get(name, absent) for figures in versions)
            if any(value is not None for value in values):
                yield Quantity(topic, name, values)


def _launch(kernel: KernelReport) -> dict[str, Value]:
    compiled = kernel.compiled
    grid = " × ".join(f"{size:,}" for size in compiled.grid) if compiled.grid else None
    return {
        "arch": compiled.arch,
        "how": compiled.how,
        "grid": grid,
        "num_warps": compiled.num_warps,
        "num_stages": compiled.num_stages,
    }


def _arguments(kernel: KernelReport) -> dict[str, Value]:
    """The argument types; `:16` marks those known to be divisible by 16."""
    return {
        a.name: f"{a.type}:16" if a.divisible_by_16 else a.type
        for a in kernel.compiled.arguments
        if a.type != "constexpr"
    }


def _resources(kernel: KernelReport) -> dict[str, Value]:
    occupancy = kernel.occupancy
    return {
        "registers": kernel.registers,
        "spill_bytes": kernel.spill_bytes,
        "stack_bytes": kernel.stack_bytes,
        "shared_memory_bytes": kernel.shared_memory_bytes,
        "theoretical_occupancy_pct": occupancy.theoretical_occupancy_pct if occupancy else None,
        "blocks_per_sm": occupancy.blocks_per_sm if occupancy else None,
        "limited_by": " and ".join(occupancy.limiters) if occupancy else None,
        "waves": kernel.waves,
        "elements_per_thread": kernel.elements_per_thread,
    }


def _instructions(kernel: KernelReport) -> dict[str, Value]:
    mix = kernel.instruction_mix
    return {"all": sum(mix.values()), **mix} if mix else {}


def _tensor_ops(kernel: KernelReport) -> dict[str, Value]:
    counts: Counter[str] = Counter()
    for op in kernel.tensor_ops:
        counts[" ".join(filter(None, (op.operation, op.shape, *op.types)))] += op.count
    return dict(counts)


_TOPICS: dict[str, Callable[[KernelReport], Mapping[str, Value]]] = {
    "launch": _launch,
    "constexprs": lambda kernel: {
        a.name: str(a.value) for a in kernel.compiled.arguments if a.type == "constexpr"
    },
    "arguments": _arguments,
    "resources": _resources,
    "instructions": _instructions,
    "tensor cores": _tensor_ops,
    "between threads": lambda kernel: {"barriers": kernel.barriers, "shuffles": kernel.shuffles},
}
_COUNTED = ("instructions", "tensor cores", "between threads")
"""Topics in which an absent name means a count of zero."""


def same_code(comparison: Comparison) -> bool:
    """Whether the PTX of the kernel is the same text in all versions."""
    # A PTX text may hold several kernels: those of other names are not the same code.
    first, *others = ((kernel.name, kernel.compiled.ptx) for kernel in comparison.kernels)
    return first[1] is not None and all(other == first for other in others)
