"""The two walks of docs/reading.md, click by click."""

import pytest

import traceview
from tests.places import DATA, REPOSITORY
from tests.render.chromium import needs_chromium
from tests.render.timeline.opened_page import Opened

pytestmark = [needs_chromium, pytest.mark.programs]
SIZE = {"width": 1400, "height": 900}


@pytest.fixture
def walked(browser, tmp_path):
    """Opens the page of a recording."""
    pages = []

    def walk(recording):
        page = traceview.report(recording).to_html(tmp_path / "page.html")
        pages.append(Opened(browser, page, viewport=SIZE))
        return pages[-1]

    yield walk
    for opened in pages:
        assert opened.said == []
        opened.close()


def test_which_line_makes_the_gpu_wait_and_what_to_change(walked):
    opened = walked(REPOSITORY / "examples/loader.sqlite.xz")
    card = opened.page.locator(".finding").first
    assert "Raise num_workers" in card.inner_text()
    assert "one_worker.py:44" in card.inner_text()
    card.get_by_role("button", name="Show in the timeline").click()
    opened.rest()
    assert "one_worker.py:44 in loss" in opened.facts()["CPU meanwhile"]
    opened.select("step 80")
    assert opened.facts()["Median step"].endswith(": nothing unusual")
    # Of the hits that begin with it, the range of the thread answers as the step does.
    for _ in range(2):
        opened.select("step 77")
        facts = opened.facts()
        assert facts["Median step"].endswith("longer")
        assert "data loading +" in facts["More on the CPU"]
    card.locator("details.evidence > summary").click()
    assert "persistent_workers=True" in card.locator(".action").inner_text()


def test_who_launched_a_kernel_and_what_runs_beside_it(walked):
    opened = walked(DATA / "streams.sqlite.xz")
    opened.page.locator(".finding").first.get_by_role("button", name="Show in the").click()
    opened.select("step 77")
    # Without a hit, nothing else is gone to.
    assert opened.page.locator(".tl-hits").inner_text() == "0 hits"
    opened.select("tanh")
    facts = opened.facts()
    assert facts["Launched by"].startswith("cudaLaunchKernel")
    assert facts["In"].endswith("/ compute")
    assert facts["All of this name"].startswith("268, ")
    opened.key("g")
    assert opened.page.locator(".tl-row h4").inner_text().startswith("cudaLaunchKernel")
    opened.key("Escape")
    opened.key("0")
    opened.rest()
    table = opened.page.locator(".tl-device table:has(caption:text('Streams at once'))")
    assert "Stream 7 and Stream 13" in table.inner_text()
