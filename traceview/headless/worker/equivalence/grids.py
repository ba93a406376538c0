"""The grid of a launch with other constexprs, and programs of two grids that correspond."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from traceview.headless.worker.equivalence.launch_sample import Grid, LaunchSample, TensorSample


def grids_with(sample: LaunchSample, changed: Mapping[str, Any]) -> list[Grid]:
    """The grids that a launch with other constexprs may have, the likeliest first.

    That is one if the program passes a grid function, none if that fails. A fixed grid may count
    tiles of the old size: it comes fitted to the new size first, and unchanged last.
    """
    if sample.grid_function is not None:
        grid = sample.grid_with(changed)
        return [grid] if grid else []
    return [*_fitted(sample, changed), sample.grid]


def _fitted(sample: LaunchSample, changed: Mapping[str, Any]) -> Iterator[Grid]:
    """A fixed grid with each axis that counts tiles of a changed constexpr recounted."""
    sizes = set(_sizes(sample.arguments.values()))
    integers = {name: new for name, new in changed.items() if type(new) is int}
    for axis, blocks in enumerate(sample.grid):
        for name, new in integers.items():
            old = sample.arguments.get(name)
            if blocks == 1 or not isinstance(old, int) or min(old, new) < 1:
                continue
            for size in sorted(sizes):
                if -(-size // old) == blocks and size > old:
                    fitted = list(sample.grid)
                    fitted[axis] = -(-size // new)
                    yield fitted[0], fitted[1], fitted[2]
                    break


def _sizes(arguments: Any) -> Iterator[int]:
    for argument in arguments:
        if isinstance(argument, TensorSample):
            yield from argument.sizes
            yield argument.numel()
        elif isinstance(argument, tuple):
            yield from _sizes(argument)
        elif type(argument) is int:
            yield argument


def every(grid: Grid) -> list[Grid]:
    """All programs of a grid."""
    return [(x, y, z) for x, y, z in product(*map(range, grid))]


def last_of(grid: Grid) -> Grid:
    """The last program of a grid."""
    return grid[0] - 1, grid[1] - 1, grid[2] - 1


def corners(grid: Sequence[int]) -> list[Grid]:
    """The first and the last program of a grid, then one in the middle."""
    each = [tuple(0 for _ in grid), tuple(n - 1 for n in grid), tuple(n // 2 for n in grid)]
    return [(x, y, z) for x, y, z in dict.fromkeys(each)]


def within(corner: Grid, coarse: Sequence[int], grid: Grid) -> list[Grid]:
    """The programs of a grid that correspond to one program of a coarser grid."""
    axes = []
    for at, few, many in zip(corner, coarse, grid, strict=True):
        factor = -(-many // few) if few else 1
        start = min(at * factor, many - 1)
        axes.append(range(start, min(start + factor, many)))
    return [(x, y, z) for x, y, z in product(*axes)]


def first_and_last(grid: Grid, most: int) -> Iterator[Grid]:
    """Programs from both ends of a grid in turn, x fastest, as GPUs start them."""
    x, y, _ = grid
    count = math.prod(grid)
    for n in range(min(most, count)):
        at = n // 2 if n % 2 == 0 else count - 1 - n // 2
        yield at % x, at // x % y, at // (x * y)
