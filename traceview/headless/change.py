"""A change under which a kernel is compiled again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """What a trial compiles differently; what it does not name stays as it was.

    `divisible` names arguments taken to be divisible by 16, `constexprs` gives arguments the
    value of a compile-time constant, `max_registers` is the most that a thread may have.
    """

    divisible: tuple[str, ...] = ()
    constexprs: tuple[tuple[str, int], ...] = ()
    num_warps: int | None = None
    num_stages: int | None = None
    max_registers: int | None = None

    @property
    def said(self) -> str:
        """The change in words, such as `n divisible by 16, num_warps=1`."""
        parts = [f"{' and '.join(self.divisible)} divisible by 16"] if self.divisible else []
        parts += [f"{name}={value}" for name, value in self.constexprs]
        parts += [f"num_warps={self.num_warps}"] if self.num_warps else []
        parts += [f"num_stages={self.num_stages}"] if self.num_stages else []
        parts += [f"maxnreg={self.max_registers}"] if self.max_registers else []
        return ", ".join(parts)
