"""Passes of a loop whose launches change from one to the next: sequences that grow, batches padded.

Libraries choose other kernels for other shapes, and no distance repeats. What does not change is
launched once in every pass: several kinds that occur equally often and take turns.
"""

from __future__ import annotations

import numpy as np

from traceview.tables import Integers

_LEAST_KINDS = 5
"""So many kinds must take turns: fewer do so by chance, or where a program logs."""
_MOST_TRIED = 8
_LEAST_COVERED = 0.5


def once_per_pass(kind: Integers, least: int) -> tuple[Integers, int] | None:
    """The launch that begins each of at least `least` passes, and the launch that ends the last.

    Kinds that occur equally often form a group; the largest groups are tried for kinds that take
    turns through most of the launches. None if no group has such kinds.
    """
    counts = np.bincount(kind)
    numbers, kinds = np.unique(counts[counts >= least], return_counts=True)
    order = np.argsort(-kinds, kind="stable")[:_MOST_TRIED]
    for number in numbers[order][kinds[order] >= _LEAST_KINDS].tolist():
        at = _in_turn(kind, np.flatnonzero(counts == number), number)
        covered = at[:, -1].max() + 1 - at[0, 0]
        if len(at) >= _LEAST_KINDS and covered >= _LEAST_COVERED * len(kind):
            return at[0], int(at[:, -1].max()) + 1
    return None


def _in_turn(kind: Integers, of: Integers, number: int) -> Integers:
    """Launches of the kinds that occur once per launch of the first kind; shape (kinds, times)."""
    launches = np.flatnonzero(np.isin(kind, of))
    by_kind = launches[np.argsort(kind[launches], kind="stable")]
    at: Integers = by_kind.reshape(len(of), number)
    at = at[np.argsort(at[:, 0], kind="stable")]
    following = np.append(at[0, 1:], len(kind))
    taking_turns: Integers = at[((at >= at[0]) & (at < following)).all(axis=1)]
    return taking_turns
