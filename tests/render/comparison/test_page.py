"""The page of a comparison, open in Chromium: one file, two timelines that move together."""

import re

import pytest

import traceview
from tests.comparison.sides import a_comparison, a_difference, a_run
from tests.places import DATA
from tests.render.chromium import needs_axe, needs_chromium, opened, serious_violations
from tests.render.example_report import CONTROLS, HOSTILE

pytestmark = pytest.mark.programs

SIDES = (DATA / "mlp_print_loss.sqlite.xz", DATA / "mlp_nosync.sqlite.xz")
LANES = ".timeline.ready"
ON_STEPS = 34
"""Pixels below the top of the canvas, under the ruler."""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    return traceview.compare(*SIDES).to_html(path)


@pytest.fixture
def shown(browser, page):
    with opened(browser, page) as shown:
        shown.page.wait_for_function(f"() => document.querySelectorAll('{LANES}').length === 2")
        shown.page.wait_for_timeout(400)
        yield shown
        assert shown.problems == []


def spans(shown):
    """The length of the window of each timeline, as the sums say it."""
    shown.page.wait_for_timeout(400)
    return shown.page.locator(".tl-sums > h4 small").all_text_contents()


@needs_chromium
def test_both_timelines_zoom_together(shown):
    first = spans(shown)
    assert len(first) == 2
    assert first[0] == first[1]
    for at in (0, 1):
        shown.page.locator(".tl-scroll canvas").nth(at).press("+")
        now = spans(shown)
        assert now[0] == now[1] != first[0]
        first = now


@needs_chromium
def test_both_start_at_a_typical_step(shown):
    """Just right of the same place, each has the step that begins at its anchor."""
    for at in (0, 1):
        canvas = shown.page.locator(".tl-scroll canvas").nth(at)
        room = canvas.bounding_box()["width"] - 190
        canvas.click(position={"x": 190 + room * 0.06 / 1.18 + 4, "y": ON_STEPS})
        start = shown.page.locator(LANES).nth(at).locator(".tl-row dd").first.text_content()
        anchor = int(shown.page.locator(LANES).nth(at).get_attribute("data-anchor"))
        assert float(start.removesuffix(" s")) == pytest.approx(anchor / 1e9, abs=1e-8)
    assert "#t=" not in shown.page.url


@needs_chromium
def test_parts_open_to_both_sides_without_scripts(browser, page):
    with opened(browser, page, java_script_enabled=False) as shown:
        assert shown.page.locator("#parts .part-row").count() > 4
        shown.page.locator("#parts details details summary").first.click()
        table = shown.page.locator("#parts details details table").first
        assert table.locator("th").all_text_contents()[:3] == ["", "before", "after"]
        assert shown.page.locator(".timeline svg").count() == 2


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_nothing_is_wider_than_the_window(browser, page, width, scheme):
    """A scheme changes colors alone, so one of each is enough."""
    settings = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with opened(browser, page, **settings) as shown:
        shown.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        widest = shown.page.evaluate("document.documentElement.scrollWidth")
        assert widest <= width
        assert shown.problems == []


def test_hostile_names_are_text():
    names = (HOSTILE, CONTROLS, "</script><script>alert(1)</script>")
    parts = [a_difference(name, 1, 10_000, place=name, group=name) for name in names]
    html = a_comparison(parts, before=(a_run(names[2], torch=names[2]),)).to_html()
    assert "<script>alert(1)" not in html
    assert len(re.findall("<script", html)) == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", html)


def test_figures_alone_have_no_timelines():
    assert "Timelines" not in a_comparison().to_html()


@needs_chromium
@needs_axe
def test_a_screen_reader_finds_nothing_serious(browser, page):
    with opened(browser, page, color_scheme="light", bypass_csp=True) as shown:
        shown.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert serious_violations(shown.page) == []
