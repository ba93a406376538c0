"""The reason for a narrow global access: proven by recompiling, else inferred."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from traceview.base import units
from traceview.base.records import record
from traceview.kernels.inspect import recompilations
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.recompilations import Outcome, Place, Recompilations
from traceview.kernels.inspect.rules.remedies import Remedy, results_text, with_grid
from traceview.kernels.inspect.rules.vector_width.causes import (
    TOO_FEW,
    WIDE_BITS,
    Cause,
    Narrow,
    NarrowReason,
    all_divisible,
    both,
    divisible_and_few,
    every_constant,
    fixed_strides,
    in_words,
    named_as_stride,
    no_multiple,
    not_declared_divisible,
    padded,
    perhaps_too_few,
    run_time_integers,
    stride,
    too_few_elements,
    undeclared,
    with_divisible,
)
from traceview.kernels.inspect.rules.vector_width.from_layout import limit_of
from traceview.kernels.inspect.rules.vector_width.inferred import MORE_ROWS, inferred_reason
from traceview.kernels.ptx.accesses import generation, tensor_ops
from traceview.kernels.ptx.addresses.slicing import Array
from traceview.kernels.ptx.model import Access, Compiled

KINDS = {
    "load": "loads",
    "store": "stores",
    "async-copy": "asynchronous copies",
    "atomic": "atomics",
}
_UNCOALESCED = "uncoalesced"
_WIDE = f"{WIDE_BITS}-bit"
_MORE = 1.25
_MOST = 2


def harm(before: Outcome, after: Outcome) -> str:
    """A clause on what got worse; empty if nothing did."""
    harms = [
        *_narrowed(before, after),
        *_scattered(before, after),
        *_shared(before, after),
        *_lost(before, after),
    ]
    return units.first(harms, _MOST, " and ")


def _narrowed(before: Outcome, after: Outcome) -> Iterator[str]:
    widths_after = _reached(after)
    for (place, array), width in _reached(before).items():
        left = widths_after.get((place, array), width)
        if left < width:
            kind = KINDS["load" if place[1] == "async-copy" else place[1]]
            yield f"{kind} at {line_name(place[0])} fall from {width} to {left} bits"


def _scattered(before: Outcome, after: Outcome) -> Iterator[str]:
    """Clauses on uncoalesced accesses that are as narrow as before, but more.

    The more elements a thread takes, the further apart are those that one request moves.
    """
    fewer, more = _uncoalesced(before), _uncoalesced(after)
    for (place, width), count in fewer.items():
        grown = more.get((place, width), 0)
        if grown > count:
            kind, line = KINDS[place[1]], line_name(place[0])
            what = f"{_UNCOALESCED} {kind}" if width < WIDE_BITS else f"{_WIDE} {kind}"
            yield f"{what} at {line} grow from {count} to {grown} per thread"


def _uncoalesced(outcome: Outcome) -> dict[tuple[Place, int], int]:
    """The number of uncoalesced accesses at each place, by width in bits."""
    counts: dict[tuple[Place, int], int] = {}
    for place, listed in recompilations.by_place(outcome.ptx_accesses, "ptx").items():
        for access in listed if place[1] in ("load", "store") and place[2] == "global" else ():
            cost = outcome.request_costs.cost(access)
            if cost and cost.is_uncoalesced:
                key = place, access.width_bits or 0
                counts[key] = counts.get(key, 0) + access.count
    return counts


def _reached(outcome: Outcome) -> dict[tuple[Place, Array], int]:
    """The width that most bits at each place move at; loads and async copies are one kind."""
    accesses: dict[tuple[Place, Array], list[Access]] = {}
    for place, listed in recompilations.by_place(outcome.ptx_accesses, "ptx").items():
        source, kind, space = place
        if space == "global" and kind in KINDS:
            one = (source, "load" if kind == "async-copy" else kind, space)
            for array, part in outcome.provenance.by_array(listed).items():
                accesses.setdefault((one, array), []).extend(part)
    counts = {at: recompilations.widths(listed) for at, listed in accesses.items()}
    return {
        at: next(w for w in each if recompilations.narrower_fraction(each, w) <= 0.5)
        for at, each in counts.items()
        if each
    }


def _shared(before: Outcome, after: Outcome) -> Iterator[str]:
    """A clause if shared-memory traffic per byte of global memory grows."""
    if _per_global(after) > _MORE * _per_global(before):
        yield "shared-memory traffic grows"


def _per_global(outcome: Outcome) -> float:
    moved = {"shared": 0, "global": 0}
    for access in outcome.ptx_accesses:
        if access.space in moved and access.kind in ("load", "store", "async-copy"):
            moved[access.space] += (access.width_bits or 0) * access.count
    return moved["shared"] / max(moved["global"], 1)


def _lost(before: Outcome, after: Outcome) -> Iterator[str]:
    old, new = tensor_ops(before.function), tensor_ops(after.function)
    gone = {op.operation for op in old} - {op.operation for op in new}
    # What a newer generation does instead is no loss.
    if gone and generation(new) <= generation(old):
        yield f"{' and '.join(sorted(gone))} {'is' if len(gone) == 1 else 'are'} no longer used"
    spilled, spills = before.spill_bytes, after.spill_bytes
    if spilled is not None and spills is not None and spills > spilled:
        yield f"{units.counted(spills, 'byte')} per thread are spilled"


def reason_of(
    narrow: Narrow,
    compiled: Compiled,
    trials: Recompilations | None,
    *,
    tiled: bool = False,
    sm_count: int | None = None,
) -> NarrowReason:
    """The reason that recompilations prove; where none widened the access, the likely one.

    `tiled` is whether any narrow access of the kernel advances by tiles: one larger tile serves
    all, where results stay the same.
    """
    if trials is None:
        return inferred_reason(narrow, compiled, tried=False)
    case = _Case(narrow, compiled, trials, tiled, sm_count)
    return case.proven() or case.likely()


@record
class _Widened:
    """A cause, the width that the access reached without it, and what got worse."""

    cause: Cause
    width: int
    harm: str


@record
class _Case:
    """One narrow access, and the recompilations that may explain it."""

    narrow: Narrow
    compiled: Compiled
    trials: Recompilations
    tiled: bool
    sm_count: int | None

    def proven(self) -> NarrowReason | None:
        """The first causes whose removal widens the access; None if none does."""
        harmful: list[_Widened] = []
        for causes in self._tiers():
            self.trials.expect(cause.change for cause in causes)
            widened = [each for cause in causes if (each := self._widened(cause))]
            harmless = [each for each in widened if not each.harm]
            if harmless:
                return self._best(harmless)
            harmful += widened
        return self._at_a_price(harmful) if harmful else None

    def likely(self) -> NarrowReason:
        """The inferred reason, for an access that no recompilation widened."""
        changes = [cause.change for causes in self._tiers() for cause in causes]
        any_compiled = any(self.trials.outcome(change) for change in changes)
        refused = any(self.trials.refused(change) for change in changes)
        reason = inferred_reason(
            self.narrow, self.compiled, tried=not refused and (any_compiled or not changes)
        )
        if not any_compiled or refused or self.narrow.layout.scattered:
            return reason
        tried = {cause.clause for cause in undeclared(self.narrow.suspects)}
        basis = f"{reason.basis}; no recompilation widened it"
        if reason.cause not in tried:
            return replace(reason, basis=basis)
        first, *rest = reason.remedy.split(". ", 1)
        remedy = ". ".join([_NOT_ALL.format(first[:1].lower() + first[1:]), *rest])
        return replace(reason, basis=basis, remedy=remedy, proven=False, refuted=True)

    def _tiers(self) -> Iterator[list[Cause]]:
        """Tiers of causes; each is tried only if no earlier one widened the access."""
        layout = self.narrow.layout
        if layout.scattered:
            yield list(self._strides())
            yield list(self._strides_and_others())
            return
        few = list(self._too_few(self.narrow.width))
        constants = self._constants()
        yield [*undeclared(self.narrow.suspects), *constants, *every_constant(constants), *few]
        yield list(self._together())
        yield list(run_time_integers(self.narrow.suspects.address))
        # 16 bytes and more, but of several rows: too few are adjacent.
        yield list(self._fewer_threads(self.narrow.width))

    def _constants(self) -> list[Cause]:
        """Causes: constexprs that Triton's analysis blames as they are no multiples."""
        limit = limit_of(self.narrow, self.compiled)
        every = (limit.culprit, *limit.beside) if limit else ()
        # A shift is not padded.
        blamed = [each for each in every if each and not each.is_added]
        named = {name: each for each in blamed if (name := padded(each, self.compiled))}
        return [no_multiple(name, c.constant or 0, c.need) for name, c in named.items()]

    def _strides(self) -> Iterator[Cause]:
        """Causes of a known stride: only the arguments that set it."""
        step, apart = self.narrow.layout.step, self.narrow.layout.apart
        if step and step.parameter and apart == 1:
            # An expanded tensor has a stride of 0: there is nothing to transpose.
            if step.parameter.value != 0 and named_as_stride(step.parameter.name):
                yield stride(step.parameter)
        elif step and not step.parameter:
            yield from fixed_strides(self.compiled, apart)

    def _strides_and_others(self) -> Iterator[Cause]:
        """Causes that a stride hides: a stride of 1 alone does not help."""
        for cause in self._strides():
            strides = {name for name, _ in cause.change.constexprs}
            undeclared = not_declared_divisible(self.narrow.suspects)
            names = [each.name for each in undeclared if each.name not in strides]
            few = next(self._too_few(self.narrow.width), None)
            if names:
                yield with_divisible(cause, names)
            if few:
                yield both(with_divisible(cause, names) if names else cause, few)

    def _too_few(self, width: int) -> Iterator[Cause]:
        if self.narrow.moved < WIDE_BITS:
            yield from self._fewer_threads(width)

    def _fewer_threads(self, width: int) -> Iterator[Cause]:
        """Causes of elements that are spread over too many threads."""
        narrow, factor = self.narrow, WIDE_BITS // max(width, 1)
        tiles = (narrow.tiles or self.tiled) and self._leaves_blocks(factor)
        for cause in too_few_elements(self.compiled, factor, tiles=tiles):
            if not narrow.tiles and self.trials.equivalence(cause.change).verdict != "same":
                continue
            # The width of a copy to shared memory depends on its layout, too.
            if narrow.place[1] != "async-copy" or cause.change.num_warps is None:
                yield cause

    def _leaves_blocks(self, factor: int) -> bool:
        """Whether the GPU has a block for each SM where tiles are so many times as large."""
        grid = self.compiled.grid
        return not (grid and self.sm_count) or math.prod(grid) >= factor * self.sm_count

    def _together(self) -> Iterator[Cause]:
        """Causes that hide one another: several arguments, then also too few elements."""
        names = [argument.name for argument in not_declared_divisible(self.narrow.suspects)]
        if len(names) > 1:
            yield all_divisible(names)
        constants = self._constants()
        for cause in (every_constant(constants) or constants) if names else ():
            yield with_divisible(cause, names)
        yield from (of(names) for of in self._divisible()[1:] if names)

    def _widened(self, cause: Cause) -> _Widened | None:
        width = self._width(cause)
        outcome = self.trials.outcome(cause.change)
        if outcome is None or width <= self.narrow.width:
            return None
        tunes = cause.change.num_warps or cause.change.constexprs
        is_tried = not self.narrow.layout.scattered and tunes
        worse = harm(self.trials.original(self.compiled), outcome) if is_tried else ""
        harms = filter(None, (self._changes_results(cause), worse))
        return _Widened(cause, width, "; and ".join(harms))

    def _changes_results(self, cause: Cause) -> str:
        """A clause if the kernel computes other results without the cause; else empty."""
        compared = self.trials.equivalence(cause.change)
        return f"it changes what is computed: {compared.detail}" * (compared.verdict == "differs")

    def _width(self, cause: Cause) -> int:
        narrow = self.narrow
        return self.trials.width(cause.change, narrow.place, narrow.array, narrow.fraction) or 0

    def _best(self, widened: Sequence[_Widened]) -> NarrowReason:
        width = max(each.width for each in widened)
        best = [each.cause for each in widened if each.width == width]
        best = [cause for cause in best if cause.clause == best[0].clause]
        if best[0].change.divisible:
            # Of causes taken together one remedy is long enough.
            best = [self._least(best[0], width)]
        alone = best[0].clause == TOO_FEW
        if alone:
            best.sort(key=lambda cause: bool(self._price([cause])))
        remedy = self._use(best) if alone else " or ".join(cause.remedy for cause in best)
        changes = " or ".join(cause.change.description for cause in best)
        price = self._price(best)
        costs = alone and (price or width < WIDE_BITS)
        if costs and not any(cause.change.constexprs for cause in best):
            other = self._another_size(width)
            remedy += f". {other.cause.remedy}" if other else ""
            price += f"; with {other.cause.change.description}: {other.width} bits" if other else ""
        bounds = {argument.name for argument in self.narrow.suspects.mask}
        reduces = "tt.reduce" in (self.compiled.stages.get("ttgir") or "")
        remedy += _FILLED * bool(reduces and bounds.intersection(best[0].change.divisible))
        return NarrowReason(
            best[0].clause,
            remedy,
            self._shown(changes, width) + price + self._same_results(best),
            True,
            width,
            self._remedies(best) if alone else tuple(Remedy(c.remedy, c.change) for c in best),
            MORE_ROWS if alone else "",
            uncertain=(bool(price) and not self._room(best[0])) or (alone and self._unsure(best)),
            sized=bool(best[0].change.num_warps or best[0].change.resizes),
        )

    def _remedies(self, causes: Sequence[Cause]) -> tuple[Remedy, ...]:
        """The remedies, each as an action of its own."""
        return tuple(
            Remedy(f"use {cause.remedy}", cause.change)
            if self.trials.equivalence(cause.change).verdict == "same"
            else Remedy(
                f"use {cause.remedy} if {cause.change.constexprs[0][0]} only sets the tile",
                cause.change,
            )
            for cause in causes
        )

    def _use(self, causes: Sequence[Cause]) -> str:
        """The remedy as an imperative.

        Fewer warps that lower occupancy come last: blocks of little work cost as much as narrow
        accesses.
        """
        costly = [cause for cause in causes if self._price([cause])]
        free = [cause for cause in causes if cause not in costly]
        texts = self._alternatives(free)
        if costly:
            use = f"{'Or use' if free else 'Use'} {' or '.join(c.remedy for c in costly)}"
            how = _WITH_WORK if self._room(costly[0]) else _NO_ROOM
            texts.append(f"{use} {'alone, which gains less' if free else how}")
        return ". ".join(texts)

    def _room(self, cause: Cause) -> bool:
        """Whether the grid is half a wave or more where a block does as much more as widths grow.

        With a quarter of 8,192 blocks, 0.48 waves, a reduction took 17 % longer on an H200.
        """
        outcome, grid = self.trials.outcome(cause.change), self.compiled.grid
        occupancy = outcome.occupancy if outcome else None
        if not (grid and occupancy and self.sm_count):
            return True
        left = math.prod(grid) * self.narrow.width // WIDE_BITS
        return 2 * left >= occupancy.blocks_per_sm * self.sm_count

    def _unsure(self, causes: Sequence[Cause]) -> bool:
        """Whether the first remedy is one that may change results."""
        free = [cause for cause in causes if not self._price([cause])]
        return bool(free) and all(
            self.trials.equivalence(cause.change).verdict != "same" for cause in free
        )

    def _alternatives(self, causes: Sequence[Cause]) -> list[str]:
        """Sentences on causes that cost nothing; those that may change results have a condition."""
        each = [(cause, self.trials.equivalence(cause.change)) for cause in causes]
        sure = [
            cause.remedy + with_grid(compared)
            for cause, compared in each
            if compared.verdict == "same"
        ]
        perhaps = [
            f"if {in_words([name for name, _ in cause.change.constexprs])} only sets the tile, "
            f"use {cause.remedy}"
            for cause, compared in each
            if compared.verdict != "same"
        ]
        if sure:
            return [f"Use {' or '.join(sure)}", *(f"Or, {text}" for text in perhaps)]
        text = ", or ".join(perhaps)
        return [text[0].upper() + text[1:]] if text else []

    def _same_results(self, causes: Sequence[Cause]) -> str:
        """Whether results stay the same, of each change that may change them."""
        compared = [
            (cause.change.description, self.trials.equivalence(cause.change))
            for cause in causes
            if cause.change.resizes
        ]
        return "".join(f"; {results_text(change, answer)}" for change, answer in compared)

    def _shown(self, changes: str, width: int) -> str:
        return f"recompiled with {changes}: {width} bits instead of {self.narrow.width}"

    def _price(self, causes: Sequence[Cause]) -> str:
        """The occupancy that fewer warps cost, if they cost any."""
        for change in (cause.change for cause in causes if cause.change.num_warps):
            outcome = self.trials.outcome(change)
            if self._fits_at_once(outcome):
                continue
            before = _occupancy_pct(self.trials.original(self.compiled))
            after = _occupancy_pct(outcome) if outcome else before
            if after < before:
                fell = f"{before:.1f} → {after:.1f} %"
                return f"; theoretical occupancy falls with num_warps={change.num_warps}: {fell}"
        return ""

    def _fits_at_once(self, outcome: Outcome | None) -> bool:
        """Whether SMs hold the whole grid at once: a higher occupancy would find no block."""
        grid, occupancy = self.compiled.grid, outcome.occupancy if outcome else None
        if not (grid and occupancy and self.sm_count):
            return False
        return math.prod(grid) <= occupancy.blocks_per_sm * self.sm_count

    def _least(self, cause: Cause, width: int) -> Cause:
        """The cause reduced to the arguments that matter."""
        names = list(cause.change.divisible)
        of = next((of for of in self._divisible() if cause == of(names)), None)
        if of is None:
            return cause
        # Bounds come last, and most of them are of other axes.
        for name in names[::-1]:
            fewer = [each for each in names if each != name]
            if fewer and self._width(of(fewer)) == width:
                names = fewer
        return of(names)

    def _divisible(self) -> list[Callable[[Sequence[str]], Cause]]:
        """The causes, as functions of their names, that take arguments to be divisible by 16."""
        few = self._too_few(self.narrow.width)
        return [all_divisible, *(partial(divisible_and_few, cause) for cause in few)]

    def _another_size(self, width: int) -> _Widened | None:
        """A larger constexpr, perhaps a free choice, that widens the access as much; or None."""
        for cause in perhaps_too_few(self.compiled, WIDE_BITS // self.narrow.width):
            widened = self._widened(cause) if self.narrow.tiles else None
            if widened and not widened.harm and widened.width >= width:
                return widened
        return None

    def _at_a_price(self, widened: Sequence[_Widened]) -> NarrowReason:
        best = max(widened, key=lambda each: each.width)
        change, names = best.cause.change.description, best.cause.change.divisible
        more = f"ive each block more work, such as several rows: {change} alone " + (
            "changes what is computed"
            if self._changes_results(best.cause)
            else "has a cost elsewhere"
        )
        if best.harm.startswith((_UNCOALESCED, _WIDE)):
            basis = f"{self._shown(change, best.width)}, but {best.harm}"
            kept = best.harm.startswith(_WIDE)
            advice = _LEAVE if kept else _COALESCE
            return NarrowReason(best.cause.clause, advice, basis, True, best.width, kept=kept)
        padded = f"Pad or align {in_words(names)} to a multiple of 16, and g" if names else "G"
        basis = f"{self._shown(change, best.width)}, but {best.harm}"
        return NarrowReason(best.cause.clause, padded + more, basis, True, best.width)


_FILLED = ". Fill what is padded so that reductions ignore it, such as with zeros for a sum"
_NOT_ALL = (
    "Leave it where rows start anywhere, as those of a window do: to {0} widens nothing by itself"
)
_WITH_WORK = "with more work per block, such as several rows: alone it lowers occupancy"
_NO_ROOM = (
    "and measure it: it lowers occupancy, and the grid is too small for more work per block, such "
    "as several rows"
)
_LEAVE = (
    "Leave it: wider elements of the same tile move in 128 bits already, and more elements per "
    "thread spread their requests further"
)
_COALESCE = (
    "Coalesce the other accesses of this kernel first: more elements per thread alone spread their "
    "requests further"
)


def _occupancy_pct(outcome: Outcome) -> float:
    return outcome.occupancy.theoretical_occupancy_pct if outcome.occupancy else 0.0
