"""A selected time by call path and by name, lists of hits, notes, and lanes that are moved."""

import pytest

from tests.render.chromium import AXE, needs_chromium, serious_violations
from tests.render.timeline.opened_page import CANVAS, Opened

pytestmark = [needs_chromium, pytest.mark.programs]
SIZE = {"width": 1400, "height": 1000}
HOSTILE = "</script><img src=x onerror=alert(1)> $& waits"
ROWS = """table => Array.from(table.tBodies[0].rows,
    row => [row.cells[0].textContent, ...Array.from(row.cells, cell => cell.dataset.v)
        .filter(value => value !== undefined).map(Number)])"""


def rows_of(opened, panel):
    """The name and the numbers of each row of the table in a panel."""
    rows = opened.page.locator(f"{panel} table").evaluate(ROWS)
    return {name: numbers for name, *numbers in rows}


def test_a_time_by_path_and_by_name_and_its_hits(browser, recording_with_a_slow_step):
    """Eight steps of 100 µs, one with 400 µs more in load_batch."""
    opened = Opened(
        browser, recording_with_a_slow_step, viewport=SIZE, color_scheme="light", bypass_csp=True
    )
    page, names = opened.page, ".tl-names"
    opened.key("0")
    opened.rest()
    assert page.locator(f"{names} table").count() == 0
    page.locator(f"{names} > summary").click()
    by_name = rows_of(opened, names)
    kernel = next(name for name in by_name if name != "step_#")
    assert by_name["step_#"][:3] == [8, 480_000, 0]
    assert by_name[kernel] == [8, 480_000, 480_000, 100]
    page.get_by_role("button", name="CPU threads").click()
    by_name = rows_of(opened, names)
    assert by_name["step_#"][:3] == [8, 1_200_000, 680_000]
    assert by_name["load_batch"][:3] == [8, 480_000, 480_000]
    assert by_name["cudaLaunchKernel"][:3] == [8, 40_000, 40_000]
    boxes = page.locator(".tl-flame button")
    widths = {box.inner_text(): box.bounding_box()["width"] for box in boxes.all()}
    assert widths["load_batch"] / widths["step_#"] == pytest.approx(480 / 1200, rel=0.01)
    boxes.filter(has_text="load_batch").click()
    assert list(rows_of(opened, names)) == ["load_batch"]

    page.locator(f"{names} table").get_by_role("button", name="load_batch").click()
    assert page.locator(".tl-hits").inner_text() == "8 hits"
    listed = page.locator(".tl-list tbody tr")
    listed.first.wait_for()
    assert listed.count() == 8
    page.locator(".tl-list th button").filter(has_text="duration").click()
    assert "step_4" in listed.first.inner_text()
    listed.first.get_by_role("button").click()
    assert opened.facts()["Duration"] == "410 µs"
    opened.key("p")
    assert "step_3" in page.locator(".tl-list tr.marked").inner_text()
    page.get_by_role("button", name="List all of this name").click()
    page.locator(".tl-tools input").fill("nothing has this name")
    opened.rest()
    assert (page.locator(".tl-hits").inner_text(), listed.count()) == ("0 hits", 0)
    opened.select("step_4")
    opened.rest()
    # A selected step is what the flame graph is of.
    assert rows_of(opened, names)["load_batch"][:3] == [1, 410_000, 410_000]
    if AXE.exists():
        assert serious_violations(page) == []
    assert opened.said == []
    opened.close()


SCRIPTS_AND_TOOLS = "[document.scripts.length, document.querySelectorAll('.tools').length]"


def test_notes_are_kept_in_a_saved_page(browser, recording_with_a_slow_step, tmp_path):
    path, worked = recording_with_a_slow_step, []
    for text in (HOSTILE, "step 4 loads for long"):
        opened = Opened(browser, path, viewport=SIZE)
        worked.append(opened.page.evaluate(SCRIPTS_AND_TOOLS))
        notes = opened.page.locator(".tl-notes")
        opened.select("step_4")
        opened.key("m")
        notes.get_by_role("textbox").fill(text)
        opened.key("m")
        assert notes.get_by_role("textbox").input_value() == text
        opened.page.keyboard.press("Enter")
        with opened.page.expect_download() as saved:
            notes.get_by_role("button", name="Save page with notes").click()
        assert saved.value.suggested_filename == path.name
        path = tmp_path / f"{len(text)}" / "page.html"
        saved.value.save_as(path)
        opened.close()
    again = Opened(browser, path, viewport=SIZE)
    assert worked == [again.page.evaluate(SCRIPTS_AND_TOOLS)] * 2
    assert worked[0][1] > 0
    notes = again.page.locator(".tl-notes li")
    assert [text.rstrip(" ×").split(" s ", 1)[1] for text in notes.all_inner_texts()] == [
        HOSTILE,
        "step 4 loads for long",
    ]
    notes.last.get_by_role("button").last.click()
    assert notes.count() == 1
    assert again.page.locator(".timeline img").count() == 0
    assert again.said == []
    again.close()


def test_a_lane_is_pinned_made_taller_and_moved(browser, recording_with_a_slow_step):
    opened = Opened(browser, recording_with_a_slow_step, viewport=SIZE)
    page = opened.page
    canvas, scroll, tip = (page.locator(each) for each in (CANVAS, ".tl-scroll", ".tl-tip"))
    opened.select("load_batch")
    opened.key("f")
    height = scroll.bounding_box()["height"]
    opened.key("h")
    assert scroll.bounding_box()["height"] > height + 30
    opened.key("t")
    box = canvas.bounding_box()

    def below(y):
        """What the tooltip says in the middle of the lanes, so far below their top."""
        page.mouse.move(box["x"] + 190 + (box["width"] - 190) / 2, box["y"] + 24 + y)
        return tip.inner_text() if tip.is_visible() else ""

    heading = 20
    # The thread has a lane of steps, twice as tall, above that of its loads.
    assert below(heading + 40).startswith("load_batch")
    page.mouse.move(0, 0)
    opened.key("t")
    opened.key("]")
    assert not below(heading + 40).startswith("load_batch")
    page.mouse.move(0, 0)
    opened.key("[")
    assert below(heading + 40).startswith("load_batch")
    page.mouse.move(box["x"] + 60, box["y"] + 24 + heading + 30)
    page.mouse.down()
    for y in range(30, 160, 10):
        page.mouse.move(box["x"] + 60, box["y"] + 24 + heading + y)
    page.mouse.up()
    assert not below(heading + 40).startswith("load_batch")
    assert opened.said == []
    opened.close()
