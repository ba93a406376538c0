"""Recompiling a kernel with one assumption changed, to see what that does to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from traceview.errors import TraceviewError
from traceview.hardware import Occupancy
from traceview.headless.change import Change
from traceview.inspect.occupancy import occupancy_of
from traceview.inspect.sass_vs_ptx import Place, place_of, widths
from traceview.ptx import accesses as ptx_accesses
from traceview.ptx.addresses.provenance import Array, Provenance
from traceview.ptx.model import Access, Compiled, Function
from traceview.ptx.parser import parse_ptx
from traceview.ptx.sass import accesses as sass_accesses
from traceview.toolchain.listings import Code, code_of

MOST_TRIALS = 16


Recompile = Callable[[Change], Compiled]
"""Compile the same kernel changed so; raises TraceviewError where that cannot be done."""


@dataclass(frozen=True)
class Outcome:
    """A kernel as a trial compiled it, with what is measured on it when that is asked for."""

    compiled: Compiled

    @cached_property
    def written(self) -> tuple[Access, ...]:
        """The accesses in its PTX. Raises TraceviewError if that is damaged."""
        return ptx_accesses.accesses(self.function)

    @cached_property
    def provenance(self) -> Provenance:
        """What those are computed from. Raises TraceviewError if the PTX is damaged."""
        return Provenance.of(self.function, self.compiled.arguments)

    @cached_property
    def function(self) -> Function:
        """The kernel in its PTX. Raises TraceviewError if that is damaged."""
        kernels = parse_ptx(self.compiled.ptx or "").kernels()
        same = [kernel for kernel in kernels if kernel.name == self.compiled.name] or kernels
        return (
            same[0] if same else Function(self.compiled.name, "ptx", is_entry=True, instructions=())
        )

    @cached_property
    def running(self) -> tuple[Access, ...]:
        """The accesses in its SASS; none without a disassembler."""
        found = code_of(self.compiled).sass
        return sass_accesses.accesses(found) if found else ()

    @property
    def spill_bytes(self) -> int | None:
        """What a thread spills; None if that is not known."""
        return self._code.resources.spill_bytes if self._code.resources else None

    @property
    def serialised(self) -> int | None:
        """How many remarks of ptxas there are on serialised wgmma; None if it was not asked."""
        return len(serialised(self._code.remarks)) if self._code.resources else None

    @cached_property
    def occupancy(self) -> Occupancy | None:
        """As at the launch's block size."""
        return occupancy_of(self.compiled, self._code)[0]

    @cached_property
    def _code(self) -> Code:
        return code_of(self.compiled, sass=False)


def serialised(remarks: tuple[str, ...]) -> list[str]:
    """Those of ptxas's remarks that say that wgmma instructions wait for one another."""
    return [remark for remark in remarks if "wgmma" in remark and "serializ" in remark]


@dataclass
class Trials:
    """The recompilations of one kernel, each made once, and at most `MOST_TRIALS` of them."""

    recompile: Recompile
    _done: dict[Change, Outcome | None] = field(default_factory=dict)
    _original: Outcome | None = None

    @property
    def worked(self) -> bool:
        """True if a change compiled at all: only then does it mean something that none helped."""
        return any(found is not None for found in self._done.values())

    def outcome(self, change: Change) -> Outcome | None:
        """The kernel after the change; None if that does not compile or was not tried."""
        if self.refused(change):
            return None
        if change not in self._done:
            self._done[change] = self._tried(change)
        return self._done[change]

    def original(self, compiled: Compiled) -> Outcome:
        """The kernel as it is, measured as those of the trials are."""
        if self._original is None:
            self._original = Outcome(compiled)
        return self._original

    def refused(self, change: Change) -> bool:
        """Whether a change is not tried, as there were too many before it."""
        return change not in self._done and len(self._done) >= MOST_TRIALS

    def width(self, change: Change, place: Place, array: Array, narrow: float) -> int | None:
        """How wide the accesses to an array at a place are after the change, in bits.

        `narrow` is the share of their bits that moved in narrow ones before: the width is one
        that at most half of this share does not reach. None if that was not tried.
        """
        found = self.outcome(change)
        if found is None:
            return None
        here = found.provenance.by_array(a for a in found.written if _is_at(a, place))
        counts = widths(here.get(array, ()))
        return next((w for w in counts if narrower_share(counts, w) <= narrow / 2), None)

    def _tried(self, change: Change) -> Outcome | None:
        try:
            outcome = Outcome(self.recompile(change))
            # Damaged code shows here.
            return outcome if outcome.written else None
        except TraceviewError:
            # A change that does not compile proves nothing.
            return None


def _is_at(access: Access, place: Place) -> bool:
    """Whether it does the work of that place: a load that gets wide may become a copy."""
    source, kind, space = place_of(access)
    reads = {"load", "async-copy"}
    return (source, space) == (place[0], place[2]) and (
        kind == place[1] or {kind, place[1]} <= reads
    )


def narrower_share(counts: Mapping[int, int], width: int) -> float:
    """The share of all bits that accesses narrower than `width` move."""
    bits = {each: each * count for each, count in counts.items()}
    return sum(moved for each, moved in bits.items() if each < width) / sum(bits.values())
