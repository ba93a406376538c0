"""The possible saving of a finding as text: an amount, its whole, and the speed-up."""

from __future__ import annotations

from traceview import units
from traceview.findings import Finding, Forecast, Saving, shortened
from traceview.records import record

LEAST_SPEEDUP = 1.1
"""Least speed-up to show: a smaller one adds nothing to the time saved."""
QUALIFIERS: dict[Saving, str] = {"at-most": "up to", "about": "about", "at-least": "at least"}
PARTIAL = "part of"
"""Qualifier of a general loss listed behind a smaller one: one change seldom saves all of it."""


@record
class Claim:
    """A saving such as `up to` `12.3 ms` `of 20.3 ms per step`, `60.7 %`, `2.5× as fast`.

    Without steps, or if the time is lost outside them, the amount refers to the steady time: `of`
    is `of 2.63 ms after warm-up`. Without a forecast `of` is empty, and `share` includes its whole:
    `13.9 % of the time after warm-up`. If a few steps take most of the time, all refer to an
    average step. `sum` combines `amount` and `of`, in one unit if possible: `12.3 of 20.3 ms per
    step`.
    """

    qualifier: str
    amount: str
    of: str = ""
    sum: str = ""
    share: str = ""
    speedup: str = ""

    def parts(self) -> list[str]:
        """The claim in parts for one line, most important first: `save up to 12.3 of 20.3 ms …`."""
        share = f" ({self.share})" if self.share else ""
        saved = f"save {self.qualifier} {self.sum}{share}"
        return [part for part in (saved, self.speedup) if part]

    def below(self) -> list[str]:
        """The one or two lines below the amount."""
        lines = (self.of, self.share, self.speedup)
        if self.of:
            lines = (self.of, " · ".join(part for part in lines[1:] if part), "")
        return [line for line in lines if line]


def claim(finding: Finding, forecast: Forecast | None = None) -> Claim | None:
    """The possible saving of a finding; None if it claims none."""
    at_stake, share = finding.time_at_stake_ns, finding.share_of_step_pct
    if not at_stake:
        return None
    lead = QUALIFIERS[forecast.saving if forecast else finding.saving]
    lead = PARTIAL if forecast and forecast.is_partial else lead
    if forecast and forecast.saved_per_step_ns is not None and forecast.step_ns:
        saved, step = forecast.saved_per_step_ns, forecast.step_ns
        on_average = " on average" if forecast.is_mean else ""
        per = f"per {shortened(forecast.loop) or 'step'}{on_average}"
        return _of_whole(lead, (saved, step), per, share, forecast)
    if forecast and forecast.share_of_run_pct:
        share = forecast.share_of_run_pct
        steady = round(100.0 * at_stake / share)
        return _of_whole(lead, (at_stake, steady), "after warm-up", share, forecast)
    amount = units.duration(at_stake)
    of_steady = "" if share is None else f"{units.percent(share)} of the time after warm-up"
    return Claim(lead, amount, "", amount, of_steady, _speedup(forecast))


def _of_whole(
    lead: str, part_of_ns: tuple[int, int], which: str, share: float | None, forecast: Forecast
) -> Claim:
    """The claim of a part of a whole, both in ns; `which` says of which whole: `per step`."""
    part_ns, whole_ns = part_of_ns
    return Claim(
        lead,
        units.duration(part_ns),
        f"of {units.duration(whole_ns)} {which}",
        f"{units.part_of(part_ns, whole_ns)} {which}",
        units.percent(share),
        _speedup(forecast),
    )


def _speedup(forecast: Forecast | None) -> str:
    """The speed-up, such as `1.6× as fast`; empty below LEAST_SPEEDUP, or for a partial loss."""
    factor = forecast.speedup_at_most if forecast and not forecast.is_partial else None
    if factor is None or factor < LEAST_SPEEDUP:
        return ""
    return f"{units.quantity('speedup_factor', factor)} as fast"
