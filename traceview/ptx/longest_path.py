"""The heaviest path through a function: that of a thread that takes the costliest branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from traceview.ptx.loops import Edges, Jump, block_edges, block_starts


def heaviest(weights: Sequence[int], jumps: Sequence[Jump]) -> int | None:
    """The greatest sum of weights (one per instruction) on a path from the first to an end.

    None if an instruction with a weight is in a loop, as trip counts are not known. A predicated
    instruction counts in full.
    """
    starts = block_starts(len(weights), jumps)
    edges = block_edges(starts, jumps)
    own = [sum(weights[begin:end]) for begin, end in pairwise(starts)] + [0]
    most: dict[int, int] = {}
    for cycle in _components(edges):
        after = [s for block in cycle for s in edges[block] if s not in cycle]
        is_loop = len(cycle) > 1 or any(block in edges[block] for block in cycle)
        if is_loop and any(own[block] for block in cycle):
            return None
        best = max((most[successor] for successor in after), default=0)
        for block in cycle:
            most[block] = best + own[block]
    return most[0]


def _components(edges: Edges) -> Iterator[frozenset[int]]:
    """The strongly connected components reachable from block 0, successors first.

    Tarjan's algorithm with an explicit stack, as generated code nests to any depth.
    """
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    waiting = [(0, iter(edges[0]))]
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
