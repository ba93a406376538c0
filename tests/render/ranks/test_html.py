"""The page of a job: what it has without scripts, its size, and that no name in it is markup."""

import json
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest

from tests.render.example_report import CONTROLS, HOSTILE
from tests.render.packed import bytes_of
from tests.render.ranks.jobs import Shape, a_job
from traceview.base import units
from traceview.render.ranks import aligned
from traceview.render.ranks.aligned import aligned_document, shown_ranks, shown_windows
from traceview.render.ranks.html import MOST_STEPS, heat_document, render_html, three_digits
from traceview.traces.ranks.job import FailedRank

MOST_BYTES = 500_000
MOST_BYTES_PER_RANK = 1_250
"""With 200 steps each: 1,024 ranks take at most 1.8 MB."""


def unpacked(packed):
    """Numbers as render/timeline/packing.py packs them."""
    planes = np.frombuffer(zlib.decompress(bytes_of(packed["data"])), np.uint8)
    weights = 256 ** np.arange(packed["planes"])
    return (planes.reshape(packed["planes"], -1).T * weights).sum(axis=1)


def times(codes):
    return (codes % 1_000) * 10 ** (codes // 1_000)


@pytest.mark.parametrize(
    ("saving", "words"),
    [("at-most", "save up to"), ("about", "save about"), ("at-least", "save at least")],
)
def test_an_estimate_is_not_called_a_bound(saving, words):
    job = a_job(Shape())
    found = tuple(replace(each, saving=saving) for each in job.result.findings)
    job = replace(job, result=replace(job.result, findings=found))
    assert any(each.time_at_stake_ns for each in found)
    page = render_html(job, "0")
    assert set(re.findall(r"\bsave (?:up|about|at)[a-z ]*", page)) == {words}


def test_failed_recordings_stand_above_the_verdict():
    failed = FailedRank("/runs/rank9.sqlite", "is not a database", "Record rank 9 again.")
    page = render_html(a_job(Shape(failed=(failed,))), "0")
    warning, verdict = page.index("is not a database"), page.index('class="verdict"')
    assert warning < verdict
    assert "Record rank 9 again." in page


def test_a_finding_leads_to_its_row():
    page = render_html(a_job(), "0")
    assert '<a class="to-row" href="#stragglers-row-0">' in page
    assert '<tr id="stragglers-row-0" class="evident">' in page


@pytest.mark.parametrize("ranks", [64, 256])
def test_the_page_of_a_large_job_stays_small(ranks):
    page = render_html(a_job(Shape(ranks, 200)), "0")
    assert len(page.encode()) <= MOST_BYTES + MOST_BYTES_PER_RANK * ranks


@pytest.mark.parametrize("name", [HOSTILE, CONTROLS])
def test_hostile_names_are_text(name):
    page = render_html(a_job(Shape(name=name, failed=(FailedRank(name, name, name),))), "0")
    assert "<img src=x" not in page
    assert len(re.findall("<script", page)) == 3
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", page)


def test_times_of_the_map_have_the_digits_that_are_shown():
    random = np.random.default_rng(3)
    exact = np.concatenate([[0, 7, 999, 1_000, 999_600], random.integers(1, 10**11, 2_000)])
    shown = times(three_digits(exact))
    assert [units.duration(int(t)) for t in shown] == [units.duration(int(t)) for t in exact]


def test_the_map_has_every_part_that_is_a_two_hundredth_of_a_step():
    job = a_job(Shape(4, steps=9, late=1))
    document = heat_document(job)
    shape = job.heat.duration_ns.shape
    duration = times(unpacked(document["duration"])).reshape(shape)
    np.testing.assert_allclose(duration, job.heat.duration_ns, rtol=0.005)
    named = zip(document["parts"], document["times"], strict=True)
    parts = {name: times(unpacked(each)).reshape(shape) for name, each in named}
    assert list(parts) == ["compute", "communication", "wait", "launch-late"]
    np.testing.assert_allclose(sum(parts.values()), duration, rtol=0.02)


def test_the_map_has_what_the_cpu_needs_where_that_is_known():
    job = a_job(Shape(4, steps=9, late=1))
    assert heat_document(job)["cpu"] is None
    steps = replace(job.ranks[2].steps, cpu_ns=np.arange(1, 10) * 1_000_000)
    ranks = (*job.ranks[:2], replace(job.ranks[2], steps=steps), job.ranks[3])
    cpu = times(unpacked(heat_document(replace(job, ranks=ranks))["cpu"])).reshape(4, 9)
    assert cpu[2].tolist() == steps.cpu_ns.tolist()
    assert not cpu[[0, 1, 3]].any()


def test_a_rank_without_a_step_has_an_empty_cell():
    job = a_job(Shape(4, steps=9, late=1))
    job.heat.duration_ns[2, 5] = np.iinfo(np.int64).min
    job.heat.parts_ns[2, 5] = 0
    duration = unpacked(heat_document(job)["duration"]).reshape(4, 9)
    assert np.argwhere(duration == 0).tolist() == [[2, 5]]


def test_columns_of_a_long_job_are_means_of_steps():
    job = a_job(Shape(2, steps=2 * MOST_STEPS + 1, calls=1, late=1))
    document = heat_document(job)
    assert document["mean_of"] == 3
    assert document["steps"][:2] == ["0 to 2", "3 to 5"]
    first = times(unpacked(document["duration"]))[0]
    assert first == pytest.approx(job.heat.duration_ns[0, :3].mean(), rel=0.005)


def test_all_of_few_ranks_and_some_of_many_are_aligned():
    few, many = a_job(Shape(8)), a_job(Shape(64, steps=6, late=40))
    assert [each.place for each in shown_ranks(few)] == list(range(8))
    chosen = {each.place: each.why for each in shown_ranks(many)}
    assert len(chosen) == 8
    assert chosen[40] == "late"
    assert {"waits most", "median"} <= set(chosen.values())


def test_ranks_whose_clocks_nothing_connects_are_left_out():
    job = a_job(Shape(8))
    job.clocks.component[6:] = 1
    assert [each.place for each in shown_ranks(job)] == list(range(6))
    assert "2 ranks could not be aligned with them." in aligned_document(job)["clocks"]


def test_ranks_of_one_clock_state_no_error():
    job = a_job(Shape(8))
    job.clocks.error_ns[:] = 0
    assert aligned_document(job)["clocks"] == "These ranks read one clock."
    assert "the same for all" in render_html(job, "0")


def test_the_window_is_the_step_in_which_ranks_wait_longest():
    job = a_job(Shape(8))
    longest, median = shown_windows(job, shown_ranks(job))
    worst = int(job.heat.late_ns[:, 1:].max(axis=0).argmax()) + 1
    assert longest.title == f"Step with the longest wait: step_{worst}"
    assert longest.to_ns - longest.from_ns == job.heat.duration_ns[0, worst]
    assert median.title.startswith("Median step: ")


def aligned_ranks(document):
    return json.loads(zlib.decompress(bytes_of(document["ranks"])))


def test_a_small_job_is_aligned_whole():
    job = a_job(Shape(8))
    document = aligned_document(job)
    assert [len(rank["calls"]) for rank in aligned_ranks(document)] == [120] * 8
    assert [step[0] for step in document["steps"]] == list(range(30))
    assert document["windows"][0]["first"] < 0 < document["windows"][0]["to"]


def test_of_a_large_job_the_windows_are_aligned(monkeypatch):
    monkeypatch.setattr(aligned, "MOST_BLOCKS", 200)
    document = aligned_document(a_job(Shape(8)))
    longest, median = document["windows"]
    for rank in aligned_ranks(document):
        assert 8 <= len(rank["calls"]) <= 12
    assert len(document["steps"]) == 2
    assert longest["last"] - longest["first"] < 2 * (longest["to"] - longest["from"])
    assert median["from"] != 0


def test_a_collective_ends_at_one_time_on_all_aligned_ranks():
    ranks = aligned_ranks(aligned_document(a_job(Shape(8))))
    ends = [{call[6]: call[0] + call[1] for call in rank["calls"]} for rank in ranks]
    assert all(each == ends[0] for each in ends)
    assert len(ends[0]) >= 4


def test_a_job_without_steps_shows_the_longest_wait():
    job = a_job(Shape(4, steps=3, late=1))
    job.heat.duration_ns[:] = np.iinfo(np.int64).min
    document = aligned_document(job)
    assert document["windows"][0]["title"] == "Longest wait"
    waits = [call[5] for rank in aligned_ranks(document) for call in rank["calls"]]
    assert max(waits) == max(int(each.wait_ns.max()) for each in job.matched)
