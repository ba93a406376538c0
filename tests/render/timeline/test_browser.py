"""The timeline in a real browser, from a file and without a network, driven like a person does."""

import json
import re

import numpy as np
import pytest

from tests.build import Export
from tests.render.chromium import needs_chromium
from tests.render.timeline.opened_page import CANVAS, Opened
from traceview import analyze
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.idle.gaps import every_gap
from traceview.traces.facts.kernel_classes import KernelClass, kernel_classes
from traceview.traces.facts.operations import operations

pytestmark = [needs_chromium, pytest.mark.programs]


def expected_sums(trace, start, end):
    """The same by comparing every row: idle time by cause, kernels by class, busy, idle."""
    ops, gaps = operations(trace), every_gap(trace)
    inside = np.clip(gaps.end_ns, start, end) - np.clip(gaps.start_ns, start, end)
    times = {
        f"idle-{name}": int(inside[gaps.cause == cause].sum())
        for cause, name in enumerate(CAUSE_NAMES)
    }
    kernels = trace.kernels
    within = np.clip(kernels["end_ns"], start, end) - np.clip(kernels["start_ns"], start, end)
    for kind in KernelClass:
        times[f"kernel-{kind.label}"] = int(within[kernel_classes(trace) == kind].sum())
    span = min(end, int(ops.end_ns.max())) - max(start, int(ops.start_ns.min()))
    times = {name: time for name, time in times.items() if time}
    return times, span - int(inside.sum()), int(inside.sum())


def is_compared(name):
    return name.startswith(("idle-", "kernel-"))


def test_sums_of_the_whole_run_are_those_of_the_json(opened, recording):
    report, _ = recording
    opened.key("0")
    times, busy, idle = opened.sums()
    document = json.loads(report.to_json())["analyses"]
    (device,) = document["gpu-idle"]["tables"]["devices"]
    assert (busy, idle) == (device["busy_ns"], device["idle_ns"])
    for row in document["gpu-idle"]["tables"]["causes"]:
        assert times[f"idle-{row['cause']}"] == row["idle_ns"]
    for row in document["kernel-share"]["tables"]["classes"]:
        assert times[f"kernel-{row['class']}"] == row["total_ns"]


def test_sums_of_a_range_are_those_of_every_row(opened, recording):
    report, _ = recording
    page = opened.page
    page.locator(CANVAS).scroll_into_view_if_needed()
    box = page.locator(CANVAS).bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 10)
    page.mouse.move(box["x"] + 901, box["y"] + 10)
    page.mouse.up()
    times, busy, idle = opened.sums()
    assert "Selected range" in page.locator(".tl-sums").inner_text()
    begin, end = opened.window
    # The range lies where it was drawn, right of the titles.
    scale = (end - begin) / (box["width"] - 190)
    from_ns, to_ns = (begin + (x - 190) * scale for x in (500, 901))
    origin = int(json.loads(page.locator("#timeline-data").text_content())["origin"])
    trace = report.recording
    want, want_busy, want_idle = expected_sums(trace, int(from_ns + origin), int(to_ns + origin))
    got = {name: time for name, time in times.items() if is_compared(name)}
    assert set(got) == set(want)
    pixel = scale * 2
    assert all(abs(got[name] - want[name]) <= pixel for name in want)
    assert abs(busy - want_busy) <= pixel
    assert abs(idle - want_idle) <= pixel


def test_a_kernel_tells_its_launch_call_and_how_far_the_cpu_ran_ahead(opened):
    opened.select("gelu_backward")
    facts = opened.facts()
    assert "cudaLaunchKernel" in facts["Launched by"]
    assert "backward" in facts["In"]
    assert re.fullmatch(r"[\d.]+ [µm]?s", facts["Queue wait"])
    selected = int(re.search(r"sel=(\d+)", opened.page.url or "")[1]) if opened.window else -1
    opened.page.get_by_role("button", name="Go to the call").click()
    assert opened.page.locator(".tl-row h4").inner_text().startswith("cudaLaunchKernel")
    opened.page.get_by_role("button", name="Go to the work").click()
    assert "gelu_backward" in opened.page.locator(".tl-row h4").inner_text()
    assert opened.window
    assert f"sel={selected}" in opened.page.url


def test_a_kernel_tells_the_shapes_of_the_operator_that_launched_it(browser, tmp_path):
    sizes = "sizes = [[64, 8], [8, 32], []], input_op_ids = [(1,0), (2,0), (0,-1)]"
    export = Export().range("forward", 0, 100).launch((12, 18), (20, 90), name="gemm")
    export.range(f"aten::mm, seq = 3, op_id = 9, {sizes}", 10, 50)
    report = analyze(export.load(tmp_path), ["kernel-share"])
    opened = Opened(browser, report.to_html(tmp_path / "page.html"))
    opened.select("gemm")
    facts = opened.facts()
    assert facts["In"] == "forward / aten::mm"
    assert facts["Shapes"] == "aten::mm of 64×8, 8×32"
    assert opened.said == []
    opened.close()


def test_an_arrow_is_drawn_from_the_call(opened):
    picture = "canvas => canvas.toDataURL()"
    opened.select("gelu_backward")
    opened.page.locator(".tl-tools input").fill("")
    opened.rest()
    with_arrow = opened.page.locator(CANVAS).evaluate(picture)
    opened.key("Escape")
    opened.rest()
    assert opened.page.locator(CANVAS).evaluate(picture) != with_arrow


def test_search_counts_and_goes_through_hits(opened, recording):
    report, _ = recording
    names = report.recording.kernels.texts("name").decode()
    gelus = sum("gelu" in name.lower() for name in names)
    opened.select("gelu")
    assert opened.page.locator(".tl-hits").inner_text() == f"{gelus} hits"
    first = opened.facts()["Start"]
    opened.page.get_by_role("button", name="Next hit").click()
    assert float(opened.facts()["Start"].split()[0]) > float(first.split()[0])
    opened.page.get_by_role("button", name="Previous hit").click()
    assert opened.facts()["Start"] == first


def test_keys_zoom_move_and_select(opened):
    opened.key("ArrowDown")
    first = opened.window
    opened.key("+")
    near = opened.window
    assert near[1] - near[0] < first[1] - first[0]
    opened.key("-")
    assert opened.window == pytest.approx(first, abs=2)
    opened.page.locator(CANVAS).focus()
    opened.page.keyboard.down("d")
    opened.frames(4)
    opened.page.keyboard.up("d")
    assert opened.window[0] > first[0]
    opened.key("f")
    row = opened.page.locator(".tl-row h4").inner_text()
    opened.key("ArrowRight")
    assert opened.page.locator(".tl-row h4").count() == 1
    opened.key("ArrowLeft")
    assert opened.page.locator(".tl-row h4").inner_text() == row
    opened.key("?")
    assert opened.page.locator(".tl-help").is_visible()


def test_the_wheel_scrolls_the_page_and_zooms_with_control(opened):
    opened.key("ArrowDown")
    before = opened.window
    box = opened.page.locator(CANVAS).bounding_box()
    opened.page.mouse.move(box["x"] + 600, box["y"] + 100)
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -300)
    opened.page.keyboard.up("Control")
    after = opened.window
    assert after[1] - after[0] < (before[1] - before[0]) * 0.8


def test_a_link_opens_the_same_place(browser, recording, opened):
    opened.select("gelu_backward")
    place, facts = opened.window, opened.facts()
    again = Opened(browser, recording[1], "#" + opened.page.url.partition("#")[2])
    assert again.facts() == facts
    assert again.window == place
    assert again.said == []
    again.close()


def test_a_finger_moves_and_taps(browser, recording):
    phone = Opened(browser, recording[1], viewport={"width": 390, "height": 844}, has_touch=True)
    canvas = phone.page.locator(CANVAS)
    canvas.scroll_into_view_if_needed()
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    box = canvas.bounding_box()
    phone.page.touchscreen.tap(box["x"] + 200, box["y"] + 45)
    assert phone.page.locator(".tl-row h4").inner_text().startswith("step_")
    assert phone.said == []
    phone.close()


def test_without_scripts_there_is_a_strip(browser, recording):
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(recording[1].as_uri())
    assert page.locator("#timeline-lanes svg").bounding_box()["height"] > 40
    context.close()


def test_hostile_names_are_text(browser, tmp_path):
    name = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e" + "x" * 20_000
    trace = Export().named_thread(0, name).range(name, 0, 100).launch((1, 2), (3, 90), name=name)
    path = analyze(trace.load(tmp_path)).to_html(tmp_path / "page.html")
    opened = Opened(browser, path)
    opened.select("onerror")
    assert "onerror" in opened.page.locator(".tl-row").inner_text()
    assert opened.page.locator(".timeline img").count() == 0
    assert opened.said == []
    opened.close()


def test_streams_have_their_sums_and_the_time_that_two_share(browser, tmp_path):
    """Two streams, of random work; beside counting every nanosecond."""
    random, export = np.random.default_rng(3), Export()
    busy = np.zeros((2, 60_000), bool)
    for stream in (0, 1):
        at = 1_000
        while at < 50_000:
            length, pause = (int(each) for each in random.integers(100, 5_000, 2))
            export.launch((at - 900, at - 800), (at, at + length), stream=7 + stream)
            busy[stream, at : at + length] = True
            at += length + pause
    report = analyze(export.load(tmp_path), ["kernel-share", "gpu-idle"])
    opened = Opened(browser, report.to_html(tmp_path / "page.html"))
    opened.key("0")
    opened.rest()
    rows = opened.page.locator(".tl-device table:has(caption:text('By stream')) tr")
    shown = {row.locator("th").inner_text(): row.get_attribute("data-ns") for row in rows.all()}
    assert {name.split()[-1]: int(ns) for name, ns in shown.items()} == {
        str(7 + stream): busy[stream].sum() for stream in (0, 1)
    }
    rows = opened.page.locator(".tl-device table:has(caption:text('Streams at once')) tr")
    shown = {
        row.locator("th").inner_text(): int(row.get_attribute("data-ns")) for row in rows.all()
    }
    assert shown == {
        "Only Stream 7": (busy[0] & ~busy[1]).sum(),
        "Only Stream 8": (busy[1] & ~busy[0]).sum(),
        "Stream 7 and Stream 8": (busy[0] & busy[1]).sum(),
    }
    assert opened.said == []
    opened.close()
