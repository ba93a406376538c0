"""Tooltips, minimap, folding, arrows and fingers, each held to what the recording says."""

import json
import re
import sqlite3

import numpy as np
import pytest

from tests.render.chromium import needs_chromium
from tests.render.timeline.opened_page import CANVAS, Opened

pytestmark = [needs_chromium, pytest.mark.programs]
MARGIN, AXIS = 190, 24
MAP, MAP_WINDOW = ".tl-map", ".tl-window"
# The places of the pixels that are others than when it was last asked.
CHANGED = """canvas => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const pen = copy.getContext("2d", { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
    const now = new Uint32Array(data.buffer), last = window.pixels ?? now;
    window.pixels = now;
    return Array.from(now.keys()).filter(at => now[at] !== last[at]); }"""


def canvas_box(opened):
    canvas = opened.page.locator(CANVAS)
    canvas.scroll_into_view_if_needed()
    return canvas.bounding_box()


def document(opened):
    return json.loads(opened.page.locator("#timeline-data").text_content())


def test_a_tooltip_names_the_row_below_the_pointer(opened):
    opened.select("gelu_backward")
    facts, name = opened.facts(), opened.page.locator(".tl-row h4").inner_text().split("\n")[0]
    opened.key("f")
    box = canvas_box(opened)
    tip, said = opened.page.locator(".tl-tip"), {}
    middle = box["x"] + MARGIN + (box["width"] - MARGIN) / 2
    for y in range(AXIS + 4, int(box["height"]), 6):
        opened.page.mouse.move(middle, box["y"] + y)
        if tip.is_visible():
            said[y] = tip.inner_text()
    (own,) = {text for text in said.values() if "gelu_backward" in text}
    assert own.endswith(facts["Duration"])
    assert own.split(" \u00b7 ")[0] in name
    opened.page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_keys_act_under_the_pointer_and_two_of_them_anywhere(opened):
    page = opened.page
    opened.key("ArrowDown")
    page.locator(CANVAS).scroll_into_view_if_needed()
    box, before = canvas_box(opened), opened.window

    def press(key, x, y):
        page.evaluate("document.activeElement.blur()")
        page.mouse.move(x, y)
        page.keyboard.press(key)

    press("+", 5, box["y"])
    assert opened.window == before
    press("+", box["x"] + MARGIN + 100, box["y"] + AXIS + 20)
    assert opened.window != before
    press("?", 5, box["y"])
    assert page.locator(".tl-help").is_visible()
    press("/", 5, box["y"])
    assert page.evaluate("document.activeElement.type") == "search"


def test_the_minimap_shows_the_window_and_moves_it(opened):
    opened.select("gelu_backward")
    end = document(opened)["end"]

    def window_on_map():
        whole = opened.page.locator(MAP).bounding_box()
        shown = opened.page.locator(MAP_WINDOW).bounding_box()
        return (shown["x"] - whole["x"]) / whole["width"], shown["width"] / whole["width"]

    opened.key("0")
    for _ in range(3):
        opened.key("+")
    begin, stop = opened.window
    assert window_on_map() == pytest.approx((begin / end, (stop - begin) / end), abs=0.002)
    whole = opened.page.locator(MAP).bounding_box()
    for place in (0.3, 0.6):
        opened.page.mouse.click(whole["x"] + place * whole["width"], whole["y"] + 10)
        moved = opened.window
        assert sum(moved) / 2 == pytest.approx(place * end, rel=0.01)
        assert moved[1] - moved[0] == pytest.approx(stop - begin, abs=2)
        at = window_on_map()
        assert at == pytest.approx((moved[0] / end, (stop - begin) / end), abs=0.002)


def test_a_click_on_its_title_folds_a_lane_and_opens_it_again(opened):
    box = canvas_box(opened)
    heights = [opened.page.locator(".tl-scroll").bounding_box()["height"]]
    folds = []
    for y in range(AXIS + 6, int(box["height"]), 12):
        opened.page.mouse.click(box["x"] + 60, box["y"] + y)
        heights.append(opened.page.locator(".tl-scroll").bounding_box()["height"])
        if heights[-1] < heights[0] - 20:
            folds.append(y)
            opened.page.mouse.click(box["x"] + 60, box["y"] + y)
            assert opened.page.locator(".tl-scroll").bounding_box()["height"] == heights[0]
            break
    assert folds


def test_the_arrow_starts_at_the_launch_call(opened, exported):
    """The topmost pixels that a selection adds are the dot at the start of its launch call."""
    opened.select("gelu_backward")
    opened.page.locator(".tl-tools input").fill("")
    begin, end = opened.window
    origin = int(document(opened)["origin"])
    start = round(float(opened.facts()["Start"].split()[0]) * 1e9)
    with sqlite3.connect(exported) as database:
        ((called,),) = database.execute(
            "select r.start from CUPTI_ACTIVITY_KIND_KERNEL k join CUPTI_ACTIVITY_KIND_RUNTIME r "
            "on r.correlationId = k.correlationId where k.start = ?",
            (start,),
        )
    canvas = opened.page.locator(CANVAS)
    width = canvas.evaluate("canvas => canvas.width")
    assert canvas.evaluate(CHANGED) == []
    opened.key("Escape")
    assert opened.window == (begin, end)
    changed = np.array(canvas.evaluate(CHANGED))
    top = changed[0] // width
    dot = changed[changed // width < top + 4] % width
    per_pixel = (end - begin) / (width - MARGIN)

    def x_of(time):
        return MARGIN + (time - origin - begin) / per_pixel

    assert dot.mean() == pytest.approx(x_of(called), abs=2)
    frame = changed[changed // width == changed[-1] // width] % width
    assert frame.min() == pytest.approx(x_of(start), abs=3)


@pytest.fixture
def phone(browser, recording):
    opened = Opened(browser, recording[1], viewport={"width": 390, "height": 844}, has_touch=True)
    box = canvas_box(opened)
    opened.page.touchscreen.tap(box["x"] + 200, box["y"] + 45)
    opened.page.locator(".tl-row h4").wait_for()
    yield opened
    assert opened.said == []
    opened.close()


def touch(opened, *fingers):
    """Fingers that go from one x to another, at the same height."""
    session = opened.page.context.new_cdp_session(opened.page)
    box = canvas_box(opened)

    def points(share):
        return [
            {"x": box["x"] + start + share * (end - start), "y": box["y"] + 60, "id": finger}
            for finger, (start, end) in enumerate(fingers)
        ]

    send = session.send
    send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points(0)})
    for step in range(1, 11):
        moved = {"type": "touchMove", "touchPoints": points(step / 10)}
        send("Input.dispatchTouchEvent", moved)
    send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    return box["width"]


def test_a_finger_drags_the_time_below_it(phone):
    begin, end = phone.window
    width = touch(phone, (150, 250))
    moved = phone.window
    assert moved[1] - moved[0] == pytest.approx(end - begin, abs=2)
    # The browser keeps the first pixels of a touch to tell a drag from a tap.
    assert begin - moved[0] == pytest.approx(100 * (end - begin) / width, rel=0.2)


def test_two_fingers_zoom_about_their_middle(phone):
    begin, end = phone.window
    width = touch(phone, (150, 100), (250, 300))
    near = phone.window
    assert (near[1] - near[0]) / (end - begin) == pytest.approx(100 / 200, rel=0.2)

    def at_middle(window):
        return window[0] + 200 / width * (window[1] - window[0])

    assert at_middle(near) == pytest.approx(at_middle((begin, end)), abs=(end - begin) * 0.05)


def test_a_slow_step_says_what_it_has_more_of(browser, recording_with_a_slow_step):
    opened = Opened(browser, recording_with_a_slow_step, viewport={"width": 1400, "height": 1000})
    opened.select("step_4")
    facts = opened.facts()
    assert re.fullmatch(r"100 µs \(step_\d\); this one takes 400 µs longer", facts["Median step"])
    assert facts["More on the GPU"].startswith("idle, ")
    assert facts["More on the GPU"].endswith("+400 µs")
    assert facts["More on the CPU"] == "load_batch +400 µs"
    opened.rest()
    assert opened.page.locator(".tl-sums h4").inner_text().startswith("In step_4")
    assert opened.said == []
    opened.close()


def test_a_finding_selects_its_gap_which_says_what_the_cpu_did(browser, recording_with_a_slow_step):
    opened = Opened(browser, recording_with_a_slow_step, viewport={"width": 1400, "height": 1000})
    opened.page.get_by_role("button", name="Show in the timeline").first.click()
    facts = opened.facts()
    assert "load_batch" in facts["CPU meanwhile"]
    assert facts["Cause"]
    assert opened.said == []
    opened.close()
