"""Which recordings make one job: their numbers, copies, absent ranks, and what does not belong."""

from dataclasses import replace

import numpy as np
import pytest

from traceview.base.errors import InputError
from traceview.traces.ranks.figures import (
    RankCollectives,
    RankFigures,
    RankName,
    no_collectives,
    no_steps,
)
from traceview.traces.ranks.process_groups import members, missing_ranks, world_size

HOUR_NS = 3600 * 10**9


def a_rank(number, *, world=None, numbered="recording", path=None, digest=None, **more):
    path = f"rank_{number}.sqlite" if path is None else path
    figures = RankFigures(
        name=RankName(number, world_size=world, numbered=numbered),
        path=path,
        recorder="nsys",
        digest=path if digest is None else digest,
        clock_offset_ns=None,
        collectives=no_collectives(),
        steps=no_steps(),
    )
    return replace(figures, **more)


def joined(*ranks):
    notes = []
    return [(r.name.rank, r.path) for r in members(ranks, notes.append)], notes


def numbers(*ranks):
    return [number for number, _ in joined(*ranks)[0]]


def test_ranks_are_in_order_of_their_numbers():
    assert numbers(a_rank(2), a_rank(0), a_rank(1)) == [0, 1, 2]


def test_ranks_without_numbers_are_numbered_by_their_paths():
    paths = ("node_10.sqlite", "node_9.sqlite", "node_2.sqlite")
    found, notes = joined(*(a_rank(0, numbered="order", path=path) for path in paths))
    assert found == [(0, "node_2.sqlite"), (1, "node_9.sqlite"), (2, "node_10.sqlite")]
    assert "numbered by their paths" in notes[0]


def test_numbers_in_file_names_that_repeat_are_local_and_do_not_count():
    paths = [f"{host}/rank{n}.sqlite" for host in "ab" for n in (0, 1)]
    given = [a_rank(int(p[-8]), numbered="file name", path=p) for p in paths]
    assert joined(*given)[0] == [*enumerate(paths)]


def test_one_rank_of_a_file_with_many_keeps_its_number():
    one, two = (a_rank(n, numbered="order", path="both.sqlite", digest="d") for n in (0, 1))
    assert joined(one, two) == ([(0, "both.sqlite"), (1, "both.sqlite")], [])


def test_a_copy_is_left_out_and_told():
    copy = a_rank(1, path="z/rank_1.sqlite.xz", digest="rank_1.sqlite")
    found, notes = joined(a_rank(0), copy, a_rank(1))
    assert found == [(0, "rank_0.sqlite"), (1, "rank_1.sqlite")]
    assert notes == ["rank_1.sqlite.xz is the same recording as rank_1.sqlite and is left out."]


def test_two_recordings_of_a_rank_are_refused():
    with pytest.raises(InputError, match=r"old\.sqlite and rank_3\.sqlite are both of rank 3"):
        joined(a_rank(3, path="old.sqlite"), a_rank(3), a_rank(1))


def test_jobs_of_different_sizes_are_told():
    found, notes = joined(a_rank(0, world=2), a_rank(1, world=8))
    assert len(found) == 2
    assert notes == [
        "The recordings are of jobs with 2 and 8 ranks: they may be of different jobs."
    ]


def test_places_in_communicators_that_repeat_are_no_numbers_of_ranks():
    """Of two tensor-parallel groups, NCCL numbers the ranks of each from 0."""
    paths = [f"gpu{n}.sqlite" for n in range(4)]
    given = [a_rank(n % 2, numbered="communicator", path=p) for n, p in enumerate(paths)]
    found, notes = joined(*given)
    assert found == [*enumerate(paths)]
    assert "numbered by their paths" in notes[0]


def test_profilers_are_not_mixed():
    other = a_rank(1, recorder="torch.profiler")
    with pytest.raises(InputError, match=r"rank_0\.sqlite by nsys and rank_1\.sqlite by torch"):
        joined(a_rank(0), other)


def test_absent_ranks_are_known_where_the_size_is():
    ranks = [a_rank(n, world=8) for n in (0, 1, 2, 4, 5, 6, 7)]
    assert missing_ranks(ranks) == (3,)
    assert world_size(ranks) == 8
    assert missing_ranks([a_rank(n) for n in (0, 1)]) == ()
    # Of those numbered by order, nobody knows which are absent.
    assert missing_ranks([a_rank(n, world=8, numbered="order") for n in (0, 1)]) == ()


def communicators(*names):
    return {"communicators": dict.fromkeys(names, (2, 0))}


def test_recordings_that_no_communicator_connects_are_told():
    strangers = joined(a_rank(0, **communicators(1)), a_rank(1, **communicators(2)))
    assert "may be of different jobs" in strangers[1][0]
    # Stages of a pipeline share none with all others, but each with the next.
    stages = [a_rank(n, **communicators(n, n + 1)) for n in (0, 2, 1)]
    assert joined(*stages)[1] == []
    # Nor is one without communicators a stranger.
    assert joined(a_rank(0, **communicators(1)), a_rank(1))[1] == []


def at(start_ns):
    none = no_collectives()
    times = {"start_ns": np.array([start_ns]), "end_ns": np.array([start_ns + 5])}
    columns = {name: getattr(none, name) for name in RankCollectives.__dataclass_fields__}
    return {"collectives": RankCollectives(**{**columns, **times}), "clock_offset_ns": 10}


def test_recordings_of_other_times_are_told():
    assert joined(a_rank(0, **at(0)), a_rank(1, **at(10**9)))[1] == []
    apart = joined(a_rank(0, **at(0)), a_rank(1, **at(HOUR_NS)))[1]
    assert "may be of different runs" in apart[0]
