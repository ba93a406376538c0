"""Why a global access is narrow: shown by recompiling, else inferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from traceview.inspect.rules.vector_width.causes import (
    TOO_FEW,
    WIDE_BITS,
    Cause,
    all_divisible,
    fixed_strides,
    known_late,
    perhaps_too_few,
    single_causes,
    stride,
    too_few_elements,
    undeclared,
)
from traceview.inspect.rules.vector_width.inferred import inferred
from traceview.inspect.rules.vector_width.narrow_place import Narrow, Verdict
from traceview.inspect.rules.vector_width.side_effects import harm
from traceview.inspect.trials import Outcome, Trials
from traceview.ptx.model import Compiled


def verdict(narrow: Narrow, compiled: Compiled, trials: Trials | None) -> Verdict:
    """The verdict of the recompilations; where none of them widened the access, the likely one."""
    if trials is None:
        return inferred(narrow, compiled, tried=False)
    case = _Case(narrow, compiled, trials)
    return case.shown() or case.likely()


@dataclass(frozen=True)
class _Reached:
    """A cause, how wide the access became, and what got worse meanwhile."""

    cause: Cause
    width: int
    harm: str


@dataclass(frozen=True)
class _Case:
    """One narrow access, and the recompilations that may explain it."""

    narrow: Narrow
    compiled: Compiled
    trials: Trials

    def shown(self) -> Verdict | None:
        """The verdict of the first causes that widen the access; None if none of them does."""
        harmful: list[_Reached] = []
        for causes in self._tiers():
            reached = [found for cause in causes if (found := self._reached(cause))]
            harmless = [found for found in reached if not found.harm]
            if harmless:
                return self._proven(harmless)
            harmful += reached
        return self._at_a_price(harmful) if harmful else None

    def likely(self) -> Verdict:
        """What is left once none of them widened it; it counts only if all were tried."""
        changes = [cause.change for causes in self._tiers() for cause in causes]
        made = any(self.trials.outcome(change) for change in changes)
        refused = any(self.trials.refused(change) for change in changes)
        found = inferred(self.narrow, self.compiled, tried=not refused and (made or not changes))
        failed = "; no recompilation with one assumption changed widened it"
        if not made or refused or self.narrow.layout.scattered:
            return found
        return replace(found, evidence=found.evidence + failed)

    def _tiers(self) -> Iterator[list[Cause]]:
        """Causes to try, the next ones only where none of those before is one."""
        layout = self.narrow.layout
        if layout.scattered:
            yield list(self._strides())
            return
        yield single_causes(self.narrow.suspects, list(self._too_few(self.narrow.width)))
        yield list(self._together())
        yield list(known_late(self.narrow.suspects.address))

    def _strides(self) -> Iterator[Cause]:
        """Where elements are known to lie apart, only what sets them apart."""
        step, apart = self.narrow.layout.step, self.narrow.layout.apart
        if step and step.parameter and apart == 1:
            yield stride(step.parameter)
        elif step and not step.parameter:
            yield from fixed_strides(self.compiled, apart)

    def _too_few(self, width: int) -> Iterator[Cause]:
        narrow = self.narrow
        if narrow.moved >= WIDE_BITS:
            return
        factor = WIDE_BITS // max(width, 1)
        for cause in too_few_elements(self.compiled, factor, tiles=self._tiles()):
            # How wide a copy to shared memory is, its layout has a say in.
            if narrow.place[1] != "async-copy" or cause.change.num_warps is None:
                yield cause

    def _tiles(self) -> bool:
        """Whether a larger tile has more to take: its accesses move on by tiles."""
        in_loop = any(access.loop_depth for access in self.narrow.accesses)
        return in_loop or self.narrow.layout.moves_with_block

    def _together(self) -> Iterator[Cause]:
        """Causes that hide one another: several arguments, then these with more elements."""
        names = [argument.name for argument in undeclared(self.narrow.suspects)]
        if len(names) > 1:
            yield all_divisible(names)
        for cause in self._too_few(self.narrow.width) if names else ():
            listed = " and ".join(names)
            yield Cause(
                f"{cause.said}, and {listed} may not be divisible by 16",
                replace(cause.change, divisible=tuple(names)),
                f"Pad or align {listed} to a multiple of 16, and {_lowered(cause.action)}",
            )

    def _reached(self, cause: Cause) -> _Reached | None:
        width = self._width(cause)
        outcome = self.trials.outcome(cause.change)
        if outcome is None or width <= self.narrow.width:
            return None
        tunes = cause.change.num_warps or cause.change.constexprs
        is_tried = not self.narrow.layout.scattered and tunes
        worse = harm(self.trials.original(self.compiled), outcome) if is_tried else ""
        return _Reached(cause, width, worse)

    def _width(self, cause: Cause) -> int:
        narrow = self.narrow
        return self.trials.width(cause.change, narrow.place, narrow.array, narrow.share) or 0

    def _proven(self, reached: Sequence[_Reached]) -> Verdict:
        width = max(found.width for found in reached)
        best = [found.cause for found in reached if found.width == width]
        best = [cause for cause in best if cause.said == best[0].said]
        if best[0].change.divisible:
            # Of causes taken together one remedy is long enough.
            best = [self._least(best[0], width)]
        first, *others = (cause.action for cause in best)
        action = " or ".join((first, *map(_lowered, others)))
        changes = " or ".join(cause.change.said for cause in best)
        evidence = f"recompiled with {changes}: {width} bits instead of {self.narrow.width}"
        price = self._price(best)
        costs = best[0].said == TOO_FEW and (price or width < WIDE_BITS)
        if costs and not any(cause.change.constexprs for cause in best):
            other = self._another_size(width)
            action += f". {other.cause.action}" if other else ""
            price += f"; with {other.cause.change.said}: {other.width} bits" if other else ""
        return Verdict(best[0].said, action, evidence + price)

    def _price(self, causes: Sequence[Cause]) -> str:
        """The occupancy that fewer warps cost, if they cost any."""
        for change in (cause.change for cause in causes if cause.change.num_warps):
            outcome = self.trials.outcome(change)
            before = _occupancy_pct(self.trials.original(self.compiled))
            after = _occupancy_pct(outcome) if outcome else before
            if after < before:
                fell = f"{before:.1f} → {after:.1f} %"
                return f"; theoretical occupancy falls with num_warps={change.num_warps}: {fell}"
        return ""

    def _least(self, cause: Cause, width: int) -> Cause:
        """Without the arguments that do not matter."""
        names = list(cause.change.divisible)
        if len(names) < 2 or cause.change != all_divisible(names).change:
            return cause
        for name in tuple(names):
            fewer = [each for each in names if each != name]
            if len(fewer) > 1 and self._width(all_divisible(fewer)) == width:
                names = fewer
        return all_divisible(names)

    def _another_size(self, width: int) -> _Reached | None:
        """A size that may be free to choose, where it does as well."""
        for cause in perhaps_too_few(self.compiled, WIDE_BITS // self.narrow.width):
            found = self._reached(cause) if self._tiles() else None
            if found and not found.harm and found.width >= width:
                return found
        return None

    def _at_a_price(self, reached: Sequence[_Reached]) -> Verdict:
        best = max(reached, key=lambda found: found.width)
        change = best.cause.change.said
        more = f"et a block take more, such as several rows: {change} alone makes something worse"
        names = " and ".join(best.cause.change.divisible)
        padded = f"Pad or align {names} to a multiple of 16, and l" if names else "L"
        return Verdict(
            best.cause.said,
            padded + more,
            f"recompiled with {change}: {best.width} bits instead of {self.narrow.width}, but "
            f"{best.harm}",
        )


def _occupancy_pct(outcome: Outcome) -> float:
    return outcome.occupancy.theoretical_occupancy_pct if outcome.occupancy else 0.0


def _lowered(action: str) -> str:
    return action[0].lower() + action[1:]
