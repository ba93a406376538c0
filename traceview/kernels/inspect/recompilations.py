"""Recompilations of a kernel with one assumption changed, and accesses that ptxas changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from traceview.base.errors import TimeUpError, TraceviewError
from traceview.base.hardware import Occupancy
from traceview.base.records import record
from traceview.kernels.headless.compile_options import Change, Equivalence
from traceview.kernels.inspect.kernel_report import Difference, occupancy_of
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.addresses.request_costs import RequestCosts
from traceview.kernels.ptx.addresses.slicing import Array, Provenance
from traceview.kernels.ptx.model import Access, Compiled, Function, Kind, Level, SourceLine
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain.listings import Code, code_of

Place = tuple[SourceLine | None, Kind, str]
_COMPARED: tuple[Kind, ...] = ("load", "store", "async-copy")
_SPACES = ("global", "shared")
_NOT_COMPARED = Equivalence("unknown", "the arguments of a launch are not known")


def place_of(access: Access) -> Place:
    """The source line, kind and memory space of an access, by which PTX and SASS are compared."""
    # An atomic whose result nobody reads is a reduction in SASS.
    kind = "atomic" if access.kind == "reduction" else access.kind
    return access.source, kind, access.space


def by_place(accesses: Iterable[Access], level: Level) -> dict[Place, list[Access]]:
    """The accesses of one level by place, in program order."""
    places: dict[Place, list[Access]] = defaultdict(list)
    for access in accesses:
        if access.level == level:
            places[place_of(access)].append(access)
    return dict(places)


def differences(
    accesses: Iterable[Access], ignored: Collection[Place] = ()
) -> tuple[Difference, ...]:
    """Places where the widest access in SASS is not as wide as the widest in PTX.

    Counts alone do not matter: ptxas unrolls loops. Places that only one level has are left out,
    as line information is not exact, and so are `ignored` ones, where SASS moves data for what is
    not an access in PTX.
    """
    listed = list(accesses)
    written, running = by_place(listed, "ptx"), by_place(listed, "sass")
    both = (place for place in written if place in running and place not in ignored)
    compared = (_difference(place, written[place], running[place]) for place in both)
    return tuple(difference for difference in compared if difference)


def stores_of_tensor_maps(function: Function) -> set[Place]:
    """Places where PTX fills in a tensor map in shared memory, for which SASS has plain stores."""
    return {
        (instruction.source, "store", "shared")
        for instruction in function.instructions
        if instruction.opcode.startswith("tensormap.replace") and ".shared" in instruction.opcode
    }


def widths(accesses: Sequence[Access]) -> Mapping[int, int]:
    """The number of instructions by width in bits, the widest first."""
    counts: dict[int, int] = defaultdict(int)
    for access in accesses:
        if access.width_bits:
            counts[access.width_bits] += access.count
    return dict(sorted(counts.items(), reverse=True))


def widths_text(counts: Mapping[int, int]) -> str:
    """Widths as text: `2 × 128 bits + 1 × 32 bits`."""
    return " + ".join(f"{count} × {width} bits" for width, count in counts.items())


def _difference(
    place: Place, written: Sequence[Access], running: Sequence[Access]
) -> Difference | None:
    source, kind, space = place
    ptx, sass = widths(written), widths(running)
    # Without source lines all accesses share one place, and none can be matched.
    if source is None or kind not in _COMPARED or space not in _SPACES or not (ptx and sass):
        return None
    if max(sass) == max(ptx):
        return None
    change: Literal["narrowed", "split", "widened"] = "widened"
    if max(sass) < max(ptx):
        written_bits, running_bits = (sum(w * n for w, n in side.items()) for side in (ptx, sass))
        change = "narrowed" if running_bits < written_bits else "split"
    return Difference(source, kind, space, change, widths_text(ptx), widths_text(sass))


MOST_TRIALS = 20

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
        return accesses(self.function)

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
    left_out: set[Change] = field(default_factory=set)
    _outcomes: dict[Change, Outcome | None] = field(default_factory=dict)
    _combined: dict[Change, Outcome | None] = field(default_factory=dict)
    _original: Outcome | None = None
    _expected: list[Change] = field(default_factory=list)

    def expect(self, changes: Iterable[Change]) -> None:
        """Announce the changes to try next, so that two compile at the same time."""
        self._expected = list(changes)

    def outcome(self, change: Change) -> Outcome | None:
        """The kernel after the change; None if it does not compile or was not tried."""
        if self.refused(change):
            return None
        if change not in self._outcomes:
            outcome = self._tried(change)
            if change in self.left_out:
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
        if key not in self._compared:
            compare = self.compare or (lambda _: _NOT_COMPARED)
            self._compared[key] = self._differs_already(key) or compare(change)
        return self._compared[key]

    def _differs_already(self, key: Change) -> Equivalence | None:
        """An earlier answer `differs` for another value of the same constexprs; else None."""
        names = {name for name, _ in key.constexprs}
        for other, answer in self._compared.items():
            if answer.verdict == "differs" and {name for name, _ in other.constexprs} <= names:
                return answer
        return None

    def refused(self, change: Change) -> bool:
        """Whether a change is not tried: there were too many, or the time is spent."""
        if change in self._outcomes:
            return False
        return change in self.left_out or len(self._outcomes) >= MOST_TRIALS

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
        by_array = outcome.provenance.by_array(a for a in outcome.ptx_accesses if _is_at(a, place))
        counts = widths(by_array.get(array, ()))
        return next(
            (w for w in counts if narrower_fraction(counts, w) <= narrow_fraction / 2), None
        )

    def _tried(self, change: Change) -> Outcome | None:
        expected = self._expected
        after = expected[expected.index(change) + 1 :] if change in expected else []
        following = next((each for each in after if each not in self._outcomes), None)
        try:
            outcome = Outcome(self.recompile(change, following))
            # Damaged PTX raises here.
            return outcome if outcome.ptx_accesses else None
        except TimeUpError:
            self.left_out.add(change)
            return None
        except TraceviewError:
            # A change that does not compile proves nothing.
            return None


def _is_at(access: Access, place: Place) -> bool:
    """Whether an access is at a place; a load that gets wide may become an asynchronous copy."""
    source, kind, space = place_of(access)
    reads = {"load", "async-copy"}
    return (source, space) == (place[0], place[2]) and (
        kind == place[1] or {kind, place[1]} <= reads
    )


def narrower_fraction(counts: Mapping[int, int], width: int) -> float:
    """The fraction of all bits that accesses narrower than `width` move."""
    bits = {each: each * count for each, count in counts.items()}
    return sum(moved for each, moved in bits.items() if each < width) / sum(bits.values())
