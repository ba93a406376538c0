"""A job as JSON: it fits its schema, whatever is missing and whatever names hold."""

import json

import pytest

from tests.render.ranks.jobs import Shape, a_job
from tests.render.schemas.strictness import validator
from traceview.render.json import render_json
from traceview.traces.ranks.job import FailedRank

FAILED = (FailedRank("rank_7.sqlite", "the file is empty", "copy it again"),)
HOSTILE = "</script>\x1b[31m\"'\n\ud800é"


@pytest.fixture(scope="module")
def ranks():
    return validator("ranks")


def document(shape, most=None):
    return json.loads(render_json(a_job(shape), "1.0", most))


@pytest.mark.parametrize(
    "shape",
    [Shape(), Shape(ranks=5, failed=FAILED), Shape(ranks=4, steps=4), Shape(name=HOSTILE)],
    ids=["eight", "failed", "few steps", "hostile"],
)
def test_it_fits_its_schema(ranks, shape):
    ranks.validate(document(shape))


def test_it_has_the_job_each_rank_and_what_failed():
    told = document(Shape(ranks=4, failed=FAILED))
    assert [rank["rank"] for rank in told["ranks"]] == [0, 1, 2, 3]
    assert [clock["rank"] for clock in told["job"]["clocks"]["ranks"]] == [0, 1, 2, 3]
    assert told["failed"] == [
        {"path": "rank_7.sqlite", "reason": "the file is empty", "remedy": "copy it again"}
    ]
    assert told["job"]["findings"][0]["evidence"]["table"] in told["job"]["tables"]
    assert [row["rank"] for row in told["job"]["tables"]["ranks"]] == [0, 1, 2, 3]


def test_long_tables_are_cut_and_what_is_left_out_is_counted():
    whole, cut = document(Shape()), document(Shape(), 10)
    rows = len(whole["job"]["tables"]["rank_steps"])
    assert rows > 10
    assert len(cut["job"]["tables"]["rank_steps"]) == 10
    assert cut["job"]["left_out"]["rank_steps"]["rows"] == rows - 10


def test_it_is_ascii_whatever_names_hold():
    assert render_json(a_job(Shape(name=HOSTILE)), "1.0").isascii()
