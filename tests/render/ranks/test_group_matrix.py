"""Which ranks form which group: one row per shape of group, a number per group in it."""

from dataclasses import replace

from tests.render.ranks.jobs import Shape, a_job
from traceview.render.ranks.aligned import group_names
from traceview.render.ranks.html import MOST_RANKS, group_matrix, render_html


def with_groups(job, *sets):
    """The same job with a communicator for each of these sets of ranks."""
    whole = job.matched[0]
    matched = tuple(
        replace(
            whole,
            number=number,
            ranks=each,
            size=len(each),
            rows=whole.rows[: len(each)],
            last=0 * whole.last,
        )
        for number, each in enumerate(sets, 100)
    )
    return replace(job, matched=matched)


def texts(job):
    return [(name, [cell.text for cell in cells]) for name, cells in group_matrix(job).rows]


def test_groups_of_one_shape_share_a_row():
    sets = ((0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3))
    job = with_groups(a_job(Shape(4, steps=3)), *sets)
    assert texts(job) == [
        ("world", ["0"] * 4),
        ("tensor parallel", ["0", "0", "1", "1"]),
        ("data parallel", ["0", "1", "0", "1"]),
    ]
    assert group_names(job) == [*["tensor parallel"] * 2, *["data parallel"] * 2, "world"]


def test_ranks_outside_of_a_group_have_an_empty_cell():
    job = with_groups(a_job(Shape(4, steps=3)), (1, 2))
    assert texts(job) == [("group of 2", ["", "0", "0", ""])]


def test_a_rank_of_two_groups_has_both_numbers():
    job = with_groups(a_job(Shape(4, steps=3)), (0, 1), (1, 2), (2, 3))
    assert texts(job) == [("group of 2", ["0", "0 1", "1 2", "2"])]


def test_one_group_of_all_ranks_needs_no_matrix():
    assert group_matrix(a_job(Shape(4, steps=3))) is None


def test_too_many_ranks_have_the_table_alone():
    job = a_job(Shape(MOST_RANKS + 1, steps=2, calls=1))
    assert group_matrix(with_groups(job, (0, 1))) is None


def test_the_page_has_the_matrix_and_recorded_names_are_text():
    job = with_groups(a_job(Shape(4, steps=3)), (0, 1), (2, 3))
    names = dict.fromkeys((100, 101), "<b>pairs</b>")
    ranks = tuple(replace(rank, group_names=names) for rank in job.ranks)
    page = render_html(replace(job, ranks=ranks), "0")
    assert "&lt;b&gt;pairs&lt;/b&gt;" in page
    assert "<b>pairs" not in page
    assert page.count('<td class="g-1">0</td>') == 2
    assert page.count('<td class="g-2">1</td>') == 2
