"""Simulated jobs of every kind in all outputs: they fit, and the timeline agrees with itself."""

import json
import zlib

import pytest
from rich.cells import cell_len

from tests.ranks.job_model import SHAPES
from tests.ranks.rank_programs import run
from tests.ranks.simulated_figures import figures, recordings
from tests.ranks.simulated_jobs import with_straggler
from tests.render.packed import bytes_of
from traceview.render.ranks.aligned import aligned_document
from traceview.render.ranks.html import render_html
from traceview.render.ranks.text import MOST_LINES, render_job
from traceview.traces.ranks.answer import job_report


def simulated(shape, seed):
    job = with_straggler(seed, shape)
    lines = run(job)
    recorded = recordings(seed, len(lines))
    return job_report([figures(*each) for each in zip(lines, recorded, strict=True)])


@pytest.fixture(scope="module", params=SHAPES)
def job(request):
    return simulated(request.param, 0)


@pytest.mark.parametrize("width", [80, 160])
def test_the_text_fits_one_screen(job, width):
    lines = render_job(job, width=width).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(cell_len, lines)) <= width


def test_every_finding_is_in_all_outputs(job):
    page, markdown = render_html(job, "0"), job.to_markdown()
    assert page.count('<li class="finding') == len(job.result.findings)
    assert markdown.count("\n   → ") == len([f for f in job.result.findings if f.action])


def test_the_rank_that_arrived_last_took_part_and_waited_least(job):
    document = aligned_document(job)
    ranks = json.loads(zlib.decompress(bytes_of(document["ranks"])))
    waits: dict[int, dict[int, int]] = {}
    last = {}
    for rank in ranks:
        for call in rank["calls"]:
            waits.setdefault(call[6], {})[rank["rank"]] = call[5]
            last[call[6]] = call[8]
    known = [event for event, rank in last.items() if event >= 0 and rank >= 0]
    whole = [event for event in known if len(waits[event]) > 1]
    assert whole
    for event in whole:
        wait = {rank: max(ns, 0) for rank, ns in waits[event].items()}
        assert wait[last[event]] == min(wait.values())
