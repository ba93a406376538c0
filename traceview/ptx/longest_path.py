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
        return {id(instruction): at for at, instruction in enumerate(self.function.instructions)}

    @cached_property
    def _graph(self) -> tuple[LoopNest, list[list[int]], list[int]]:
        """The loops, the edges between blocks, and the block of each instruction."""
        count, jumps = len(self.function.instructions), self.function.jumps
        starts = block_starts(count, jumps)
        blocks = enumerate(pairwise(starts))
        block_of = [block for block, (begin, end) in blocks for _ in range(begin, end)]
        return loop_nest(count, jumps), block_edges(starts, jumps), block_of

    def heaviest(self, weights: Iterable[tuple[Instruction, int]]) -> list[Instruction]:
        """The given instructions that one pass of their innermost loop executes, in order.

        Of all passes, the one with the greatest sum of weights counts. Instructions outside the
        deepest of the loops are left out.
        """
        nest = self._graph[0]
        by_loop: dict[int | None, dict[int, int]] = {}
        for instruction, weight in weights:
            at = self._at[id(instruction)]
            by_loop.setdefault(nest.innermost[at], {})[at] = weight
        depths = {loop: 0 if loop is None else nest.depth(loop) for loop in by_loop}
        deepest = [loop for loop, depth in depths.items() if depth == max(depths.values())]
        passes = [self._pass(loop, by_loop[loop]) for loop in deepest]
        best = max(passes, key=lambda path: sum(path.values()), default={})
        return [self.function.instructions[at] for at in sorted(best)]

    def _pass(self, loop: int | None, weighed: dict[int, int]) -> dict[int, int]:
        """The weights, by instruction, on the heaviest path from the loop's header."""
        nest, edges, block_of = self._graph
        if len({block_of[at] for at in weighed}) == 1:
            return weighed
        first = 0
        if loop is not None:
            first, inside = block_of[loop], {block_of[at] for at in nest.within(loop)}
            # Edges to the header begin the loop's next pass.
            after = inside - {first}
            edges = [
                [successor for successor in successors if successor in after]
                if block in inside
                else []
                for block, successors in enumerate(edges)
            ]
        own = [0] * len(edges)
        for at, weight in weighed.items():
            own[block_of[at]] += weight
        path = _heaviest_blocks(list(_components(edges, first)), edges, own)
        return {at: weight for at, weight in weighed.items() if block_of[at] in path}


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
