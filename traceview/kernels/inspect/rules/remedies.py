"""Remedies, each with the change that tests it, and which of them hold together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Generic, TypeGuard, TypeVar

from traceview.base import units
from traceview.base.findings import SEVERITIES, Finding, Severity
from traceview.base.records import record
from traceview.kernels.headless.compile_options import Change, Equivalence
from traceview.kernels.inspect.recompilations import Outcome, Recompilations
from traceview.kernels.ptx.model import Compiled, SourceLine
from traceview.kernels.ptx.ttgir.operations import TileReduction, tile_reductions
from traceview.kernels.ptx.ttgir.parser import parse_ttgir

_MOST_REMEDIES = 2
_MOST_WARPS = 16
_LEAST_TILE = 32
_MOST_TILES = 3
_TILE = re.compile(r"block|tile|chunk|^b[a-z]?$", re.IGNORECASE)

T = TypeVar("T")


@record
class Remedy:
    """An action as an imperative, and the change that tests whether it helps."""

    action: str
    change: Change


@record
class Tested(Generic[T]):
    """A remedy, and what was measured after it."""

    remedy: Remedy
    after: T


def more_warps(compiled: Compiled) -> Iterator[Remedy]:
    """Twice and four times the warps: each thread gets less to hold."""
    warps = compiled.num_warps
    for more in (2 * warps, 4 * warps) if warps else ():
        if more <= _MOST_WARPS:
            yield Remedy(f"use num_warps={more}", Change(num_warps=more))


def fewer_stages(compiled: Compiled) -> Iterator[Remedy]:
    """One stage fewer, and half of them, but at least two: with one nothing is prefetched."""
    stages = compiled.num_stages or 0
    for fewer in dict.fromkeys((stages - 1, stages // 2)):
        if 2 <= fewer < stages:
            yield Remedy(f"use num_stages={fewer}", Change(num_stages=fewer))


def is_tile(value: object, least: int) -> TypeGuard[int]:
    """Whether a value may be the size of a tile: a power of two of at least `least`."""
    return type(value) is int and value >= least and value & (value - 1) == 0


def smaller_tiles(compiled: Compiled) -> Iterator[Remedy]:
    """Half of each constexpr that is a tile by its name; the grid or a loop covers the rest.

    The size of a tile that is reduced as a whole is left out: a part of it has another result.
    """
    reduced = {reduction.size for reduction in reduced_tiles(compiled)}
    sizes = {
        argument.name: argument.value
        for argument in compiled.arguments
        if argument.type == "constexpr" and named_as_tile(argument.name)
        if argument.value not in reduced
    }
    tiles = ((name, value) for name, value in sizes.items() if is_tile(value, _LEAST_TILE))
    for name, value in sorted(tiles, key=lambda tile: -int(tile[1] or 0))[:_MOST_TILES]:
        half = int(value or 0) // 2
        action = f"use a smaller tile ({name}={half}) with more blocks or a loop"
        yield Remedy(action, Change(constexprs=((name, half),), resizes=True))


def both(compiled: Compiled) -> Iterator[Remedy]:
    """Twice the warps and half of the largest tile together, where neither alone suffices."""
    for warps, tile in zip(more_warps(compiled), smaller_tiles(compiled), strict=False):
        change = replace(tile.change, num_warps=warps.change.num_warps)
        yield Remedy(f"{warps.action} and {tile.action.removeprefix('use ')}", change)
        return


def fewer_registers(registers: int | None) -> Iterator[Remedy]:
    """A limit on the registers of a thread."""
    if registers:
        yield Remedy(f"launch with maxnreg={registers}", Change(max_registers=registers))


def tested_remedies(
    remedies: Iterable[Remedy],
    trials: Recompilations | None,
    measure: Callable[[Outcome], T | None],
) -> list[Tested[T]]:
    """The remedies that could be tried and measured and keep the results, in their order."""
    measured, listed = [], list(remedies)
    if trials:
        trials.expect(remedy.change for remedy in listed)
    for remedy in listed if trials else ():
        outcome = trials.outcome(remedy.change) if trials else None
        after = measure(outcome) if outcome else None
        checked = _checked(remedy, trials) if trials and after is not None else None
        if after is not None and checked is not None:
            measured.append(Tested(checked, after))
    return measured


def _checked(remedy: Remedy, trials: Recompilations) -> Remedy | None:
    """The remedy with what is known of its results; None if it changes what is computed."""
    compared = trials.equivalence(remedy.change)
    if compared.verdict == "differs":
        return None
    if compared.verdict == "same":
        return replace(remedy, action=remedy.action + with_grid(compared))
    names = " and ".join(name for name, _ in remedy.change.constexprs)
    return replace(remedy, action=f"{remedy.action} if {names} only sets the tile")


def relieving_remedies(
    compiled: Compiled, trials: Recompilations | None, measure: Callable[[Outcome], int | None]
) -> list[Tested[int]]:
    """Tested remedies: more warps and fewer stages, then smaller tiles, then both.

    Each group is tested only if no remedy of the groups before it measures 0.
    """
    tries: list[Tested[int]] = []
    lighter = chain(more_warps(compiled), fewer_stages(compiled))
    for remedies in (lighter, smaller_tiles(compiled), both(compiled)):
        if all(each.after for each in tries):
            tries += tested_remedies(remedies, trials, measure)
    return tries


def one_of_each(chosen: Sequence[Tested[T]]) -> list[Tested[T]]:
    """The first of each kind of change: where 8 warps suffice, 16 are not proposed, too."""
    kinds: dict[tuple[bool, ...], Tested[T]] = {}
    for each in chosen:
        change = each.remedy.change
        fields = (change.num_warps, change.num_stages, change.constexprs, change.max_registers)
        kinds.setdefault(tuple(map(bool, fields)), each)
    return list(kinds.values())[:_MOST_REMEDIES]


def results_clause(
    helped: Sequence[Tested[T]], tries: Sequence[Tested[T]], compared: Callable[[T], str]
) -> str:
    """The results of recompilations, to be appended to the basis of a finding."""
    each = [f"; recompiled with {t.remedy.change.description}: {compared(t.after)}" for t in helped]
    return "".join(each[:_MOST_REMEDIES]) or ("; no recompilation helped" if tries else "")


def results_text(change: str, compared: Equivalence) -> str:
    """A clause for the basis of a finding: whether results stay the same with a change."""
    if compared.verdict == "same":
        return f"results with {change} are the same in Triton's interpreter ({compared.detail})"
    return f"not verified that results with {change} are the same: {compared.detail}"


def with_grid(compared: Equivalence) -> str:
    """The grid to launch, as the end of a remedy; empty unless the program fixes its grid."""
    if compared.grid is None:
        return ""
    blocks = units.counted(compared.grid[0] * compared.grid[1] * compared.grid[2], "block")
    return f" with {blocks} (the program passes a fixed grid)"


def actions_in_words(remedies: Sequence[Remedy]) -> str:
    """Actions as one imperative, as alternatives."""
    actions = [remedy.action for remedy in remedies]
    first, *others = [actions[0], *(action.removeprefix("use ") for action in actions[1:])]
    return " or ".join((first[0].upper() + first[1:], *others))


def named_as_tile(name: str) -> bool:
    """Whether a constexpr is a tile size by its name; another name may be a size of the data."""
    return bool(_TILE.search(name))


def reduced_tiles(compiled: Compiled) -> tuple[TileReduction, ...]:
    """The reductions of whole tiles, by the TTGIR; none without it."""
    return _tile_reductions(compiled.stages.get("ttgir", ""))


@lru_cache(maxsize=2)
def _tile_reductions(ttgir: str) -> tuple[TileReduction, ...]:
    return tuple(tile_reductions(parse_ttgir(ttgir)))


# Findings whose remedies were recompiled, and which of these remedies hold together.
#
# Each remedy is proven on its own by its rule. Side by side they may contradict one another
# (`num_warps=4` and `num_warps=16`), and one may bring a new finding in the next run. So they are
# applied one after another, the worst finding first. A remedy is reported only if the kernel has
# nothing new to report that is as bad, with this remedy alone and with those before it.


@record
class Advice:
    """A finding whose remedy is one of `remedies`, the best first; `otherwise` if none holds.

    `rule` is the name of the rule that found it at `lines`. `explained_by` and `adds` are those of
    its `Diagnosis`.
    """

    finding: Finding
    remedies: tuple[Remedy, ...]
    otherwise: str
    rule: str = ""
    lines: frozenset[SourceLine] = frozenset()
    explained_by: tuple[str, ...] = ()
    adds: str = ""

    def explains(self, other: Advice) -> bool:
        """Whether it has the cause of another finding, on the same lines.

        Of one rule the more severe finding stands for all of its lines.
        """
        ours, its = (SEVERITIES.index(each.finding.severity) for each in (self, other))
        is_cause = self.rule in other.explained_by and max(ours, its) < SEVERITIES.index("info")
        is_there = bool(other.lines) and other.lines <= self.lines
        return is_cause and is_there and (self.rule != other.rule or ours < its)


Found = Mapping[str, Sequence[Finding]]
"""The findings of each rule, by its name."""

Inspect = Callable[[Outcome], Found]
"""The findings on a recompiled kernel, none of them tested by recompiling."""


@dataclass
class Reconciliation:
    """Applies the remedies of one kernel one after another. `applied` is the change so far."""

    compiled: Compiled
    trials: Recompilations
    inspect: Inspect
    applied: Change = field(default_factory=Change)
    _inspected: dict[int, Found] = field(default_factory=dict)

    def settle(self, listed: Sequence[Advice]) -> list[Finding]:
        """The findings in their order, with only the remedies that hold together."""
        worst = sorted(listed, key=lambda advice: SEVERITIES.index(advice.finding.severity))
        settled = {id(advice): self._settled(advice) for advice in worst}
        return [settled[id(advice)] for advice in listed]

    def _settled(self, advice: Advice) -> Finding:
        if self._is_solved(advice):
            return self._solved(advice.finding)
        reasons = {
            remedy: self._objection(remedy.change, advice.finding.severity)
            for remedy in advice.remedies
        }
        held = [remedy for remedy, reason in reasons.items() if not reason]
        if held:
            self.applied = merged(self.applied, held[0].change) or self.applied
        if len(held) == len(reasons):
            return advice.finding
        finding, evidence = advice.finding, advice.finding.evidence
        why = "; ".join(reason for reason in dict.fromkeys(reasons.values()) if reason)
        return replace(
            finding,
            remedy=actions_in_words(held) if held else advice.otherwise,
            evidence=replace(
                evidence,
                values={**evidence.values, "withdrawn": why},
                basis=f"{evidence.basis}; {why}",
            ),
        )

    def _is_solved(self, advice: Advice) -> bool:
        """Whether the remedies of earlier findings remove this one, too."""
        own = {remedy.change for remedy in advice.remedies}
        settled = self.applied == Change() or self.applied.resizes or self.applied in own
        if settled or not own or not advice.rule:
            return False
        outcome = self.trials.together(self.applied)
        return outcome is not None and self._severity(advice, outcome) is None

    def fits(self, change: Change) -> bool:
        """Whether the kernel compiles with a change, and an SM holds a block of it."""
        outcome = self.trials.together(change)
        return outcome is not None and bool(outcome.occupancy and outcome.occupancy.blocks_per_sm)

    def eased(self, change: Change, advice: Advice) -> Severity | None:
        """How severe a finding is at least with a change if that is less than without; else None.

        It is information where the kernel has no such finding any more.
        """
        outcome = self.trials.together(change)
        before = self._severity(advice, self.trials.original(self.compiled))
        if outcome is None or before is None:
            return None
        after = self._severity(advice, outcome) or "info"
        return after if SEVERITIES.index(after) > SEVERITIES.index(before) else None

    def _severity(self, advice: Advice, outcome: Outcome) -> Severity | None:
        """How severe a finding is on a recompiled kernel; None if that has none on its lines."""
        lines, left = _lines(advice.finding), self._found(outcome).get(advice.rule, ())
        same = (each.severity for each in left if not lines or lines & _lines(each))
        return min(same, key=SEVERITIES.index, default=None)

    def _solved(self, finding: Finding) -> Finding:
        change = self.applied.description
        basis = f"{finding.evidence.basis}; recompiled with {change}: no such finding"
        return replace(
            finding,
            remedy=f"Use {change}, as advised for another finding: it removes this one, too",
            evidence=replace(finding.evidence, basis=basis),
        )

    def _objection(self, change: Change, severity: Severity) -> str:
        """The reason to withdraw a change; empty if it holds."""
        together = merged(self.applied, change)
        if together is None:
            return f"{change.description} contradicts {self.applied.description}"
        if not change.tunes:
            return ""
        # A reader may follow all remedies or this one only.
        reasons = (self._harm(each, severity) for each in dict.fromkeys((change, together)))
        return next(filter(None, reasons), "")

    def _harm(self, change: Change, severity: Severity) -> str:
        """The harm of a change to the kernel; empty if there is none."""
        outcome = self.trials.together(change)
        if outcome is None and change in self.trials.left_out:
            return f"there was no time to try it with {self.applied.description}"
        if outcome is None:
            return f"it does not compile with {change.description}"
        worse = self._worse(outcome, severity)
        return f"with {change.description} the next report has: {worse.message}" if worse else ""

    def _found(self, outcome: Outcome) -> Found:
        # The trials keep every outcome, so that its identity stays its own.
        if id(outcome) not in self._inspected:
            self._inspected[id(outcome)] = self.inspect(outcome)
        return self._inspected[id(outcome)]

    def _worse(self, outcome: Outcome, severity: Severity) -> Finding | None:
        """A finding that only the recompiled kernel has, at least of this severity; or None."""
        before = self._found(self.trials.original(self.compiled))
        after = self._found(outcome)
        bad = SEVERITIES.index(severity)
        for rule, findings in after.items():
            known = before.get(rule, ())
            for finding in findings:
                if SEVERITIES.index(finding.severity) <= bad and _is_new(finding, known):
                    return finding
        return None


def merged(one: Change, other: Change) -> Change | None:
    """Both changes; None if they set the same thing to different values."""
    constexprs = dict(one.constexprs)
    for name, value in other.constexprs:
        if constexprs.setdefault(name, value) != value:
            return None
    options = [
        (one.num_warps, other.num_warps),
        (one.num_stages, other.num_stages),
        (one.max_registers, other.max_registers),
    ]
    if any(a and b and a != b for a, b in options):
        return None
    warps, stages, registers = (a or b for a, b in options)
    return Change(
        divisible=tuple(dict.fromkeys((*one.divisible, *other.divisible))),
        constexprs=tuple(constexprs.items()),
        num_warps=warps,
        num_stages=stages,
        max_registers=registers,
        resizes=one.resizes or other.resizes,
    )


def _is_new(finding: Finding, known: Sequence[Finding]) -> bool:
    """Whether no known finding of the same rule is as severe about the same lines."""
    for other in known:
        same = not _lines(finding) or bool(_lines(finding) & _lines(other))
        if same and SEVERITIES.index(other.severity) <= SEVERITIES.index(finding.severity):
            return False
    return True


def _lines(finding: Finding) -> set[object]:
    values = finding.evidence.values
    return {value for name, value in values.items() if name.startswith("line")}
