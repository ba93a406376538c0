"""Process groups of a job made by hand: their ranks, names and clocks."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.ranks.hand_made import MS, WORLD, Call, Made, job, late_in_every_third, rows
from traceview.traces.ranks.answer import job_facts, job_report
from traceview.traces.ranks.process_groups import ranks_text, stride_of


def grid() -> list:
    """Four ranks: pairs (0, 1) and (2, 3) of tensor parallelism, (0, 2) and (1, 3) of data."""
    made = []
    for rank in range(4):
        tensor, data = 100 + rank // 2, 200 + rank % 2
        groups = {tensor: (2, rank % 2), data: (2, rank // 2)}
        work = 3 * MS + rank * 10_000
        step = [*(Call(work, communicator=tensor) for _ in range(3)), Call(work, communicator=data)]
        made.append(Made([step] * 8, groups=groups))
    return made


def test_process_groups_are_named_by_their_ranks():
    report = job_report(job(grid()))

    named = {row["name"]: row for row in rows(report, "groups")}
    assert set(named) == {"tensor parallel", "data parallel"}
    assert (named["tensor parallel"]["ranks"], named["data parallel"]["ranks"]) == ("0,1", "0,2")
    assert [each["communicators"] for each in named.values()] == [2, 2]
    assert named["tensor parallel"]["calls"] == 2 * 8 * 3
    assert named["tensor parallel"]["link"] == "NVLink"


def two_purposes(groups: Sequence[dict[int, tuple[int, int]]]) -> list:
    """All-reduces of the first communicator of each rank, and half as many of its second one."""
    made = []
    for own in groups:
        often, seldom = own
        step = [
            *(Call(3 * MS, communicator=often) for _ in range(2)),
            Call(3 * MS, communicator=seldom),
        ]
        made.append(Made([step] * 8, groups=own))
    return made


def test_communicators_over_the_same_ranks_are_groups_of_their_own():
    both = [{100: (2, rank), 200: (2, rank)} for rank in range(2)]
    table = rows(job_report(job(two_purposes(both))), "groups")

    assert [row["group"] for row in table] == ["all ranks #1", "all ranks #2"]
    assert [row["name"] for row in table] == [None, None]
    assert [(row["ranks"], row["calls"], row["communicators"]) for row in table] == [
        ("0,1", 2 * 8, 1),
        ("0,1", 8, 1),
    ]


def test_the_same_two_purposes_in_several_pairs_are_two_groups():
    pairs = [{10 + rank // 2: (2, rank % 2), 20 + rank // 2: (2, rank % 2)} for rank in range(4)]
    table = rows(job_report(job(two_purposes(pairs))), "groups")

    assert [(row["calls"], row["communicators"]) for row in table] == [(2 * 2 * 8, 2), (2 * 8, 2)]


def test_a_recorded_name_of_a_group_wins():
    ranks = [replace(each, group_names={WORLD: "my_group"}) for each in late_in_every_third(4)]

    assert [row["name"] for row in rows(job_report(ranks), "groups")] == ["my_group"]


def test_clocks_are_chained_through_the_groups():
    clocks = [(0, 0.0), (5_000_000_000, 2e-5), (-3_000_000, 0.0), (77, -1e-5)]
    found = job_facts(job(grid(), clocks)).clocks

    for rank, (offset, drift) in enumerate(clocks):
        for true in (0, 100 * MS):
            shown = true + offset + round(drift * true)
            aligned = int(found.aligned_ns(rank, np.array([shown]))[0])
            assert abs(aligned - true) <= found.error_ns[rank]


@pytest.mark.parametrize(
    ("ranks", "text", "stride"),
    [((0, 1, 2, 3), "0-3", 1), ((0, 4, 8), "0,4,8", 4), ((0, 1, 5), "0,1,5", None)],
)
def test_ranks_in_words(ranks, text, stride):
    assert (ranks_text(ranks), stride_of(ranks)) == (text, stride)
