"""A change to apply when a kernel is recompiled."""

from __future__ import annotations

from typing import Literal

from traceview.records import record

# Whether a kernel computes the same results with other constexprs.


@record
class Equivalence:
    """Whether results stay the same with a change, and how that is known or why it is not.

    `grid` is the grid that the changed launch needs, if the program passes a fixed one.
    """

    verdict: Literal["same", "differs", "unknown"]
    detail: str
    grid: tuple[int, int, int] | None = None


@record
class Change:
    """A change that a recompilation makes; everything else stays as it was.

    `divisible` names arguments to assume divisible by 16. `constexprs` turns arguments into
    compile-time constants. `max_registers` limits registers per thread (maxnreg). `resizes` says
    that the constexprs get other values, which may change what is computed.
    """

    divisible: tuple[str, ...] = ()
    constexprs: tuple[tuple[str, int], ...] = ()
    num_warps: int | None = None
    num_stages: int | None = None
    max_registers: int | None = None
    resizes: bool = False

    @property
    def tunes(self) -> bool:
        """Whether it changes the kernel, and not only what the compiler knows of its arguments."""
        return bool(self.constexprs or self.num_warps or self.num_stages or self.max_registers)

    @property
    def description(self) -> str:
        """The change as text, such as `n divisible by 16, num_warps=1`."""
        parts = [f"{' and '.join(self.divisible)} divisible by 16"] if self.divisible else []
        parts += [f"{name}={value}" for name, value in self.constexprs]
        parts += [f"num_warps={self.num_warps}"] if self.num_warps else []
        parts += [f"num_stages={self.num_stages}"] if self.num_stages else []
        parts += [f"maxnreg={self.max_registers}"] if self.max_registers else []
        return ", ".join(parts)
