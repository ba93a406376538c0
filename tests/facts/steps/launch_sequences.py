"""Random launch sequences for `find_repetition`: nested loops with noise, cut at random."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.base.tables import Integers, Mask

_KINDS = 12


class Launches(NamedTuple):
    """A launch sequence: its kinds, the CPU's pauses, optimizer kernels, and what the host sees."""

    kind: Integers
    pause_ns: Integers
    optimizer: Mask | None
    marked: Mask | None


def launch_sequence(random: np.random.Generator) -> Launches:
    """Loops in loops, one to three in turn or of a few processes at once, damaged and cut."""
    parts = [_loop(random) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    kind, pause, optimizer, marked = (np.concatenate(each) for each in zip(*parts, strict=True))
    if random.random() < 0.2:
        # Threads that launch by turns.
        order = np.argsort(np.arange(len(kind)) + random.integers(0, 40, len(kind)), kind="stable")
        kind, pause, optimizer, marked = kind[order], pause[order], optimizer[order], marked[order]
    kept = random.random(len(kind)) >= random.choice([0, 0, 0, 0, 0.002, 0.05])
    begin, end = np.sort(random.integers(0, len(kind) + 1, 2)) if random.random() < 0.6 else (0, -1)
    kept[:begin], kept[end if end >= 0 else len(kind) :] = False, False
    kind, pause, optimizer, marked = kind[kept], pause[kept], optimizer[kept], marked[kept]
    other = random.random(len(kind)) < random.choice([0, 0, 0, 0, 0.01, 0.2])
    kind[other] = random.integers(0, 2 * _KINDS, int(other.sum()))
    return Launches(
        kind,
        pause,
        optimizer if random.random() < 0.6 else None,
        marked if random.random() < 0.7 else None,
    )


def _loop(random: np.random.Generator) -> tuple[Integers, Integers, Mask, Mask]:
    """A body repeated, each time by itself or with a few launches more, one level in the other."""
    length = int(random.choice([1, 2, 3, 5, 8, 20, 60]))
    kind = random.integers(0, random.integers(1, _KINDS + 1), length)
    pause = random.integers(1_000, 5_000, length)
    optimizer = random.random(length) < random.choice([0, 0, 0.05, 0.5])
    marked = random.random(length) < random.choice([0, 0.02, 0.3])
    for _ in range(random.integers(1, 4)):
        times = int(min(random.choice([1, 2, 3, 4, 5, 9, 24, 70]), 4_000 // len(kind)))
        every = int(random.choice([1, 2, 3, 7]))
        extra = int(random.choice([0, 0, 0, 0, 1, 2, 9]))
        bodies = []
        for number in range(max(times, 1)):
            body = [kind, pause, optimizer, marked]
            if number % every == 0 and extra:
                added = (
                    random.integers(0, 2 * _KINDS, extra),
                    random.integers(1_000, 5_000, extra),
                    random.random(extra) < 0.2,
                    random.random(extra) < 0.2,
                )
                body = [np.concatenate(pair) for pair in zip(body, added, strict=True)]
            body[1] = body[1].copy()
            # The CPU pauses somewhere in a body, often at its beginning.
            seam = 0 if random.random() < 0.5 else int(random.integers(0, len(body[1])))
            body[1][seam] += int(random.choice([0, 20_000, 500_000]))
            bodies.append(body)
        kind, pause, optimizer, marked = (
            np.concatenate(each) for each in zip(*bodies, strict=True)
        )
    return kind, pause, optimizer, marked
