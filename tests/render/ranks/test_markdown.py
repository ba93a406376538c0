"""A job as Markdown: verdict, findings and the ranks that matter; every name shows as text."""

import re

import pytest

from tests.render.example_report import CONTROLS, HOSTILE
from tests.render.ranks.jobs import Shape, a_job
from traceview.traces.ranks.job import FailedRank


def test_the_verdict_the_findings_and_the_ranks_are_there():
    job = a_job(Shape(64))
    lines = job.to_markdown().splitlines()
    assert lines[2] == f"**{job.verdict.text}**"
    assert "rank 3 late by 12.5 ms in every third step" in lines[2]
    assert "### What to do first" in lines
    assert [line for line in lines if line.startswith("| 3 |")]
    assert [line for line in lines if line.startswith("| median of 63 |")]


def test_a_recording_that_failed_comes_with_what_to_do():
    failed = FailedRank("/runs/rank9.sqlite", "is not a database", "Record rank 9 again.")
    text = a_job(Shape(failed=(failed,))).to_markdown()
    assert "> Warning: 1 recording left out: rank9.sqlite" in text
    assert "Record rank 9 again." in text


@pytest.mark.parametrize("name", [HOSTILE, CONTROLS])
def test_hostile_names_are_text(name):
    text = a_job(Shape(name=name, failed=(FailedRank(name, name, name),))).to_markdown()
    outside = re.sub("`[^`\n]*`", "", text)
    assert "<img" not in outside
    assert "</script>" not in outside
    assert not {"\x1b", "\x9b", "\u202e", "\x00"} & set(text)
