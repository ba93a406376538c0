"""Versions of kernels side by side: what is equal, what differs, which findings come and go."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from traceview.base import display, units
from traceview.base.errors import InputError
from traceview.base.findings import SEVERITIES, Finding
from traceview.base.records import record
from traceview.kernels.inspect import matching
from traceview.kernels.inspect.kernel_report import KernelReport, source_of
from traceview.kernels.inspect.target_report import PtxReport

MOST = 4
"""The most versions that fit side by side."""

_TOO_FEW = ("no version to compare", "only one version to compare")
_OPTIONS = {
    "kernel": "--kernel",
    "arch": "--arch",
    "signature": "--signature",
    "num_warps": "--num-warps",
    "num_stages": "--num-stages",
}


@record
class VersionRequest:
    """One version: its target, its options, and its label."""

    label: str
    target: str
    options: Mapping[str, Any]


@record
class Plan:
    """What to compare. `option` is the one that varies; None between targets.

    `varied` names the parts of a kernel's configuration that kernels are not matched by.
    """

    option: str | None
    varied: frozenset[str]
    versions: tuple[VersionRequest, ...]

    def named(self, version: VersionRequest) -> str:
        """A version as on the command line: `--num-warps 4`, `--constexpr BLOCK=256`."""
        return option_label(self.option, version.label)


def option_label(option: str | None, label: str) -> str:
    """A version's label, after the option whose value it is."""
    if option is None:
        return label
    return f"{option}{'=' if option.startswith('--constexpr') else ' '}{label}"


@record
class _VariedOption:
    """An option with several values, by its name on the command line and in Python."""

    option: str
    name: str
    is_constexpr: bool
    values: tuple[Any, ...]

    def one(self, options: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
        """The options with one of the values."""
        if not self.is_constexpr:
            return {**options, self.name: value}
        return {**options, "constexprs": {**options["constexprs"], self.name: value}}


def plan(targets: Sequence[str], options: Mapping[str, Any]) -> Plan:
    """The versions to compare; an option or a constexpr whose value is a list varies.

    Raises InputError unless targets, or one option, give two to four versions.
    """
    varied = list(_varied(options))
    if varied and len(targets) != 1:
        number = units.counted(len(targets), "target")
        what = f"{varied[0].option} has several values, and there are {number}"
        raise InputError(what, "vary one option of one target, or compare targets without it")
    if len(varied) > 1:
        what = f"{varied[0].option} and {varied[1].option} both have several values"
        raise InputError(what, "vary one option at a time")
    result = _of_option(targets[0], options, varied[0]) if varied else _of_targets(targets, options)
    count = len(result.versions)
    if not 1 < count <= MOST:
        what = f"{count} versions are too many to compare" if count > 1 else _TOO_FEW[count]
        raise InputError(what, f"give two targets, or two to {MOST} different values of an option")
    return result


def _varied(options: Mapping[str, Any]) -> Iterator[_VariedOption]:
    for name, written in _OPTIONS.items():
        if isinstance(value := options.get(name), list | tuple):
            yield _VariedOption(written, name, False, tuple(dict.fromkeys(value)))
    for name, value in (options.get("constexprs") or {}).items():
        if isinstance(value, list | tuple):
            yield _VariedOption(f"--constexpr {name}", name, True, tuple(dict.fromkeys(value)))


def _of_targets(targets: Sequence[str], options: Mapping[str, Any]) -> Plan:
    # The names of files without their folders, if these differ.
    short = [PurePath(target).name for target in targets]
    labels = short if len(set(short)) == len(short) and all(short) else targets
    versions = (VersionRequest(*each, options) for each in zip(labels, targets, strict=True))
    return Plan(None, frozenset(), tuple(versions))


def _of_option(target: str, options: Mapping[str, Any], varied: _VariedOption) -> Plan:
    versions = (VersionRequest(str(v), target, varied.one(options, v)) for v in varied.values)
    return Plan(varied.option, frozenset({varied.name}), tuple(versions))


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def match_findings(versions: Sequence[Sequence[Finding]]) -> tuple[matching.Matched[Finding], ...]:
    """The findings, the worst first, each with its counterpart in each version or None.

    Two findings are the same if their remedies differ only in numbers: first on the same line,
    then on any line.
    """
    rules: tuple[matching.MatchRule[Finding], ...] = (
        matching.MatchRule(lambda finding: (source_of(finding), _remedy(finding)), in_order=True),
        matching.MatchRule(_remedy, in_order=True),
    )
    matched: list[matching.Matched[Finding]] = matching.match(versions, rules)
    return tuple(
        sorted(matched, key=lambda same: min(SEVERITIES.index(f.severity) for f in same if f))
    )


def _remedy(finding: Finding) -> Hashable:
    return _NUMBER.sub("#", finding.action)


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
    moves: tuple[matching.PlaceAccesses, ...]
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
    matched = matching.match_kernels([version.report.kernels for version in versions], varied)
    whole = [_whole(kernels) for kernels in matched]
    if not any(whole):
        raise InputError(*_nothing_in_common(versions))
    return Diff(
        option,
        tuple(versions),
        tuple(
            Comparison(
                kernels,
                tuple(_quantities(kernels)),
                matching.compared_lines(kernels),
                match_findings([kernel.findings for kernel in kernels]),
            )
            for kernels in whole
            if kernels
        ),
        tuple(
            (version, kernel)
            for kernels in matched
            if not _whole(kernels)
            for version, kernel in enumerate(kernels)
            if kernel
        ),
    )


def _whole(kernels: Sequence[KernelReport | None]) -> tuple[KernelReport, ...] | None:
    """The kernels, if there is one of each version."""
    present = tuple(kernel for kernel in kernels if kernel)
    return present if len(present) == len(kernels) else None


def _nothing_in_common(versions: Sequence[ComparedVersion]) -> tuple[str, str]:
    each = (
        f"{version.label} has {_listed(k.name for k in version.report.kernels)}"
        for version in versions
    )
    what = f"no kernel has the same name and configuration in all versions: {'; '.join(each)}"
    return what, "name one kernel of each: --diff A:kernel B:kernel"


def _listed(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(name[:80] for name in names))
    return ", ".join(each[:_MOST_NAMES]) + (" …" if len(each) > _MOST_NAMES else "")


def _quantities(kernels: Sequence[KernelReport]) -> Iterator[Quantity]:
    """The properties of a kernel that are a word or a number, if any version knows them.

    Instruction counts are left out if some versions have PTX and others only SASS.
    """
    counted = len({kernel.ptx is None for kernel in kernels}) == 1
    topics = [_topics(kernel) for kernel in kernels]
    for topic in topics[0]:
        if topic in _COUNTED and not counted:
            continue
        versions = [version[topic] for version in topics]
        absent = 0 if topic in _COUNTED else None
        for name in dict.fromkeys(name for values in versions for name in values):
            values = tuple(each.get(name, absent) for each in versions)
            if any(value is not None for value in values):
                yield Quantity(topic, name, values)


def _topics(kernel: KernelReport) -> dict[str, Mapping[str, Value]]:
    compiled, occupancy, mix = kernel.compiled, kernel.occupancy, kernel.instruction_mix
    typed = [a for a in compiled.arguments if a.type != "constexpr"]
    return {
        "launch": {
            "arch": compiled.arch,
            "how": compiled.how,
            "grid": " × ".join(f"{size:,}" for size in compiled.grid) if compiled.grid else None,
            "num_warps": compiled.num_warps,
            "num_stages": compiled.num_stages,
        },
        "constexprs": {a.name: str(a.value) for a in compiled.arguments if a.type == "constexpr"},
        # `:16` marks arguments known to be divisible by 16.
        "arguments": {a.name: f"{a.type}:16" if a.divisible_by_16 else a.type for a in typed},
        "resources": {
            "registers": kernel.registers,
            "spill_bytes": kernel.spill_bytes,
            "stack_bytes": kernel.stack_bytes,
            "shared_memory_bytes": kernel.shared_memory_bytes,
            "theoretical_occupancy_pct": occupancy.theoretical_occupancy_pct if occupancy else None,
            "blocks_per_sm": occupancy.blocks_per_sm if occupancy else None,
            "limited_by": " and ".join(occupancy.limiters) if occupancy else None,
            "waves": kernel.waves,
            "elements_per_thread": kernel.elements_per_thread,
        },
        "instructions": {"all": sum(mix.values()), **mix} if mix else {},
        "tensor cores": kernel.counted_tensor_ops,
        "between threads": {"barriers": kernel.barriers, "shuffles": kernel.shuffles},
    }


_COUNTED = ("instructions", "tensor cores", "between threads")
"""Topics in which an absent name means a count of zero."""


def same_code(comparison: Comparison) -> bool:
    """Whether the PTX of the kernel is the same text in all versions."""
    # A PTX text may hold several kernels: those of other names are not the same code.
    first, *others = ((kernel.name, kernel.compiled.ptx) for kernel in comparison.kernels)
    return first[1] is not None and all(other == first for other in others)
