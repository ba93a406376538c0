"""The saving that a finding claims, as text."""

from __future__ import annotations

from traceview import units
from traceview.findings import Finding


def saving(finding: Finding, whole: str) -> tuple[str, str]:
    """The time that a finding can save and its share, such as `147 ms` and `38.2 % of a step`.

    Either is empty where the finding claims none.
    """
    at_stake, share = finding.time_at_stake_ns, finding.share_of_step_pct
    if not at_stake:
        return "", ""
    return units.duration(at_stake), "" if share is None else f"{units.percent(share)} of {whole}"
