"""A job in a terminal: one screen at any number of ranks, the late one first, no name as markup."""

import re
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

from tests.places import DATA
from tests.render.example_report import CONTROLS, HOSTILE
from tests.render.ranks.jobs import MS, Shape, a_job
from traceview import load
from traceview.base import units
from traceview.render.ranks.document import job_tiles, outliers, rank_rows
from traceview.render.ranks.text import MOST_LINES, render_job
from traceview.traces.ranks.answer import job_report
from traceview.traces.ranks.figures import RankFinding
from traceview.traces.ranks.job import FailedRank
from traceview.traces.ranks.rank_figures import figures_of_ranks

FAILED = FailedRank("/runs/rank9.sqlite", "is not a database", "Record rank 9 again.")


@pytest.fixture(scope="module", params=[1, 2, 8, 64, 1_024])
def job(request):
    return a_job(Shape(request.param, steps=6, late=min(3, request.param - 1)))


@pytest.mark.parametrize("width", [80, 160])
def test_a_job_fits_one_screen(job, width):
    lines = render_job(job, width=width).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(cell_len, lines)) <= width


def test_the_verdict_stands_above_all_figures(job):
    lines = render_job(job).splitlines()
    assert lines[2].startswith(job.verdict.text[:40])


def test_few_ranks_have_a_row_each():
    spec, table = rank_rows(a_job(Shape(8)))
    assert table.cells("rank") == [str(rank) for rank in range(8)]
    assert "step_median_ns" not in spec.brief_names[:8]


def test_of_many_ranks_the_late_one_and_the_spread_of_the_others_are_shown():
    job = a_job(Shape(64, late=17))
    _, table = rank_rows(job)
    assert table.cells("rank") == ["17", "least of 63", "median of 63", "most of 63"]
    late = job.result.tables["ranks"]["late_ns"]
    others = np.delete(late, 17)
    assert table["late_ns"].tolist() == [
        late[17],
        others.min(),
        round(float(np.median(others))),
        others.max(),
    ]


def test_ranks_that_differ_in_no_way_are_no_outliers():
    job = a_job(Shape(64, late=17))
    assert outliers(job) == [17]


def test_a_rank_that_computes_longer_is_an_outlier():
    job = a_job(Shape(64, late=17))
    job.result.tables["ranks"]["compute_ns"][40] += 9 * MS
    assert outliers(job) == [17, 40]


@pytest.mark.parametrize(("more_ns", "all_of_it"), [(1, True), (0, True), (-MS // 2, False)])
def test_no_more_of_the_waits_is_exposed_than_there_are(more_ns, all_of_it):
    """Found on symmetric.py: `Waiting 580 ns`, of which `581 ns exposed`."""
    job = a_job(Shape(8, late=3))
    wait_ns = float(job.result.tables["ranks"]["wait_ns"].mean())
    exposed_ns = round(wait_ns) + more_ns
    verdict = replace(job.verdict, figures={"exposed_wait_ns": exposed_ns})
    details = {each.name: each.detail for each in job_tiles(replace(job, verdict=verdict))}
    exposed = "all" if all_of_it else units.percent(100 * exposed_ns / wait_ns)
    assert details["Waiting"] == f"mean, {exposed} exposed"


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_each_tile_says_of_whom_its_figure_is(ranks):
    """`GPU busy 56.6 %  least: rank 1` read as that of rank 1."""
    job = a_job(Shape(ranks, late=1))
    table, tiles = job.result.tables["ranks"], {each.name: each for each in job_tiles(job)}
    least = int(table["busy_pct"].argmin())
    busy = units.percent(float(table["busy_pct"][least]))
    assert tiles["GPU busy"].detail == f"mean; rank {table['rank'][least]}: {busy}"
    for name in ("GPU busy", "Communication", "Waiting", "Late"):
        assert "mean" in tiles[name].detail


def test_all_tables_follow_on_request():
    text = render_job(a_job(), all_tables=True)
    for name in ("stragglers: one row", "groups: one row", "240 rows, shown by --html"):
        assert name in text


def test_failed_and_missing_ranks_are_stated_first():
    job = a_job(Shape(8, failed=(FAILED,)))
    lines = render_job(job, width=120).splitlines()
    assert lines[1] == "Warning: 1 recording left out: rank9.sqlite: is not a database"


def test_a_rank_without_a_recording_is_named():
    job = a_job(Shape(8))
    text = render_job(replace(job, ranks=job.ranks[:5] + job.ranks[6:]), width=120)
    assert "Warning: no recording of rank 5, of 8" in text


@pytest.mark.parametrize("name", [HOSTILE, CONTROLS])
def test_hostile_names_are_text(name):
    text = render_job(a_job(Shape(name=name, failed=(FailedRank(name, name, name),))))
    assert not {"\x1b", "\x9b", "\u202e", "\x00", "\x07"} & set(text)
    assert len(text.splitlines()) <= MOST_LINES


def test_colour_changes_no_character():
    job = a_job()
    plain = re.sub("\x1b\\[[0-9;]*m", "", render_job(job, color=True))
    assert plain == render_job(job)


def test_one_rank_alone_is_sent_to_its_own_report():
    trace = load(DATA / "mlp_nosync.sqlite.xz")
    text = render_job(job_report(figures_of_ranks(trace)), width=100)
    assert "· 1 rank ·" in text
    assert "One rank alone waits for no other. Read its own report: traceview report FILE" in text
    assert "What to do first" not in text


def test_ranks_that_lose_nothing_together_may_lose_time_alone():
    job = a_job()
    without = replace(job, result=replace(job.result, findings=()))
    first, *others = without.ranks
    own = RankFinding("gpu-idle", "high", "The GPU sat idle.", "Launch less often.", MS, None)
    with_own = replace(without, ranks=(replace(first, findings=(own,)), *others))

    assert "Nothing was found that would save time." in render_job(without)
    assert "has findings of its own: --rank 0." in render_job(with_own, width=120)
