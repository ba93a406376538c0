"""Membership of recordings in one job, and ranks without a recording."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from traceview.errors import InputError
from traceview.ranks.figures import RankFigures, RankName
from traceview.tables import NULL

_NUMBERS = re.compile(r"(\d+)")
_ONE_JOB = "pass the recordings of one job"
# Clocks of machines may differ by seconds.
_APART_NS = 60 * 10**9


def members(
    ranks: Sequence[RankFigures], note: Callable[[str], None] = lambda _: None
) -> tuple[RankFigures, ...]:
    """The ranks of one job, in order of their unique numbers.

    Copies of a recording are left out. Ranks without a recorded number are numbered by the order of
    their paths. `note` receives remarks about this, and about recordings that may be of different
    jobs. Raises InputError for several recorders, and for two recordings of one rank.
    """
    check_recorders(ranks)
    by_digest: dict[str, list[RankFigures]] = {}
    for place, rank in enumerate(ranks):
        by_digest.setdefault(rank.digest or f"#{place}", []).append(rank)
    distinct = [rank for copies in by_digest.values() for rank in _first_copy(copies, note)]
    numbered = _numbered(distinct, note)
    paths: dict[int, str] = {}
    for rank in numbered:
        other = paths.setdefault(rank.name.rank, rank.path)
        if other != rank.path:
            names = f"{PurePath(other).name} and {PurePath(rank.path).name}"
            raise InputError(f"{names} are both of rank {rank.name.rank}", _ONE_JOB)
    _note_strangers(numbered, note)
    return tuple(sorted(numbered, key=lambda rank: rank.name.rank))


def check_recorders(ranks: Sequence[RankFigures]) -> None:
    """Raise InputError if nsys recorded some ranks and torch.profiler others."""
    paths: dict[str, str] = {}
    for rank in ranks:
        paths.setdefault(rank.recorder, rank.path)
    if len(paths) > 1:
        texts = " and ".join(f"{PurePath(path).name} by {name}" for name, path in paths.items())
        raise InputError(
            f"the recordings are of different profilers ({texts}), whose times differ",
            "pass ranks that one profiler recorded",
        )


def world_size(ranks: Sequence[RankFigures]) -> int:
    """The number of ranks in the job, as far as its recordings show."""
    return max([len(ranks), *(rank.name.world_size or 0 for rank in ranks)])


def missing_ranks(ranks: Sequence[RankFigures]) -> tuple[int, ...]:
    """Numbers of the ranks without a recording; none if numbers are by order of paths."""
    if any(rank.name.numbered == "order" for rank in ranks):
        return ()
    present = {rank.name.rank for rank in ranks}
    return tuple(sorted(set(range(world_size(ranks))) - present))


def _first_copy(ranks: Sequence[RankFigures], note: Callable[[str], None]) -> Iterator[RankFigures]:
    """The ranks in the first file of a capture by name; its other files are copies, and noted."""
    first, *copies = sorted({rank.path for rank in ranks}, key=by_number)
    for copy in copies:
        names = f"{PurePath(copy).name} is the same recording as {PurePath(first).name}"
        note(f"{names} and is left out.")
    yield from (rank for rank in ranks if rank.path == first)


def _numbered(ranks: Sequence[RankFigures], note: Callable[[str], None]) -> list[RankFigures]:
    numbers = numbers_by_order([(rank.path, rank.name) for rank in ranks])
    if numbers is None:
        return [*ranks]
    note("Not all recordings say which rank they are of: they are numbered by their paths.")
    return [
        replace(rank, name=replace(rank.name, rank=number, numbered="order"))
        for number, rank in zip(numbers, ranks, strict=True)
    ]


def numbers_by_order(ranks: Sequence[tuple[str, RankName]]) -> list[int] | None:
    """Numbers of the ranks by the order of their paths; None if their own numbers are usable.

    Own numbers are not usable if a rank has none, or if two ranks get the same number from their
    file names or communicators.
    """
    counts = Counter(name.rank for _, name in ranks)
    unsure = any(
        name.numbered == "order" or (name.numbered != "recording" and counts[name.rank] > 1)
        for _, name in ranks
    )
    if not unsure or len({path for path, _ in ranks}) == 1:
        return None
    keys = [(by_number(path), name.rank) for path, name in ranks]
    places = sorted(range(len(keys)), key=keys.__getitem__)
    numbers: list[int] = np.argsort(places).tolist()
    return numbers


def by_number(path: str) -> list[tuple[int, str]]:
    """A key that sorts rank_10 after rank_9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in _NUMBERS.split(path)]


def _note_strangers(ranks: Sequence[RankFigures], note: Callable[[str], None]) -> None:
    """Note it if the recordings may be of different jobs or runs."""
    if len(ranks) < 2:
        return
    sizes = sorted({rank.name.world_size for rank in ranks if rank.name.world_size})
    if len(sizes) > 1:
        text = " and ".join(map(str, sizes))
        note(f"The recordings tell of jobs of {text} ranks: they may be of different jobs.")
    communicators = [set(rank.communicators) - {NULL} for rank in ranks]
    connected, left = set(communicators[0]), communicators[1:]
    # Ranks are connected directly, or through communicators of others.
    while near := [numbers for numbers in left if numbers & connected]:
        connected |= set.union(*near)
        left = [numbers for numbers in left if not numbers & connected]
    if all(communicators) and left:
        note("No communicator connects all recordings: they may be of different jobs.")
    if _time_apart_ns(ranks) > _APART_NS:
        note("The recordings do not overlap in time: they may be of different runs.")


def _time_apart_ns(ranks: Sequence[RankFigures]) -> int:
    """Time between the end of one rank and the start of another, by the time of day."""
    spans = [
        rank.clock_offset_ns + np.array([times.start_ns[0], times.end_ns.max()])
        for rank in ranks
        if rank.clock_offset_ns is not None and len(times := rank.collectives)
    ]
    if len(spans) < 2:
        return 0
    return int(max(begin for begin, _ in spans) - min(end for _, end in spans))
