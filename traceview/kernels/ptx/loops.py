"""Loop depth of each instruction, in near-linear time.

A natural loop belongs to a header that dominates the source of an edge back to it. Dominators
come from Lengauer and Tarjan's algorithm. Loop bodies are collapsed into their headers from the
inside out, so that no block is visited once per enclosing loop. A cycle with two entries
(irreducible control flow) has no header and does not count as a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from traceview.base.records import record

T = TypeVar("T", bound=Hashable)
Edges = Sequence[Sequence[int]]


class Jump(NamedTuple):
    """A branch or exit at instruction `at`: its targets, and whether it may fall through."""

    at: int
    targets: tuple[int, ...]
    falls_through: bool


@record
class LoopNest:
    """The loops of a function. A loop is named by the index of the first instruction of its header.

    `innermost` holds, per instruction, the innermost loop around it, `outer` the loop around each
    loop; None where there is none.
    """

    innermost: tuple[int | None, ...]
    outer: Mapping[int, int | None]

    def within(self, loop: int) -> list[int]:
        """The instructions of a loop, those of inner loops included."""
        inside = {each: self._is_inside(each, loop) for each in self.outer}
        return [at for at, each in enumerate(self.innermost) if each is not None and inside[each]]

    def depth(self, loop: int) -> int:
        """The nesting depth of a loop, itself included; 1 for an outermost loop."""
        return 1 + (self.depth(outer) if (outer := self.outer[loop]) is not None else 0)

    def _is_inside(self, inner: int | None, loop: int) -> bool:
        while inner is not None and inner != loop:
            inner = self.outer[inner]
        return inner == loop


def reached(values: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """What a search from some values meets, depth first, each once."""
    seen, waiting = set[T](), list(values)
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            yield value
            waiting += following(value)


def loop_nest(count: int, jumps: Iterable[Jump]) -> LoopNest:
    """The loops around each of `count` instructions; arguments as for `loop_depths`."""
    jumps = list(jumps)
    starts = block_starts(count, jumps)
    order, outer, is_header = _loops(block_edges(starts, jumps))
    loops = [
        block if heads else around
        for block, (around, heads) in enumerate(zip(outer, is_header, strict=True))
    ]
    first = {block: starts[order[block]] for block in range(len(order))} | {-1: None}
    by_block = {order[block]: first[loop] for block, loop in enumerate(loops)}
    innermost = (
        by_block.get(block)
        for block, (begin, end) in enumerate(pairwise(starts))
        for _ in range(begin, end)
    )
    headers = (block for block, heads in enumerate(is_header) if heads)
    around = {starts[order[block]]: first[outer[block]] for block in headers}
    return LoopNest(tuple(innermost), around)


def loop_depths(count: int, jumps: Iterable[Jump]) -> list[int]:
    """The number of loops around each of `count` instructions.

    Targets are instruction indices, `count` stands for the end. Jumps are in order of `at`.
    """
    jumps = list(jumps)
    if not any(target <= jump.at for jump in jumps for target in jump.targets):
        return [0] * count
    starts = block_starts(count, jumps)
    edges = block_edges(starts, jumps)
    order, outer, is_header = _loops(edges)
    depths: list[int] = []
    for around, heads in zip(outer, is_header, strict=True):
        depths.append((depths[around] if around >= 0 else 0) + heads)
    by_block = dict(zip(order, depths, strict=True))
    depths = [by_block.get(block, 0) for block in range(len(edges))]
    return [
        depth
        for depth, (begin, end) in zip(depths, pairwise(starts), strict=False)
        for _ in range(begin, end)
    ]


def block_starts(count: int, jumps: Iterable[Jump]) -> list[int]:
    """The first instruction of each basic block, and `count` as the last entry."""
    listed = list(jumps)
    return sorted({0, count, *(t for j in listed for t in j.targets), *(j.at + 1 for j in listed)})


def block_edges(starts: Sequence[int], jumps: Iterable[Jump]) -> list[list[int]]:
    """The successors of each basic block, by number; the last block stands for the end."""
    block = {start: number for number, start in enumerate(starts)}
    edges = [[number + 1] for number in range(len(starts) - 1)] + [[]]
    for jump in jumps:
        after = block[jump.at + 1]
        edges[after - 1] = [block[target] for target in jump.targets]
        if jump.falls_through:
            edges[after - 1].append(after)
    return edges


def _loops(edges: Edges) -> tuple[list[int], list[int], list[bool]]:
    """Blocks in preorder; for each, the header of the loop around it or -1, and whether it is one.

    Headers are preorder numbers. The loop around a header is the next outer one, not its own.
    """
    order, parents = _depth_first(edges)
    number = {block: place for place, block in enumerate(order)}
    before: list[list[int]] = [[] for _ in order]
    for place, block in enumerate(order):
        for successor in edges[block]:
            before[number[successor]].append(place)
    dominators = _dominators(before, parents)
    # Per block, the header around it or -1, and whether it is one; all in preorder numbers.
    size = len(before)
    outer, merged, is_header = [-1] * size, list(range(size)), [False] * size
    dominates = _dominance(dominators)
    for header in reversed(range(size)):
        body = [source for source in before[header] if dominates(header, source)]
        is_header[header] = bool(body)
        while body:
            block = _merged_into(body.pop(), merged)
            if block != header:
                merged[block] = outer[block] = header
                body.extend(before[block])
    return order, outer, is_header


def _depth_first(edges: Edges) -> tuple[list[int], list[int]]:
    order: list[int] = []
    parents: list[int] = []
    seen = set[int]()
    waiting = [(0, 0)]
    while waiting:
        block, parent = waiting.pop()
        if block in seen:
            continue
        seen.add(block)
        waiting.extend((successor, len(order)) for successor in reversed(edges[block]))
        order.append(block)
        parents.append(parent)
    return order, parents


def _merged_into(block: int, merged: list[int]) -> int:
    while merged[block] != block:
        merged[block] = merged[merged[block]]
        block = merged[block]
    return block


def _dominance(dominators: Sequence[int]) -> Callable[[int, int], bool]:
    """A constant-time test whether a block dominates another: intervals over the tree."""
    size = len(dominators)
    sizes, first, free = [1] * size, [0] * size, [1] * size
    for block in range(size - 1, 0, -1):
        sizes[dominators[block]] += sizes[block]
    for block in range(1, size):
        above = dominators[block]
        first[block] = free[above]
        free[above] += sizes[block]
        free[block] = first[block] + 1
    return lambda above, block: first[above] <= first[block] < first[above] + sizes[above]


def _dominators(before: Edges, parents: Sequence[int]) -> list[int]:
    """The immediate dominator of each block in preorder numbers; the root's is itself."""
    size = len(parents)
    semi, best, ancestor = list(range(size)), list(range(size)), [-1] * size
    immediate = [0] * size
    waiting: list[list[int]] = [[] for _ in range(size)]
    for block in range(size - 1, 0, -1):
        parent = parents[block]
        for source in before[block]:
            semi[block] = min(semi[block], semi[_evaluate(source, semi, best, ancestor)])
        waiting[semi[block]].append(block)
        ancestor[block] = parent
        for other in waiting[parent]:
            least = _evaluate(other, semi, best, ancestor)
            immediate[other] = least if semi[least] < semi[other] else parent
        waiting[parent].clear()
    for block in range(1, size):
        if immediate[block] != semi[block]:
            immediate[block] = immediate[immediate[block]]
    return immediate


def _evaluate(block: int, semi: list[int], best: list[int], ancestor: list[int]) -> int:
    """The block of least semidominator on the path above `block`; compresses the path."""
    if ancestor[block] < 0:
        return block
    path = [block]
    while ancestor[ancestor[path[-1]]] >= 0:
        path.append(ancestor[path[-1]])
    for below in reversed(path[:-1]):
        above = ancestor[below]
        if semi[best[above]] < semi[best[below]]:
            best[below] = best[above]
        ancestor[below] = ancestor[above]
    return best[block]
