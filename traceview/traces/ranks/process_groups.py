"""Which recordings and ranks belong to one job, and the process groups of the job.

Rules, if the recording does not name the group (torch's description takes precedence):

- All ranks of the job: `world`, if a single communicator has all of them.
- Only messages between pairs: `pipeline`.
- Mostly all-to-all: `expert parallel`.
- Neighbours (stride 1), if another group's stride equals their size: `tensor parallel`, and the
  other group is `data parallel`. Megatron and torch's DeviceMesh order ranks so that
  tensor parallelism is innermost, within a machine.
- Ranks apart (stride above 1) that reduce or gather: `data parallel`.

Anything else stays without a name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.base.tables import NULL
from traceview.traces.ranks import clocks, figures
from traceview.traces.ranks.job import MatchedCommunicator

WORLD, DATA, TENSOR = "world", "data parallel", "tensor parallel"
PIPELINE, EXPERT = "pipeline", "expert parallel"
_DESCRIPTIONS = {
    "default_pg": WORLD, "dp": DATA, "tp": TENSOR, "pp": PIPELINE, "ep": EXPERT,
    "mesh_dp": DATA, "mesh_tp": TENSOR, "mesh_pp": PIPELINE, "mesh_ep": EXPERT,
    "data_parallel_group": DATA, "tensor_model_parallel_group": TENSOR,
    "pipeline_model_parallel_group": PIPELINE, "expert_model_parallel_group": EXPERT,
}  # fmt: skip
_REDUCING = (figures.ALL_REDUCE, figures.ALL_GATHER, figures.REDUCE_SCATTER)


@record
class ProcessGroups:
    """Groups of the same shape, such as the four pairs of tensor parallelism among eight ranks.

    `label` is unique; `name` is the purpose, None if unsure. `ranks` are the numbers of the ranks
    in one of the groups, as far as known; `size` is how many it has. `members` has the places of
    their communicators in JobReport.matched; `communicators` counts the groups.
    """

    label: str
    name: str | None
    ranks: tuple[int, ...]
    size: int
    communicators: int
    members: tuple[int, ...]
    kinds: tuple[int, ...]


@record
class _One:
    """A single group: its ranks by number, and its matched communicators.

    `is_known` is False if its communicator is not recorded; `first_row` is the row of its first
    collective on its first rank.
    """

    ranks: tuple[int, ...]
    size: int
    is_known: bool
    first_row: int
    description: str
    members: tuple[int, ...]
    time_ns: Mapping[int, int]


def process_groups(
    ranks: Sequence[figures.RankFigures], matched: Sequence[MatchedCommunicator]
) -> tuple[ProcessGroups, ...]:
    """The groups of a job, largest first."""
    by_key: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for place, each in enumerate(matched):
        # Streams matched by order alone belong to one group if their ranks are the same.
        key = (each.number, () if each.number != NULL else tuple(sorted(each.ranks)))
        by_key.setdefault(key, []).append(place)
    single = [_single(ranks, matched, places) for places in by_key.values()]
    shapes: dict[tuple[object, ...], list[_One]] = {}
    for one, place in _places(single):
        shapes.setdefault((_shape(one), _purpose(one), place), []).append(one)
    total = max((rank.name.world_size or 0 for rank in ranks), default=0) or len(ranks)
    groups = [_of_shape(alike) for alike in shapes.values()]
    strides = {stride_of(of.ranks) for of in groups}
    names = [of.name or _name(of, total, strides) for of in groups]
    if names.count(WORLD) > 1:
        # It is not recorded which one is the default group.
        names = [of.name if name == WORLD else name for of, name in zip(groups, names, strict=True)]
    named = [replace(of, name=name) for of, name in zip(groups, names, strict=True)]
    named.sort(key=lambda of: (-of.size, of.ranks))
    # Labels are unique: the name or else the size, numbered if it repeats.
    sizes = ("all ranks" if of.size >= total else f"group of {of.size}" for of in named)
    labels = [of.name or size for of, size in zip(named, sizes, strict=True)]
    often, seen = Counter(labels), Counter[str]()
    labelled = []
    for of, label in zip(named, labels, strict=True):
        seen[label] += 1
        unique = label if often[label] == 1 else f"{label} #{seen[label]}"
        labelled.append(replace(of, label=unique))
    return tuple(labelled)


def _places(single: Sequence[_One]) -> Iterable[tuple[_One, int]]:
    """The position of each group among the groups over the same ranks, in order of first use.

    Communicators over the same ranks serve different purposes: the first of one pair of ranks
    corresponds to the first of another pair. Collectives of an unknown communicator join the only
    known one; if there are several, they get position −1.
    """
    seen: Counter[object] = Counter()
    for one in sorted(single, key=lambda one: (not one.is_known, one.first_row)):
        key = (one.ranks, _purpose(one))
        seen[key] += one.is_known
        yield one, seen[key] - 1 if one.is_known else -int(seen[key] > 1)


def _purpose(one: _One) -> tuple[str, bool]:
    return one.description, set(one.time_ns) <= set(figures.POINT_TO_POINT)


def _single(
    ranks: Sequence[figures.RankFigures], matched: Sequence[MatchedCommunicator], places: list[int]
) -> _One:
    number = matched[places[0]].number
    present = sorted({rank for place in places for rank in matched[place].ranks})
    recorded = (ranks[rank].group_ranks.get(number) for rank in present)
    names = (ranks[rank].group_names.get(number) for rank in present)
    seen = tuple(sorted(ranks[rank].name.rank for rank in present))
    first_row, time = np.iinfo(np.int64).max, Counter[int]()
    for of in (matched[place] for place in places):
        rows = of.rows[int(np.argmin(of.ranks))]
        first_row = int(rows[rows >= 0].min(initial=first_row))
        lasted = clocks.column_of(ranks, of.ranks, of.rows, "end_ns")
        lasted -= clocks.column_of(ranks, of.ranks, of.rows, "start_ns")
        sums = np.bincount(of.kind, lasted.sum(axis=0), minlength=len(figures.KINDS))
        time.update({kind: int(sums[kind]) for kind in np.flatnonzero(sums).tolist()})
    return _One(
        ranks=next(filter(None, recorded), seen),
        size=max([len(seen), *(matched[place].size for place in places)]),
        is_known=number != NULL,
        first_row=first_row,
        description=next(filter(None, names), ""),
        members=tuple(places),
        time_ns=time,
    )


def _shape(one: _One) -> tuple[int, ...]:
    """Distances of the group's ranks from its first, or only its size if some are unknown."""
    if len(one.ranks) != one.size:
        return (one.size,)
    return tuple(rank - one.ranks[0] for rank in one.ranks)


def _of_shape(alike: Sequence[_One]) -> ProcessGroups:
    time = Counter[int]()
    for one in alike:
        time.update(one.time_ns)
    first = min(alike, key=lambda one: one.ranks)
    return ProcessGroups(
        label="",
        name=_DESCRIPTIONS.get(first.description.lower(), first.description or None),
        ranks=first.ranks,
        size=first.size,
        communicators=len(alike),
        members=tuple(place for one in alike for place in one.members),
        kinds=tuple(sorted(time, key=lambda kind: (-time[kind], kind))),
    )


def _name(of: ProcessGroups, total: int, strides: set[int | None]) -> str | None:
    if of.kinds and set(of.kinds) <= set(figures.POINT_TO_POINT):
        return PIPELINE
    if of.size >= total:
        return WORLD
    if of.kinds and of.kinds[0] in figures.OF_EXPERTS:
        return EXPERT
    stride, reduces = stride_of(of.ranks), of.kinds[:1] and of.kinds[0] in _REDUCING
    if not reduces or stride is None or len(of.ranks) != of.size:
        return None
    if stride > 1:
        return DATA
    return TENSOR if stride == 1 and of.size in strides else None


def stride_of(ranks: Sequence[int]) -> int | None:
    """The distance between neighbouring ranks; None if it varies or for a single rank."""
    apart = set(np.diff(ranks).tolist())
    return apart.pop() if len(apart) == 1 else None


def ranks_text(ranks: Sequence[int]) -> str:
    """`0-7`, `0,4,8,12`, or `0-3,6`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in runs]
    return ",".join(parts)


_NUMBERS = re.compile(r"(\d+)")
_ONE_JOB = "pass the recordings of one job"
# Clocks of machines may differ by seconds.
_APART_NS = 60 * 10**9


def members(
    ranks: Sequence[figures.RankFigures], note: Callable[[str], None] = lambda _: None
) -> tuple[figures.RankFigures, ...]:
    """The ranks of one job, in order of their unique numbers.

    Copies of a recording are left out. Ranks without a recorded number are numbered by the order of
    their paths. `note` receives remarks about this, and about recordings that may be of different
    jobs. Raises InputError for several recorders, and for two recordings of one rank.
    """
    check_recorders(ranks)
    by_digest: dict[str, list[figures.RankFigures]] = {}
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


def check_recorders(ranks: Sequence[figures.RankFigures]) -> None:
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


def world_size(ranks: Sequence[figures.RankFigures]) -> int:
    """The number of ranks in the job, as far as its recordings show."""
    return max([len(ranks), *(rank.name.world_size or 0 for rank in ranks)])


def missing_ranks(ranks: Sequence[figures.RankFigures]) -> tuple[int, ...]:
    """Numbers of the ranks without a recording; none if numbers are by order of paths."""
    if any(rank.name.numbered == "order" for rank in ranks):
        return ()
    present = {rank.name.rank for rank in ranks}
    return tuple(sorted(set(range(world_size(ranks))) - present))


def _first_copy(
    ranks: Sequence[figures.RankFigures], note: Callable[[str], None]
) -> Iterator[figures.RankFigures]:
    """The ranks in the first file of a capture by name; its other files are copies, and noted."""
    first, *copies = sorted({rank.path for rank in ranks}, key=by_number)
    for copy in copies:
        names = f"{PurePath(copy).name} is the same recording as {PurePath(first).name}"
        note(f"{names} and is left out.")
    yield from (rank for rank in ranks if rank.path == first)


def _numbered(
    ranks: Sequence[figures.RankFigures], note: Callable[[str], None]
) -> list[figures.RankFigures]:
    numbers = numbers_by_order([(rank.path, rank.name) for rank in ranks])
    if numbers is None:
        return [*ranks]
    note("Not all recordings say which rank they are of: they are numbered by their paths.")
    return [
        replace(rank, name=replace(rank.name, rank=number, numbered="order"))
        for number, rank in zip(numbers, ranks, strict=True)
    ]


def numbers_by_order(ranks: Sequence[tuple[str, figures.RankName]]) -> list[int] | None:
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
    return np.argsort(places).tolist()


def by_number(path: str) -> list[tuple[int, str]]:
    """A key that sorts rank_10 after rank_9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in _NUMBERS.split(path)]


def _note_strangers(ranks: Sequence[figures.RankFigures], note: Callable[[str], None]) -> None:
    """Note it if the recordings may be of different jobs or runs."""
    if len(ranks) < 2:
        return
    sizes = sorted({rank.name.world_size for rank in ranks if rank.name.world_size})
    if len(sizes) > 1:
        text = " and ".join(map(str, sizes))
        note(f"The recordings are of jobs with {text} ranks: they may be of different jobs.")
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


def _time_apart_ns(ranks: Sequence[figures.RankFigures]) -> int:
    """Time between the end of one rank and the start of another, by the time of day."""
    spans = [
        rank.clock_offset_ns + np.array([times.start_ns[0], times.end_ns.max()])
        for rank in ranks
        if rank.clock_offset_ns is not None and len(times := rank.collectives)
    ]
    if len(spans) < 2:
        return 0
    return int(max(begin for begin, _ in spans) - min(end for _, end in spans))
