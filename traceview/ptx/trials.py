"""Recompiling a kernel with one assumption changed, to see whether an access gets wider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from traceview.errors import TraceviewError
from traceview.ptx.accesses import accesses
from traceview.ptx.levels import Place, place_of
from traceview.ptx.model import Access, Compiled
from traceview.ptx.parse import parse_ptx

MOST_TRIALS = 16


@dataclass(frozen=True)
class Change:
    """What a trial compiles differently; what it does not name stays as it was.

    `divisible` names arguments taken to be divisible by 16, `constexprs` gives arguments the
    value of a compile-time constant.
    """

    divisible: tuple[str, ...] = ()
    constexprs: tuple[tuple[str, int], ...] = ()
    num_warps: int | None = None
    num_stages: int | None = None

    @property
    def said(self) -> str:
        """The change in words, such as `n divisible by 16, num_warps=1`."""
        parts = [f"{' and '.join(self.divisible)} divisible by 16"] if self.divisible else []
        parts += [f"{name}={value}" for name, value in self.constexprs]
        parts += [f"num_warps={self.num_warps}"] if self.num_warps else []
        parts += [f"num_stages={self.num_stages}"] if self.num_stages else []
        return ", ".join(parts)


Recompile = Callable[[Change], Compiled]
"""Compile the same kernel changed so; raises TraceviewError where that cannot be done."""


@dataclass
class Trials:
    """The recompilations of one kernel, each made once, and at most `MOST_TRIALS` of them."""

    recompile: Recompile
    _done: dict[Change, tuple[Access, ...] | None] = field(default_factory=dict)

    @property
    def worked(self) -> bool:
        """True if a change compiled at all: only then does it mean something that none helped."""
        return any(found is not None for found in self._done.values())

    def widest(self, change: Change, place: Place) -> int | None:
        """The widest access of a place after the change, in bits; None if that was not tried."""
        if change not in self._done and len(self._done) >= MOST_TRIALS:
            return None
        if change not in self._done:
            self._done[change] = self._tried(change)
        found = self._done[change]
        if found is None:
            return None
        return max((a.width_bits or 0 for a in found if _is_at(a, place)), default=None)

    def _tried(self, change: Change) -> tuple[Access, ...] | None:
        try:
            compiled = self.recompile(change)
            kernels = parse_ptx(compiled.ptx or "").kernels()
        except TraceviewError:
            # A change that does not compile (too much shared memory) proves nothing.
            return None
        same = [kernel for kernel in kernels if kernel.name == compiled.name] or kernels
        return tuple(accesses(same[0])) if same else None


def _is_at(access: Access, place: Place) -> bool:
    """Whether it does the work of that place: a load that gets wide may become a copy."""
    source, kind, space = place_of(access)
    reads = {"load", "async-copy"}
    return (source, space) == (place[0], place[2]) and (
        kind == place[1] or {kind, place[1]} <= reads
    )
