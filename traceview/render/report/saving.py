"""The saving that a finding claims, and the forecast for it, as text."""

from __future__ import annotations

from traceview import units
from traceview.findings import Finding, Forecast, Saving, shortened

LEAST_SPEEDUP = 1.05
"""A smaller one says no more than the time saved."""
QUALIFIERS: dict[Saving, str] = {"at-most": "at most", "about": "about", "at-least": "at least"}
CAN_SAVE: dict[Saving, str] = {
    "at-most": "can save up to",
    "about": "can save about",
    "at-least": "can save at least",
}
PARTIAL = "one change seldom saves all of it"


def saving(finding: Finding, whole: str, forecast: Forecast | None = None) -> tuple[str, str]:
    """The time that a finding can save and its share, such as `147 ms` and `38.2 % of a step`.

    Time outside the steps is a share of the run. Either is empty where the finding claims none.
    """
    at_stake, share = finding.time_at_stake_ns, finding.share_of_step_pct
    if share is None and forecast:
        share, whole = forecast.share_of_run_pct, "the run"
    if not at_stake:
        return "", ""
    return units.duration(at_stake), "" if share is None else f"{units.percent(share)} of {whole}"


def forecast_text(forecast: Forecast | None) -> str:
    """A forecast such as `at most 4.75 of 12.4 ms per step; at most 1.6× as fast`.

    `about` or `at least` stands for `at most` where it is an estimate or the least. Empty for none.
    """
    amounts = (saved_per_step(forecast), speedup(forecast))
    parts = [f"{qualifier(forecast)} {amount}" for amount in amounts if amount]
    if forecast and forecast.is_partial:
        parts.append(PARTIAL)
    return "; ".join(parts)


def qualifier(forecast: Forecast | None) -> str:
    """The qualifier before the time or factor of a forecast."""
    return QUALIFIERS[forecast.saving if forecast else "at-most"]


def saved_per_step(forecast: Forecast | None) -> str:
    """Such as `4.75 of 12.4 ms per step`; empty without steps. Another loop is named."""
    if forecast is None or forecast.saved_per_step_ns is None or not forecast.step_ns:
        return ""
    per = shortened(forecast.loop) or "step"
    return f"{units.part_of(forecast.saved_per_step_ns, forecast.step_ns)} per {per}"


def speedup(forecast: Forecast | None) -> str:
    """Such as `1.6× as fast`; empty for less than LEAST_SPEEDUP."""
    factor = forecast.speedup_at_most if forecast else None
    if factor is None or factor < LEAST_SPEEDUP:
        return ""
    return f"{units.quantity('speedup_factor', factor)} as fast"
