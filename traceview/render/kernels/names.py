"""Short names of source lines, and one sentence for a finding that variants of a kernel share.

Variants are what an autotuner or several launches compile of a kernel, and the instances of a
template of C++.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from traceview.base.findings import FIELD, Finding, filled
from traceview.base.records import record
from traceview.base.units import Value
from traceview.kernels.inspect.kernel_report import KernelReport, source_of
from traceview.kernels.ptx.model import SourceLine
from traceview.render.base.safe_text import shortened, shortened_apart

_MOST_CELLS = 41


@record
class SourceNames:
    """The shortest path endings that are unique in a report."""

    _names: Mapping[str, str]

    @classmethod
    def of(cls, kernels: Iterable[KernelReport]) -> SourceNames:
        """Names for the files that the accesses of these kernels come from."""
        accesses = (access for kernel in kernels for access in kernel.accesses)
        by_name: dict[str, list[str]] = defaultdict(list)
        for file in {access.source.file for access in accesses if access.source}:
            by_name[PurePath(file).name].append(file)
        names = {
            file: name if len(same) == 1 else _ending(file, same)
            for name, same in by_name.items()
            for file in same
        }
        short = shortened_apart(list(names.values()), _MOST_CELLS)
        return cls(dict(zip(names, short, strict=True)))

    def of_line(self, source: SourceLine | None) -> str:
        """The name of a line: `gelu.py:31`; `?` where unknown. Long names lose their middle."""
        if source is None:
            return "?"
        name = self._names.get(source.file)
        return f"{name or shortened(PurePath(source.file).name, _MOST_CELLS)}:{source.line}"


def _ending(file: str, others: Iterable[str]) -> str:
    """The shortest ending of the path that no other path has."""
    parts = PurePath(file).parts
    for count in range(2, len(parts)):
        ending = parts[-count:]
        if sum(PurePath(other).parts[-count:] == ending for other in others) == 1:
            return str(PurePath(*ending))
    return file


# A figure, but no part of a name or a place, as in stride_2 or gelu.py:31.
_NUMBER = re.compile(r"(?<![\w:.=-])\d+(?:[.,]\d+)*(?!\w)")


Shared = list[tuple[KernelReport, Finding]]
"""A finding on variants of a kernel, as each of them has it."""


def shared_findings(kernels: Iterable[KernelReport]) -> list[Shared]:
    """The findings on all kernels in order; what variants have alike but for numbers is one."""
    alike: dict[object, Shared] = defaultdict(list)
    for kernel in kernels:
        for finding in kernel.findings:
            template = _NUMBER.sub("#", finding.template)
            same = (finding.severity, template, finding.remedy, source_of(finding))
            alike[(kernel.family, *same)].append((kernel, finding))
    return list(alike.values())


def message_of(findings: Sequence[Finding]) -> str:
    """The message of findings alike but for numbers, with ranges: `moves 4.10 to 16.4 kB`."""
    templates = dict.fromkeys(finding.template for finding in findings)
    return _with_ranges([_ranged(template, findings) for template in templates])


def action_of(findings: Sequence[Finding]) -> str:
    """The action of findings with one remedy, with ranges of its figures."""
    return _ranged(findings[0].remedy, findings)


def basis_of(findings: Sequence[Finding], names: Sequence[str]) -> str:
    """The common basis; if bases differ, the first one with its variant's name."""
    bases = [finding.evidence.basis for finding in findings]
    return bases[0] if len(set(bases)) == 1 else f"{names[0]}: {bases[0]}"


def _ranged(template: str, findings: Sequence[Finding]) -> str:
    variants = [finding.evidence.values for finding in findings]
    return FIELD.sub(lambda field: _range(field, variants), template)


def _range(field: re.Match[str], variants: Sequence[Mapping[str, Value]]) -> str:
    """One text for a field of all variants, with its range from least to greatest."""
    values_of = {filled(field[0], values): values.get(field[1]) for values in variants}
    if len({_NUMBER.sub("#", text) for text in values_of}) == 1:
        return _with_ranges(list(values_of))
    if any(isinstance(value, str) for value in values_of.values()):
        return " or ".join(values_of)
    texts = sorted(values_of, key=lambda text: _order(values_of[text]))
    count = _NUMBER.match(texts[0])
    # Write a counted noun once: 1 to 4 atomics.
    return f"{count[0] if count and field[2] is not None else texts[0]} to {texts[-1]}"


def _order(value: Value) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _with_ranges(texts: Sequence[str]) -> str:
    """Merge texts that differ only in numbers, with ranges: `16 to 64 × 32 bits`."""
    columns = iter(zip(*map(_NUMBER.findall, texts), strict=True))

    def both(_: re.Match[str]) -> str:
        numbers = sorted(next(columns), key=lambda text: float(text.replace(",", "")))
        return numbers[0] if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"

    return _NUMBER.sub(both, texts[0])
