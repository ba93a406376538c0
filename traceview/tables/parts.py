"""Long columns part by part, and whether they are in order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.tables.arrays import Array

# Intermediate arrays of so many rows stay in the CPU cache and need no new memory.
_PART = 1 << 17


def parts(rows: int, least: int = 0) -> Iterator[slice]:
    """Slices that cover `rows` rows, to compute on long columns with short temporary arrays.

    Each but the last has at least `least` rows.
    """
    each = max(_PART, least)
    return (slice(first, min(first + each, rows)) for first in range(0, rows, each))


def overlapping_parts(rows: int) -> Iterator[slice]:
    """As `parts`, each beginning with the last row of the one before, to compare neighbours."""
    return (slice(max(part.start - 1, 0), part.stop) for part in parts(rows))


def in_order(*keys: Array) -> bool:
    """Whether rows are in lexicographic order of the keys."""
    return all(_in_order(*(key[part] for key in keys)) for part in overlapping_parts(len(keys[0])))


def _in_order(*keys: Array) -> bool:
    equal = np.ones(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        if (equal & (key[1:] < key[:-1])).any():
            return False
        equal &= key[1:] == key[:-1]
    return True
