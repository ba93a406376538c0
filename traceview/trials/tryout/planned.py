"""Which remedies to try: those that the findings of a report ask for, or those that are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from traceview.base.errors import InputError, suggestion
from traceview.base.findings import LOW, Saving
from traceview.base.records import record
from traceview.trials.remedies import BY_NAME, REMEDIES, ProgramRemedy, named, triton_launch

if TYPE_CHECKING:
    from traceview.traces.plan import RankedFinding
    from traceview.traces.reporting import Report

TOGETHER = "together"
_WIDE_BITS = 128
_ORDER = {remedy.name: at for at, remedy in enumerate(REMEDIES)}


@record
class Said:
    """What a report says that a remedy saves, as a share of a step (0 to 100)."""

    share_pct: float
    error_pct: float | None
    saving: Saving
    findings: tuple[RankedFinding, ...] = ()


@record
class Planned:
    """A trial to make: one remedy with those that it needs, or all that were kept."""

    name: str
    remedies: tuple[ProgramRemedy, ...]
    said: Said | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The remedies that its runs apply, in the order of the closed set."""
        wanted = {name for each in self.remedies for name in (*each.needs, each.name)}
        return tuple(sorted(wanted, key=lambda name: _ORDER[name.partition(":")[0]]))

    @property
    def bound(self) -> float:
        """The relative difference of results that a step may add."""
        return sum(remedy.bound for remedy in self.remedies)

    @property
    def does(self) -> str:
        """The change in words."""
        return self.remedies[0].does if len(self.remedies) == 1 else "All that are kept"

    @property
    def reseeds(self) -> bool:
        """Whether the program may draw other random numbers."""
        return any(remedy.reseeds for remedy in self.remedies)


def known_names(names: Sequence[str]) -> None:
    """Raise InputError for a name that is no remedy's, and for an argument that it cannot take."""
    for name in names:
        try:
            named(name)
        except KeyError:
            raise InputError(f"there is no remedy {name!r}", suggestion(name, [*BY_NAME])) from None
        except ValueError as error:
            raise InputError(f"--remedy {name}: {error}") from None


def planned(report: Report | None, names: Sequence[str]) -> list[Planned]:
    """The trials for a report, or for named remedies.

    Raises InputError for one that is named without the argument that it needs.
    """
    answered = {remedy.name: _answered(report, remedy) for remedy in REMEDIES}
    chosen = names or [name for name, ranked in answered.items() if ranked]
    result = []
    for name in sorted(dict.fromkeys(chosen), key=lambda name: _ORDER[name.partition(":")[0]]):
        remedy, ranked = named(name), answered.get(name)
        if remedy.takes and ":" not in name:
            argument = _wider_launch(report, ranked)
            if not argument and names:
                raise InputError(f"{name} needs a launch", f"pass {name}:KERNEL.num_warps=2")
            if not argument:
                continue
            remedy = named(f"{name}:{argument}")
        result.append(Planned(remedy.name, (remedy,), _said(ranked, remedy)))
    return result


def _wider_launch(report: Report | None, ranked: RankedFinding | None) -> str:
    """The launch of a finding's Triton kernel with as few warps as make its accesses 128 bits wide.

    Empty where the recording does not say how many it has, or it has one.
    """
    if report is None or report.recording is None or ranked is None:
        return ""
    from traceview.traces.facts.code import gathered_code

    values, kernel = ranked.finding.evidence.values, ranked.finding.subject.name
    widths = (values.get("loads_bits"), values.get("stores_bits"))
    bits = min((each for each in widths if isinstance(each, int)), default=0)
    for code in gathered_code(report.recording).launched:
        warps = code.compiled.num_warps or 0
        if bits and warps > 1 and any(run.name == kernel for run in code.runs):
            argument = f"{kernel}.num_warps={max(warps * bits // _WIDE_BITS, 1)}"
            with suppress(ValueError):  # The name of a kernel may be any text.
                triton_launch.takes(argument)
                return argument
    return ""


def _answered(report: Report | None, remedy: ProgramRemedy) -> RankedFinding | None:
    """The finding that saves most by a remedy; None where none saves 1 % of a step or run.

    Rather one whose forecast is no upper bound for this remedy.
    """
    if report is None or not remedy.answers:
        return None
    ranked = [
        each
        for each in report.findings
        if each.forecast
        and re.search(remedy.answers, each.finding.action)
        and max(_shares(each)) >= 100 * LOW
    ]
    return max(ranked, key=lambda it: (it.analysis not in remedy.bounds, _shares(it)), default=None)


def _shares(ranked: RankedFinding) -> tuple[float, float]:
    """What a finding saves of a step, and of the run."""
    told = ranked.forecast
    return (told.share_of_step_pct or 0.0, told.share_of_run_pct or 0.0) if told else (0.0, 0.0)


def _said(ranked: RankedFinding | None, remedy: ProgramRemedy) -> Said | None:
    """The forecast in terms of a step, which is what trials measure; None without one."""
    told = ranked.forecast if ranked else None
    if ranked is None or told is None or not told.share_of_step_pct or not told.saved_per_step_ns:
        return None
    share, error = told.share_of_step_pct, told.error_ns
    error_pct = None if error is None else share * error / told.saved_per_step_ns
    saving: Saving = "at-most" if ranked.analysis in remedy.bounds else told.saving
    return Said(share, error_pct, saving, (ranked,))


def together(report: Report | None, kept: Sequence[Planned]) -> Planned:
    """The trial of all that were kept; its forecast is the replay of their edits, where there."""
    remedies = tuple(remedy for each in kept for remedy in each.remedies)
    ranked = {id(f): f for each in kept if each.said for f in each.said.findings}
    edits = [each.finding.edit for each in ranked.values() if each.finding.edit]
    trace = report.recording if report else None
    if trace is None or not edits or len(edits) < len(ranked):
        return Planned(TOGETHER, remedies)
    from traceview.traces.facts.forecast import model

    def apply(changed: object) -> None:
        for edit in edits:
            edit(changed)

    replayed = model(trace).forecast(apply)
    if replayed.recorded_ns <= 0 or not replayed.steps:
        return Planned(TOGETHER, remedies)
    share, error = (
        100 * each / replayed.recorded_ns for each in (replayed.saved_ns, replayed.error_ns)
    )
    return Planned(TOGETHER, remedies, Said(share, error, "about", tuple(ranked.values())))
