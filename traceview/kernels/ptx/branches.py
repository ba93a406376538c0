"""The branches of a PTX function that decide whether an instruction runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property

from traceview.base.records import record
from traceview.kernels.ptx.loops import Jump, block_edges, block_starts, reached
from traceview.kernels.ptx.model import Function, Instruction


@record
class Branches:
    """The conditional branches of a function, and the code that only one way behind each reaches.

    Those that end a loop are left out.
    """

    function: Function
    _ways: dict[int, tuple[frozenset[int], frozenset[int]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def around(
        self, instruction: Instruction, select: Callable[[Instruction], bool] = lambda _: True
    ) -> Iterator[tuple[Instruction, bool]]:
        """The selected branches that decide if an instruction runs; true: it does where they jump.

        Of a branch in an inner loop, the code behind that loop does not depend.
        """
        code, block = self.function.instructions, self._block(self._place_of[instruction.line])
        for jump in self.function.jumps:
            branch = code[jump.at]
            outer = branch.loop_depth <= instruction.loop_depth
            if jump.falls_through and len(jump.targets) == 1 and outer and select(branch):
                jumps, passes = self._behind(jump)
                if (block in jumps) != (block in passes):
                    yield branch, block in jumps

    def _behind(self, jump: Jump) -> tuple[frozenset[int], frozenset[int]]:
        """The blocks that a branch reaches where it jumps, and where not, but for its own."""
        if jump.at not in self._ways:
            code, own = self.function.instructions, self._block(jump.at)
            first = [at for at in (*jump.targets, jump.at + 1) if at < len(code)]
            ends = len(first) < 2 or any(
                code[at].loop_depth < code[jump.at].loop_depth for at in first
            )
            jumps, passes = (
                frozenset(
                    reached([self._block(at)], lambda b: [e for e in self._edges[b] if e != own])
                )
                for at in (first if not ends else (jump.at, jump.at))
            )
            self._ways[jump.at] = jumps, passes
        return self._ways[jump.at]

    def _block(self, at: int) -> int:
        return bisect_right(self._starts, at) - 1

    @cached_property
    def _place_of(self) -> dict[int, int]:
        return {each.line: at for at, each in enumerate(self.function.instructions)}

    @cached_property
    def _starts(self) -> list[int]:
        return block_starts(len(self.function.instructions), self.function.jumps)

    @cached_property
    def _edges(self) -> list[list[int]]:
        return block_edges(self._starts, self.function.jumps)
