"""Alignment of two sequences: which elements of one correspond to which of the other."""

from __future__ import annotations

from collections.abc import Sequence

MOST_EDITS = 1000
"""Sequences that differ in more elements are not aligned: the work grows with the square."""


def align(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]] | None:
    """The pairs of equal elements of a longest common subsequence, ascending.

    None where more than MOST_EDITS elements are to be removed or added. Myers, An O(ND) difference
    algorithm and its variations, 1986.
    """
    reach: dict[int, int] = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(len(before) + len(after), MOST_EDITS) + 1):
        trail.append({k: reach[k] for k in range(-edits - 1, edits + 2) if k in reach})
        for diagonal in range(-edits, edits + 1, 2):
            x = _start(reach, diagonal, edits)
            while x < len(before) and _same(before, after, x, x - diagonal):
                x += 1
            reach[diagonal] = x
            if x >= len(before) and x - diagonal >= len(after):
                return _walk_back(trail, len(before), len(after))
    return None


def _same(before: Sequence[int], after: Sequence[int], x: int, y: int) -> bool:
    return y < len(after) and before[x] == after[y]


def _start(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """Where a path enters a diagonal: by an added element from above, else by a removed one."""
    above, left = reach.get(diagonal + 1, -1), reach.get(diagonal - 1, -1)
    if diagonal == -edits or (diagonal != edits and left < above):
        return above
    return left + 1


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for edits in range(len(trail) - 1, -1, -1):
        reach, diagonal = trail[edits], x - y
        start = _start(reach, diagonal, edits)
        while x > start:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        came_down = diagonal == -edits or (
            diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
        )
        if edits:
            x, y = (x, y - 1) if came_down else (x - 1, y)
    return pairs[::-1]
