"""Findings of several versions of a kernel: which are the same, and which come or go."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from traceview.findings import SEVERITIES, Finding
from traceview.inspect.compare.matching import Matched, Rule, match
from traceview.inspect.kernel_report import source_of

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def match_findings(versions: Sequence[Sequence[Finding]]) -> tuple[Matched[Finding], ...]:
    """The findings, the worst first, each with its counterpart in each version or None.

    A finding is the same if it asks for the same at the same line, or failing that at another:
    its figures may differ.
    """
    rules: tuple[Rule[Finding], ...] = (
        Rule(lambda finding: (source_of(finding), _asked(finding)), in_order=True),
        Rule(_asked, in_order=True),
    )
    matched: list[Matched[Finding]] = match(versions, rules)
    return tuple(sorted(matched, key=_rank))


def _asked(finding: Finding) -> Hashable:
    return _NUMBER.sub("#", finding.action)


def _rank(findings: Matched[Finding]) -> int:
    return min(SEVERITIES.index(finding.severity) for finding in findings if finding)
