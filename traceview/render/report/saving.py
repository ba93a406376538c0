"""What acting on a finding can save, as text: an amount, the time it is of, and the speed-up."""

from __future__ import annotations

from traceview import units
from traceview.findings import Finding, Forecast, Saving, shortened
from traceview.records import record

LEAST_SPEEDUP = 1.1
"""A smaller one says no more than the time saved."""
QUALIFIERS: dict[Saving, str] = {"at-most": "up to", "about": "about", "at-least": "at least"}
PARTIAL = "part of"
"""Of a general loss behind a smaller one: one change seldom saves all of it."""


@record
class Claim:
    """A saving such as `up to` `12.3 ms` `of 20.3 ms per step`, `60.7 %`, `2.5× as fast`.

    Without steps, and where the time is lost outside them, the amount is of the whole recording:
    `of` is empty, and `share` names what it is of (`46.7 % of the run`). Where a few steps take
    most of the time, both are those of a step on average. `amount` and `of` together are `sum`, in
    one unit where there is one: `12.3 of 20.3 ms per step`.
    """

    qualifier: str
    amount: str
    of: str = ""
    sum: str = ""
    share: str = ""
    speedup: str = ""

    def parts(self) -> list[str]:
        """The claim for one line, the first part first: `save up to 12.3 of 20.3 ms …`."""
        share = f" ({self.share})" if self.share else ""
        saved = f"save {self.qualifier} {self.sum}{share}"
        return [part for part in (saved, self.speedup) if part]

    def below(self) -> list[str]:
        """What stands below the amount, in one or two lines."""
        lines = (self.of, self.share, self.speedup)
        if self.of:
            lines = (self.of, " · ".join(part for part in lines[1:] if part), "")
        return [line for line in lines if line]


def claim(finding: Finding, whole: str, forecast: Forecast | None = None) -> Claim | None:
    """What a finding can save; None where it claims nothing.

    `whole` is what its share is of where no steps are known, such as `the run`.
    """
    at_stake, share = finding.time_at_stake_ns, finding.share_of_step_pct
    if not at_stake:
        return None
    lead = QUALIFIERS[forecast.saving if forecast else finding.saving]
    lead = PARTIAL if forecast and forecast.is_partial else lead
    if forecast and forecast.saved_per_step_ns is not None and forecast.step_ns:
        saved, step = forecast.saved_per_step_ns, forecast.step_ns
        on_average = " on average" if forecast.is_mean else ""
        per = f"per {shortened(forecast.loop) or 'step'}{on_average}"
        return Claim(
            lead,
            units.duration(saved),
            f"of {units.duration(step)} {per}",
            f"{units.part_of(saved, step)} {per}",
            units.percent(share),
            _speedup(forecast),
        )
    if share is None and forecast:
        share, whole = forecast.share_of_run_pct, "the run"
    of_whole = "" if share is None else f"{units.percent(share)} of {whole}"
    amount = units.duration(at_stake)
    return Claim(lead, amount, "", amount, of_whole, _speedup(forecast))


def _speedup(forecast: Forecast | None) -> str:
    """Such as `1.6× as fast`; empty for less than LEAST_SPEEDUP, and for a part of a loss."""
    factor = forecast.speedup_at_most if forecast and not forecast.is_partial else None
    if factor is None or factor < LEAST_SPEEDUP:
        return ""
    return f"{units.quantity('speedup_factor', factor)} as fast"
