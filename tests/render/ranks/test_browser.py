"""The page of a job, open in Chromium: the map and the timeline say what the tables say."""

import pytest

from tests.render.chromium import needs_axe, needs_chromium, opened, serious_violations
from tests.render.example_report import HOSTILE
from tests.render.ranks.jobs import Shape, a_job
from traceview.base import units
from traceview.render.ranks.html import render_html
from traceview.traces.ranks.job import FailedRank

pytestmark = [needs_chromium, pytest.mark.programs]
MAP, LANES = "#heat-map canvas", "#aligned-ranks canvas"
READY = "() => document.querySelectorAll('.heat.ready, .aligned.ready').length === 2"
CELL_HEIGHT = 22


@pytest.fixture(scope="module")
def job():
    return a_job(Shape(8, steps=12))


@pytest.fixture(scope="module")
def page(tmp_path_factory, job):
    path = tmp_path_factory.mktemp("ranks") / "page.html"
    path.write_text(render_html(job, "0"))
    return path


@pytest.fixture
def shown(browser, page):
    with opened(browser, page) as shown:
        shown.page.wait_for_function(READY)
        yield shown
        assert shown.problems == []


def test_the_cell_under_the_pointer_says_what_the_table_says(shown, job):
    canvas, table = shown.page.locator(MAP), job.result.tables["rank_steps"]
    width = canvas.bounding_box()["width"]
    left = 12 + canvas.evaluate("c => Math.ceil(c.getContext('2d').measureText('7').width)")
    for rank, step in ((0, 1), (3, 6), (7, 11)):
        x = left + (step + 0.5) * (width - left) / 12
        canvas.hover(position={"x": x, "y": (rank + 0.5) * CELL_HEIGHT})
        row = next(r for r in table.rows() if (r["rank"], r["step"]) == (rank, f"step_{step}"))
        said = shown.page.locator("#heat-map .rk-tip").inner_text()
        assert f"Rank {rank}, step {step}: {units.duration(row['duration_ns'])}" in said
        assert f"compute {units.duration(row['compute_ns'])}" in said
        if rank != job.ranks[3].name.rank and row["wait_ns"] > row["duration_ns"] / 100:
            assert f"waiting for others {units.duration(row['wait_ns'])}" in said


def test_keys_move_over_the_map(shown):
    canvas = shown.page.locator(MAP)
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        canvas.press(key)
    assert shown.page.locator("#heat-map .rk-details").inner_text().startswith("Rank 1, step 1")


def test_rows_of_several_ranks_open(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_html(a_job(Shape(256, steps=6, late=100)), "0"))
    with opened(browser, path) as shown:
        shown.page.wait_for_function(READY)
        canvas = shown.page.locator(MAP)
        details = shown.page.locator("#heat-map .rk-details")
        canvas.press("ArrowDown")
        assert details.inner_text().startswith("Rank 100 on node12, step 0")
        canvas.press("ArrowDown")
        assert "the most of ranks 0 to 2" in details.inner_text()
        details.get_by_role("button", name="Show these 3 ranks").click()
        canvas.press("ArrowDown")
        assert details.inner_text().startswith("Rank 0 on node0, step 0")
        canvas.press("Escape")
        assert shown.page.locator("#heat-map .rk-tools button").is_hidden()
        assert shown.problems == []


def test_every_colouring_draws(shown):
    choice = shown.page.locator("#heat-map select")
    titles = choice.locator("option").all_text_contents()
    assert titles[:2] == ["who waits for whom", "largest part besides compute"]
    pictures = set()
    for title in titles:
        choice.select_option(title)
        pictures.add(shown.page.locator(MAP).evaluate("canvas => canvas.toDataURL()"))
    assert len(pictures) == len(titles)


def test_a_collective_says_who_arrived_last(shown):
    canvas = shown.page.locator(LANES)
    details = shown.page.locator("#aligned-ranks .rk-details")
    for _ in range(3):
        canvas.press("ArrowRight")
        if "waiting for others" in details.inner_text():
            break
    assert "all-reduce of 26.2 MB in world" in details.inner_text()
    assert "Rank 3 arrived last." in details.inner_text()
    for _ in range(3):
        canvas.press("ArrowDown")
    assert "It arrived last." in details.inner_text()


def test_zooming_changes_the_picture_and_the_choice_restores_it(shown):
    canvas = shown.page.locator(LANES)
    drawn = "canvas => canvas.toDataURL()"
    first = canvas.evaluate(drawn)
    canvas.press("0")
    assert canvas.evaluate(drawn) != first
    shown.page.locator("#aligned-ranks select").dispatch_event("change")
    assert canvas.evaluate(drawn) == first


def test_a_cell_leads_to_its_step_in_the_timeline(shown):
    lanes = shown.page.locator(LANES)
    first = lanes.evaluate("canvas => canvas.toDataURL()")
    shown.page.locator(MAP).press("ArrowDown")
    shown.page.get_by_role("button", name="Show the step in the timeline").click()
    assert lanes.evaluate("canvas => canvas.toDataURL()") != first
    chosen = shown.page.locator("#aligned-ranks select option:checked")
    assert chosen.text_content() == "step 0"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_nothing_is_wider_than_the_window(browser, page, width, scheme):
    """A scheme changes colors alone, so one of each is enough."""
    settings = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with opened(browser, page, **settings) as shown:
        shown.page.wait_for_function(READY)
        shown.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.problems == []


def test_tables_and_findings_need_no_scripts(browser, page, job):
    with opened(browser, page, java_script_enabled=False) as shown:
        assert shown.count("#findings .finding") == len(job.result.findings) > 0
        assert shown.count("#tables tbody tr") > 8
        assert "With scripts on" in shown.page.locator("#heat-map").inner_text()


def test_hostile_names_stay_text(browser, tmp_path):
    path = tmp_path / "page.html"
    failed = (FailedRank(HOSTILE, HOSTILE, HOSTILE),)
    path.write_text(render_html(a_job(Shape(name=HOSTILE, failed=failed)), "0"))
    with opened(browser, path) as shown:
        shown.page.wait_for_function(READY)
        for canvas in (MAP, LANES):
            shown.page.locator(canvas).press("ArrowDown")
        assert shown.count("img") == 0
        assert shown.problems == []


@needs_axe
def test_a_screen_reader_finds_nothing_serious(browser, page):
    with opened(browser, page, color_scheme="light", bypass_csp=True) as shown:
        shown.page.wait_for_function(READY)
        shown.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert serious_violations(shown.page) == []
