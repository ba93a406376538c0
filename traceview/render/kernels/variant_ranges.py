"""A finding that several variants of a kernel share: one sentence with ranges of figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from traceview.findings import FIELD, Finding, filled
from traceview.units import Value

# A figure, but no part of a name or a place, as in stride_2 or gelu.py:31.
_NUMBER = re.compile(r"(?<![\w:.=-])\d+(?:[.,]\d+)*(?!\w)")


def message_of(findings: Sequence[Finding]) -> str:
    """The message of findings with one template, with ranges: `moves 4.10 to 16.4 kB`."""
    return _ranged(findings[0].template, findings)


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


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _with_ranges(texts: Sequence[str]) -> str:
    """Merge texts that differ only in numbers, with ranges: `16 to 64 × 32 bits`."""
    columns = iter(zip(*map(_NUMBER.findall, texts), strict=True))

    def both(_: re.Match[str]) -> str:
        numbers = sorted(next(columns), key=_number)
        return numbers[0] if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"

    return _NUMBER.sub(both, texts[0])
