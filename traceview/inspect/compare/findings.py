"""Findings of several versions of a kernel: which are the same, which appear, which vanish."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from traceview.findings import SEVERITIES, Finding
from traceview.inspect.compare.matching import Matched, MatchRule, match
from traceview.inspect.kernel_report import source_of

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def match_findings(versions: Sequence[Sequence[Finding]]) -> tuple[Matched[Finding], ...]:
    """The findings, the worst first, each with its counterpart in each version or None.

    Two findings are the same if their remedies differ only in numbers: first on the same line,
    then on any line.
    """
    rules: tuple[MatchRule[Finding], ...] = (
        MatchRule(lambda finding: (source_of(finding), _remedy(finding)), in_order=True),
        MatchRule(_remedy, in_order=True),
    )
    matched: list[Matched[Finding]] = match(versions, rules)
    return tuple(sorted(matched, key=_rank))


def _remedy(finding: Finding) -> Hashable:
    return _NUMBER.sub("#", finding.action)


def _rank(findings: Matched[Finding]) -> int:
    return min(SEVERITIES.index(finding.severity) for finding in findings if finding)
