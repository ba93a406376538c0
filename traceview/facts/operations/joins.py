"""Rows joined by process and key, such as operations to the calls that launched them.

Ids in traces are nearly always dense, so a table with one slot per key finds the rows in a few
linear passes; sparse ones are hashed.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.compiled import library
from traceview.tables import Array, Integers, Mask, RowNumbers, picked, row_numbers


def match(
    process: Array, key: Integers, wanted_process: Array, wanted_key: Integers, usable: Mask
) -> Integers:
    """For each wanted (process, key), the first row that has it, or −1.

    `usable` is False for the wanted rows without a key.
    """
    first_row = np.full(len(wanted_key), -1, np.int64)
    if not len(key) or not usable.any():
        return first_row
    known = groups.rows_of(process)
    for number, rows_wanted in groups.rows_of(wanted_process).items():
        rows_wanted = rows_wanted[picked(usable, rows_wanted)]
        if number in known and len(rows_wanted):
            rows, keys = known[number], picked(wanted_key, rows_wanted)
            first_row[rows_wanted] = _match_one(picked(key, rows), rows, keys)
    return first_row


def _match_one(key: Integers, rows: RowNumbers, wanted: Integers) -> Integers:
    least = int(key.min())
    span = int(key.max()) - least + 1
    if span > 8 * (len(key) + len(wanted)) + 1024:
        return np.append(rows, -1)[_places_of_sparse(key, wanted)]
    slots = np.full(span, -1, np.int32)
    slots[key[::-1] - least] = rows[::-1]
    inside = (wanted >= least) & (wanted < least + span)
    result: Integers = np.where(inside, slots[np.where(inside, wanted - least, 0)], -1)
    return result


def _places_of_sparse(key: Integers, wanted: Integers) -> RowNumbers:
    """The first place of each wanted key among the keys, −1 for none."""
    bits = len(key).bit_length() + 1
    slots, matched = np.empty(1 << bits, np.int32), np.empty(len(wanted), np.int32)
    given = (key, len(key), wanted, len(wanted), slots, bits, matched)
    if library.call("traceview_match_keys", *given):
        return matched
    # Keys crafted to have equal hashes.
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    place = np.minimum(np.searchsorted(ordered, wanted), len(key) - 1)
    return row_numbers(np.where(ordered[place] == wanted, order[place], -1))
