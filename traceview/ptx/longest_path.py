"""The heaviest path through a function: that of a thread that takes the costliest branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from traceview.ptx.loops import Edges, Jump, LoopNest, block_edges, block_starts, loop_nest
from traceview.ptx.model import Function, Instruction
from traceview.records import record

Cycle = frozenset[int]


def heaviest(weights: Sequence[int], jumps: Sequence[Jump]) -> int | None:
    """The greatest sum of weights (one per instruction) on a path from the first to an end.

    None if an instruction with a weight is in a loop, as trip counts are not known. A predicated
    instruction counts in full.
    """
    starts = block_starts(len(weights), jumps)
    edges = block_edges(starts, jumps)
    own = [sum(weights[begin:end]) for begin, end in pairwise(starts)] + [0]
    cycles = list(_components(edges, 0))
    for cycle in cycles:
        is_loop = len(cycle) > 1 or any(block in edges[block] for block in cycle)
        if is_loop and any(own[block] for block in cycle):
            return None
    return sum(own[block] for block in _heaviest_blocks(cycles, edges, own))


@record
class Passes:
    """Instructions that a thread executes in one pass of a loop: one path through its body.

    Of alternatives (`if` and `else`, an unrolled loop and the loop for its remainder) a thread
    takes one.
    """

    function: Function

    @cached_property
    def _at(self) -> dict[int, int]:
        # By identity: inline assembly may repeat an instruction on one line of the text.
        return {id(each): at for at, each in enumerate(self.function.instructions)}

    @cached_property
    def _nest(self) -> LoopNest:
        return loop_nest(len(self.function.instructions), self.function.jumps)

    @cached_property
    def _starts(self) -> list[int]:
        return block_starts(len(self.function.instructions), self.function.jumps)

    @cached_property
    def _edges(self) -> list[list[int]]:
        return block_edges(self._starts, self.function.jumps)

    @cached_property
    def _block_of(self) -> list[int]:
        blocks = enumerate(pairwise(self._starts))
        return [block for block, (begin, end) in blocks for _ in range(begin, end)]

    def heaviest(self, weights: Iterable[tuple[Instruction, int]]) -> list[Instruction]:
        """The given instructions that one pass of their innermost loop executes, in order.

        Of all passes, the one with the greatest sum of weights counts. Instructions outside the
        deepest of the loops are left out.
        """
        by_loop: dict[int | None, dict[int, int]] = {}
        for instruction, weight in weights:
            at = self._at[id(instruction)]
            by_loop.setdefault(self._nest.innermost[at], {})[at] = weight
        deepest = max(map(self._depth, by_loop), default=0)
        passes = [
            self._pass(loop, weighed)
            for loop, weighed in by_loop.items()
            if self._depth(loop) == deepest
        ]
        best = max(passes, key=lambda each: sum(each.values()), default={})
        return [self.function.instructions[at] for at in sorted(best)]

    def _depth(self, loop: int | None) -> int:
        return 0 if loop is None else self._nest.depth(loop)

    def _pass(self, loop: int | None, weighed: dict[int, int]) -> dict[int, int]:
        """The weights, by instruction, on the heaviest path from the loop's header."""
        if len({self._block_of[at] for at in weighed}) == 1:
            return weighed
        first = 0 if loop is None else self._block_of[loop]
        edges = self._edges if loop is None else self._edges_within(loop, first)
        own = [0] * len(edges)
        for at, weight in weighed.items():
            own[self._block_of[at]] += weight
        path = _heaviest_blocks(list(_components(edges, first)), edges, own)
        return {at: weight for at, weight in weighed.items() if self._block_of[at] in path}

    def _edges_within(self, loop: int, header: int) -> list[list[int]]:
        """The edges between blocks of a loop without those that begin its next pass."""
        inside = {self._block_of[at] for at in self._nest.within(loop)}
        return [
            [each for each in after if each in inside and each != header] if block in inside else []
            for block, after in enumerate(self._edges)
        ]


def _heaviest_blocks(cycles: Iterable[Cycle], edges: Edges, own: Sequence[int]) -> set[int]:
    """The blocks on the heaviest path; `cycles` are the graph's components, successors first."""
    most: dict[int, int] = {}
    following: dict[Cycle, int | None] = {}
    cycle_of: dict[int, Cycle] = {}
    last: Cycle | None = None
    for last in cycles:
        after = [each for block in last for each in edges[block] if each not in last]
        best = max(after, key=lambda each: most[each], default=None)
        following[last] = best
        total = sum(own[block] for block in last) + (most[best] if best is not None else 0)
        for block in last:
            most[block], cycle_of[block] = total, last
    path: set[int] = set()
    while last is not None:
        path |= last
        best = following[last]
        last = cycle_of[best] if best is not None else None
    return path


def _components(edges: Edges, first: int) -> Iterator[Cycle]:
    """The strongly connected components reachable from a block, successors first.

    Tarjan's algorithm with an explicit stack, as generated code nests to any depth.
    """
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    waiting = [(first, iter(edges[first]))]
    closed: set[int] = set()
    while waiting:
        block, successors = waiting[-1]
        if block not in number:
            number[block] = low[block] = len(number)
            open_.append(block)
        for successor in successors:
            if successor not in number:
                waiting.append((successor, iter(edges[successor])))
                break
            if successor not in closed:
                low[block] = min(low[block], number[successor])
        else:
            waiting.pop()
            if waiting:
                above = waiting[-1][0]
                low[above] = min(low[above], low[block])
            if low[block] == number[block]:
                at = open_.index(block)
                closed.update(open_[at:])
                yield frozenset(open_[at:])
                del open_[at:]
