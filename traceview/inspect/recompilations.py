"""Recompilations of a kernel with one assumption changed, and what they measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from traceview.errors import TimeUpError, TraceviewError
from traceview.hardware import Occupancy
from traceview.headless.change import Change, Equivalence
from traceview.inspect.occupancy import occupancy_of
from traceview.inspect.sass_vs_ptx import Place, place_of, widths
from traceview.ptx import accesses as ptx_accesses
from traceview.ptx.addresses.provenance import Array, Provenance
from traceview.ptx.addresses.request_costs import RequestCosts
from traceview.ptx.model import Access, Compiled, Function
from traceview.ptx.parser import parse_ptx
from traceview.ptx.sass import accesses as sass_accesses
from traceview.records import record
from traceview.toolchain.listings import Code, code_of

MOST_TRIALS = 16


Recompile = Callable[[Change, Change | None], Compiled]
"""Compile the kernel with a change, and start to compile it with the one expected next.

Raises TraceviewError if the kernel does not compile with the change."""

Compare = Callable[[Change], Equivalence]
"""Whether the kernel computes the same results with a change."""


@record
class Outcome:
    """A recompiled kernel, measured on demand."""

    compiled: Compiled

    @cached_property
    def ptx_accesses(self) -> tuple[Access, ...]:
        """The accesses in its PTX. Raises TraceviewError if that is damaged."""
        return ptx_accesses.accesses(self.function)

    @cached_property
    def provenance(self) -> Provenance:
        """The origins of the addresses. Raises TraceviewError if the PTX is damaged."""
        return Provenance.of(self.function, self.compiled.arguments)

    @cached_property
    def request_costs(self) -> RequestCosts:
        """The cost of a warp's requests. Raises TraceviewError if the PTX is damaged."""
        return RequestCosts.of(self.provenance, self.compiled)

    @cached_property
    def function(self) -> Function:
        """The kernel in its PTX. Raises TraceviewError if that is damaged."""
        kernels = parse_ptx(self.compiled.ptx or "").kernels()
        same = [kernel for kernel in kernels if kernel.name == self.compiled.name] or kernels
        return (
            same[0] if same else Function(self.compiled.name, "ptx", is_entry=True, instructions=())
        )

    @cached_property
    def sass_accesses(self) -> tuple[Access, ...]:
        """The accesses in its SASS; none without a disassembler."""
        sass = code_of(self.compiled).sass
        return sass_accesses.accesses(sass) if sass else ()

    @property
    def spill_bytes(self) -> int | None:
        """Bytes of registers that a thread spills; None where unknown."""
        return self.code.resources.spill_bytes if self.code.resources else None

    @property
    def serialized(self) -> int | None:
        """The number of ptxas's remarks on serialized wgmma; None if it did not run."""
        return len(serialization_remarks(self.code.remarks)) if self.code.resources else None

    @cached_property
    def occupancy(self) -> Occupancy | None:
        """The occupancy at the block size of the launch."""
        return occupancy_of(self.compiled, self.code)[0]

    @cached_property
    def code(self) -> Code:
        """Its PTX and its resources, without the SASS."""
        return code_of(self.compiled, sass=False)


def serialization_remarks(remarks: tuple[str, ...]) -> list[str]:
    """The remarks of ptxas that wgmma instructions are serialized."""
    return [remark for remark in remarks if "wgmma" in remark and "serializ" in remark]


@dataclass
class Recompilations:
    """The recompilations of one kernel: each is made once, and at most `MOST_TRIALS` are made."""

    recompile: Recompile
    compare: Compare | None = None
    _compared: dict[Change, Equivalence] = field(default_factory=dict)
    _left_out: set[Change] = field(default_factory=set)
    _outcomes: dict[Change, Outcome | None] = field(default_factory=dict)
    _combined: dict[Change, Outcome | None] = field(default_factory=dict)
    _original: Outcome | None = None
    _expected: list[Change] = field(default_factory=list)

    @property
    def any_compiled(self) -> bool:
        """Whether any change compiled; only then is it evidence that none helped."""
        return any(outcome is not None for outcome in self._outcomes.values())

    def expect(self, changes: Iterable[Change]) -> None:
        """Announce the changes to try next, so that two compile at the same time."""
        self._expected = list(changes)

    def outcome(self, change: Change) -> Outcome | None:
        """The kernel after the change; None if it does not compile or was not tried."""
        if self.refused(change):
            return None
        if change not in self._outcomes:
            outcome = self._tried(change)
            if change in self._left_out:
                return None
            self._outcomes[change] = outcome
        return self._outcomes[change]

    def together(self, change: Change) -> Outcome | None:
        """The kernel after several changes, each tried before; None if it does not compile.

        Such a combination does not count towards `MOST_TRIALS`.
        """
        if change not in self._outcomes:
            self._combined[change] = self._combined.get(change) or self._tried(change)
        return self._outcomes.get(change, self._combined.get(change))

    def original(self, compiled: Compiled) -> Outcome:
        """The unchanged kernel, measured as the recompiled ones are."""
        if self._original is None:
            self._original = Outcome(compiled)
        return self._original

    def equivalence(self, change: Change) -> Equivalence:
        """Whether results stay the same with a change; they do unless it `resizes` a tile."""
        if not change.resizes:
            return Equivalence("same", "")
        key = Change(constexprs=change.constexprs)
        names = {name for name, _ in key.constexprs}
        if key in self._compared:
            return self._compared[key]
        for other, earlier in self._compared.items():
            # Another value of the same constexprs differs already.
            if earlier.verdict == "differs" and {name for name, _ in other.constexprs} <= names:
                answer = earlier
                break
        else:
            unknown = Equivalence("unknown", "the arguments of a launch are not known")
            answer = self.compare(change) if self.compare else unknown
        self._compared[key] = answer
        return answer

    def is_left_out(self, change: Change) -> bool:
        """Whether a change was not compiled because the time was spent."""
        return change in self._left_out

    def refused(self, change: Change) -> bool:
        """Whether a change is not tried: there were too many, or the time is spent."""
        if change in self._outcomes:
            return False
        return change in self._left_out or len(self._outcomes) >= MOST_TRIALS

    def width(
        self, change: Change, place: Place, array: Array, narrow_fraction: float
    ) -> int | None:
        """The width in bits of the accesses to an array at a place after the change.

        `narrow_fraction` is the part of their bits that narrow accesses moved before: at most half
        of this part stays below the width returned. None if the change was not tried.
        """
        outcome = self.outcome(change)
        if outcome is None:
            return None
        # A load that gets wide may become an asynchronous copy.
        reads = {"load", "async-copy"}
        kinds = reads if place[1] in reads else {place[1]}
        places = {(place[0], kind, place[2]) for kind in kinds}
        same = (access for access in outcome.ptx_accesses if place_of(access) in places)
        by_array = outcome.provenance.by_array(same)
        counts = widths(by_array.get(array, ()))
        return next(
            (w for w in counts if narrower_fraction(counts, w) <= narrow_fraction / 2), None
        )

    def _tried(self, change: Change) -> Outcome | None:
        expected = self._expected
        after = expected[expected.index(change) + 1 :] if change in expected else []
        following = next((later for later in after if later not in self._outcomes), None)
        try:
            outcome = Outcome(self.recompile(change, following))
            # Damaged PTX raises here.
            return outcome if outcome.ptx_accesses else None
        except TimeUpError:
            self._left_out.add(change)
            return None
        except TraceviewError:
            # A change that does not compile proves nothing.
            return None


def narrower_fraction(counts: Mapping[int, int], width: int) -> float:
    """The fraction of all bits that accesses narrower than `width` move."""
    narrower = sum(bits * count for bits, count in counts.items() if bits < width)
    return narrower / sum(bits * count for bits, count in counts.items())
