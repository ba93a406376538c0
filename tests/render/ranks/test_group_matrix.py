"""Which ranks form which group: one row per kind of group, a number per group in it."""

from dataclasses import replace

import numpy as np

from tests.render.ranks.jobs import Shape, a_job
from traceview.ranks.tables import GROUPS
from traceview.render.ranks.group_matrix import MOST_RANKS, group_matrix
from traceview.render.ranks.html import render_html
from traceview.tables import Table


def with_groups(job, *sets, named=()):
    """The same job with communicators of these ranks; `named` are ranks as text, and names."""
    matched = tuple(
        replace(job.matched[0], ranks=ranks, rows=job.matched[0].rows[: len(ranks)])
        for ranks in sets
    )
    empty = {c.name: None if c.nullable else "" if c.dtype == "text" else 0 for c in GROUPS.columns}
    rows = [empty | {"group": name, "ranks": ranks} for ranks, name in named]
    job.result.tables["groups"] = Table.from_rows(GROUPS.columns, rows)
    return replace(job, matched=matched)


def texts(matrix):
    return [(name, [cell.text for cell in cells]) for name, cells in matrix.rows]


def test_groups_of_one_shape_share_a_row():
    sets = ((0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3))
    job = with_groups(
        a_job(Shape(4, steps=3)),
        *sets,
        named=(("0-3", "world"), ("0,1", "tensor parallel"), ("0, 2", "data parallel")),
    )
    assert texts(group_matrix(job)) == [
        ("world", ["0"] * 4),
        ("tensor parallel", ["0", "0", "1", "1"]),
        ("data parallel", ["0", "1", "0", "1"]),
    ]


def test_ranks_outside_of_a_group_have_an_empty_cell():
    job = with_groups(a_job(Shape(4, steps=3)), (1, 2))
    assert texts(group_matrix(job)) == [("groups of 2", ["", "0", "0", ""])]


def test_groups_that_overlap_like_stages_of_a_pipeline_are_both_named():
    job = with_groups(a_job(Shape(4, steps=3)), (0, 1), (1, 2), (2, 3))
    assert texts(group_matrix(job)) == [("groups of 2", ["0", "0 1", "1 2", "2"])]


def test_one_group_of_all_ranks_needs_no_matrix():
    assert group_matrix(a_job(Shape(4, steps=3))) is None


def test_too_many_ranks_have_the_table_alone():
    job = a_job(Shape(MOST_RANKS + 1, steps=2, calls=1))
    assert group_matrix(with_groups(job, (0, 1))) is None


def test_the_page_has_the_matrix():
    job = with_groups(a_job(Shape(4, steps=3)), (0, 1), (2, 3), named=(("0-1", "<b>pairs</b>"),))
    page = render_html(job, "0")
    assert "&lt;b&gt;pairs&lt;/b&gt;" in page
    assert page.count('<td class="g-1">0</td>') == 2
    assert page.count('<td class="g-2">1</td>') == 2


def test_each_row_has_a_cell_for_every_rank():
    job = with_groups(a_job(Shape(8, steps=3)), *((r, r + 4) for r in range(4)))
    matrix = group_matrix(job)
    assert np.shape([cells for _, cells in matrix.rows])[:2] == (1, 8)
