"""Group and join rows by small integer keys: direct addressing where the keys are dense.

Hashing and comparison sorts are what makes trace tools slow; ids in traces are nearly always dense,
so a table of one slot a key does both jobs in a few linear passes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.tables import Array, Integers, Mask


class Groups(NamedTuple):
    """`ids`: group number of each row, 0 to count−1; `first`: the first row of each group."""

    ids: Integers
    first: Integers

    @property
    def size(self) -> int:
        return len(self.first)


def group(*keys: Array) -> Groups:
    """Rows with equal keys get equal ids; groups are ordered by their keys."""
    combined = _combine(keys)
    if not len(combined):
        return Groups(np.zeros(0, np.int64), np.zeros(0, np.int64))
    least = int(combined.min())
    span = int(combined.max()) - least + 1
    if span > 4 * len(combined) + 1024:
        _, first, ids = np.unique(combined, return_index=True, return_inverse=True)
        return Groups(ids.astype(np.int64), first.astype(np.int64))
    slots = np.full(span, -1, np.int64)
    slots[combined[::-1] - least] = np.arange(len(combined) - 1, -1, -1)
    used = slots >= 0
    number = np.cumsum(used) - 1
    return Groups(number[combined - least], slots[used])


def _combine(keys: tuple[Array, ...]) -> Integers:
    """One int64 a row, equal where all keys are equal, in the same order."""
    combined = keys[0].astype(np.int64)
    for key in keys[1:]:
        if not len(key):
            return combined
        low, high = int(key.min()), int(key.max())
        bound = max(abs(int(combined.min())), abs(int(combined.max()))) + 1
        if bound * (high - low + 1) >= 2**62:
            combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            low, high = 0, int(key.max())
        combined = combined * (high - low + 1) + (key.astype(np.int64) - low)
    return combined


class Stats(NamedTuple):
    """Figures of each group; `median` of an even count is the mean of the middle two, rounded."""

    calls: Integers
    total: Integers
    least: Integers
    median: Integers
    most: Integers


def stats(groups: Groups, values: Integers) -> Stats:
    """Count, sum, least, median and greatest value of each group."""
    if not groups.size:
        none = np.zeros(0, np.int64)
        return Stats(none, none, none, none, none)
    calls = np.bincount(groups.ids, minlength=groups.size).astype(np.int64)
    ordered = values[np.lexsort((values, groups.ids))]
    last = np.cumsum(calls)
    first = last - calls
    low = ordered[first + (calls - 1) // 2]
    median = low + (ordered[first + calls // 2] - low) // 2
    total = np.add.reduceat(ordered, first)
    return Stats(calls, total, ordered[first], median, ordered[last - 1])


def sums(groups: Groups, values: Array) -> Integers:
    """Exact int64 sum of each group."""
    result = np.zeros(groups.size, np.int64)
    np.add.at(result, groups.ids, values)
    return result


def distinct(groups: Groups, values: Array) -> Integers:
    """Number of different values in each group."""
    pairs = group(groups.ids, values)
    return np.bincount(groups.ids[pairs.first], minlength=groups.size).astype(np.int64)


def match(
    process: Array, key: Integers, wanted_process: Array, wanted_key: Integers, usable: Mask
) -> Integers:
    """For each wanted (process, key), the first row that has it, or −1.

    `usable` is False for the wanted rows without a key.
    """
    found = np.full(len(wanted_key), -1, np.int64)
    if not len(key) or not usable.any():
        return found
    for number in np.unique(wanted_process[usable]):
        rows = np.flatnonzero(process == number)
        asked = np.flatnonzero((wanted_process == number) & usable)
        if len(rows):
            found[asked] = _match_one(key[rows], rows, wanted_key[asked])
    return found


def _match_one(key: Integers, rows: Integers, wanted: Integers) -> Integers:
    least = int(key.min())
    span = int(key.max()) - least + 1
    if span > 8 * (len(key) + len(wanted)) + 1024:
        order = np.argsort(key, kind="stable")
        place = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
        hit = key[order][place] == wanted
        return np.where(hit, rows[order[place]], -1)
    slots = np.full(span, -1, np.int64)
    slots[key[::-1] - least] = rows[::-1]
    inside = (wanted >= least) & (wanted < least + span)
    result: Integers = np.where(inside, slots[np.where(inside, wanted - least, 0)], -1)
    return result
