"""The page at work in a real browser: findings lead to rows, tables sort, filter, sum and copy."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

import traceview
from tests.examples import examples
from tests.render.chromium import needs_axe, needs_chromium, opened, serious_violations
from tests.render.example_report import CONTROLS, HOSTILE, a_report
from tests.render.report.random_traces import random_trace
from traceview.render.base.page import WHOLE
from traceview.render.base.safe_text import visible
from traceview.render.json import render_json
from traceview.render.kernels.html import render_ptx_html
from traceview.render.report.evidence import window_of
from traceview.render.report.html import render_html
from traceview.traces.timeline.timeline import timeline

pytestmark = [needs_chromium, pytest.mark.programs]
ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
# Findings of these have every table, kind of subject and time window that those of REST have.
SAMPLE = [
    ROOT / "reports/matmul-sawtooth/sizes.sqlite.xz",
    ROOT / "reports/printing-the-loss/small_with.sqlite.xz",
    *(DATA / f"{name}.sqlite.xz" for name in ("two_gpus", "foreign/radix_sort")),
    DATA / "workloads/gelu.sqlite.xz",
]
REST = [path for path in sorted(ROOT.glob("reports/*/*.sqlite.xz")) if path not in SAMPLE] + [
    DATA / f"{name}.sqlite.xz"
    for name in (
        "training", "two_processes", "streams", "sync_sites", "cuda_graphs", "waves",
        "graph_whole", "metrics", "jax", "foreign/nanogpt", "foreign/tv_detection",
        "workloads/transformer",
    )
]  # fmt: skip
SHOWN = SAMPLE + REST[: examples(1) - 1]
RANDOM_TRACES = examples(8)
KERNELS = "#kernel-share\\.kernels"


@pytest.fixture(scope="module")
def report():
    return traceview.analyze(traceview.load(DATA / "foreign/nanogpt.sqlite.xz"))


@pytest.fixture(scope="module")
def path(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(report.to_html(), "utf-8")
    return path


@pytest.fixture(scope="module")
def tables_report():
    """Two answers alone, as a browser takes seconds for the page of them all."""
    return traceview.analyze(
        traceview.load(DATA / "training.sqlite.xz"), ["kernel-share", "gpu-idle"]
    )


@pytest.fixture(scope="module")
def tables_path(tables_report, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "page.html"
    path.write_text(tables_report.to_html(), "utf-8")
    return path


@pytest.fixture
def shown(browser, tables_path):
    with opened(browser, tables_path) as shown:
        yield shown
        assert shown.problems == []


@pytest.mark.parametrize("trace", SHOWN, ids=lambda path: path.name.split(".")[0])
def test_a_finding_leads_to_its_row_and_its_place_in_time(browser, tmp_path, trace):
    report = traceview.analyze(traceview.load(trace))
    path = tmp_path / "page.html"
    path.write_text(report.to_html(), "utf-8")
    with opened(browser, path) as shown:
        cards = shown.page.locator(".finding")
        assert cards.count() == len(report.findings)
        shown.page.locator(".tl-scroll").wait_for()
        assert shown.page.evaluate(WORDS_IN_SIGHT, "body") <= 150
        if shown.page.locator("details.more").count():
            shown.page.locator("details.more > summary").click()
        # One of each sort: those of one table and one kind of subject lead alike.
        sorts = {sort_of(report, each.finding): place for place, each in enumerate(report.findings)}
        for number in sorts.values():
            each = report.findings[number]
            evidence = each.finding.evidence
            card = cards.nth(number)
            card.locator("details.evidence > summary").click()
            links = card.locator("a.to-row")
            assert links.count() == bool(evidence.table and evidence.row)
            if links.count():
                links.click()
                row = shown.page.locator("tr.marked")
                assert row.evaluate("row => row === document.activeElement")
                assert in_view(row)
                cells = row.evaluate(CELLS)
                # A column without any value is left out.
                for name, value in evidence.row.items():
                    assert value is None or cells[name].removesuffix(" ⤢") == cell_text(value), name
            window = window_of(report, each.finding)
            assert window or each.finding.subject.kind == "recording"
            if window:
                card.get_by_role("button", name="Show in the timeline").click()
                place = [each_ns - timeline(report.recording).start_ns for each_ns in window]
                is_kernel = each.finding.subject.kind == "kernel" and evidence.start_ns is None
                shown.page.wait_for_function(IS_SHOWN, arg=[*place, is_kernel])
        assert shown.problems == []


def test_places_like_the_shown_one_are_marked_and_gone_through(browser, path):
    with opened(browser, path) as shown:
        page, canvas = shown.page, shown.page.locator(".tl-scroll canvas")
        # Functions: the page's policy forbids to evaluate an expression again.
        says = "text => document.querySelector('.tl-hits')?.textContent.includes(text)"
        page.get_by_role("button", name="Show in the timeline").first.click()
        page.wait_for_function(says, arg=" of 12,175 like it, ")
        page.wait_for_function("() => location.hash.startsWith('#t=')")
        before = page.evaluate("location.hash")
        canvas.press("n")
        page.wait_for_function("before => location.hash !== before", arg=before)
        canvas.press("Escape")
        page.wait_for_function("() => document.querySelector('.tl-hits').textContent === ''")
        assert shown.problems == []


WORDS_IN_SIGHT = """selector => {
    const range = document.createRange(), found = document.querySelector(selector);
    const walker = document.createTreeWalker(found, NodeFilter.SHOW_TEXT);
    let words = 0;
    while (walker.nextNode()) {
        const { data, parentElement } = walker.currentNode;
        if (!parentElement.checkVisibility()) continue;
        for (const { 0: word, index } of data.matchAll(/[\\p{L}\\p{N}]\\S*/gu)) {
            range.setStart(walker.currentNode, index);
            range.setEnd(walker.currentNode, index + word.length);
            const { bottom, width } = range.getBoundingClientRect();
            words += width > 0 && bottom > 0 && bottom <= innerHeight;
        }
    }
    return words; }"""


def test_the_first_screen_is_short_and_in_the_words_of_the_plan(browser, path, report):
    with opened(browser, path) as shown:
        cards = shown.page.locator("#findings > .findings > .finding")
        # As many as the words of the first screen leave room for.
        assert 2 <= cards.count() <= 3
        assert in_view(cards.last)
        plan = shown.page.locator(".plan").inner_text().lower()
        for number in range(1, cards.count()):
            brief = cards.nth(number).locator(".action > .brief")
            assert brief.inner_text().lower() in plan
            button = cards.nth(number).get_by_role("button", name="Copy what to do")
            assert not button.is_visible()
            shown.page.evaluate("navigator.clipboard.writeText = async text => { copied = text }")
            cards.nth(number).locator("details.evidence > summary").click()
            button.click()
            action = report.findings[number].finding.action.replace("`", "")
            assert shown.page.evaluate("copied") == action
            assert not brief.is_visible()
            assert cards.nth(number).locator(".action .full").inner_text() == action
        assert shown.problems == []


def sort_of(report, finding):
    """The table, the columns and the kind of subject that a finding names, and how it is timed."""
    evidence, window = finding.evidence, window_of(report, finding)
    row = (evidence.table, *(evidence.row or ()))
    return row, finding.subject.kind, window is None, evidence.start_ns is None


IS_SHOWN = """([start, end, is_selected]) => {
    const place = /^#t=(-?\\d+)-(\\d+)/.exec(location.hash);
    return place && +place[1] <= start && end <= +place[2]
        && (!is_selected || location.hash.includes("&sel="));
}"""
CELLS = """row => {
    const heads = [...row.closest("table").querySelectorAll("thead th")];
    const text = cell => cell.querySelector(".elided")?.title
        ?? cell.dataset.v ?? cell.textContent.trim();
    return Object.fromEntries([...row.cells].map((cell, n) => [heads[n].dataset.name, text(cell)]));
}"""


def cell_text(value):
    """What CELLS reads of a cell: raw numbers, and texts whole."""
    return visible(value, WHOLE).strip() if isinstance(value, str) else str(value)


def in_view(row):
    return row.evaluate(
        "row => { const {top, bottom} = row.getBoundingClientRect();"
        " return top >= 0 && bottom <= innerHeight; }"
    )


def total_of(shown, selector=KERNELS):
    return shown.page.locator(f"{selector} output").inner_text()


def copied(shown, selector):
    """What a button puts on the clipboard."""
    shown.page.evaluate("navigator.clipboard.writeText = async text => { window.copied = text }")
    shown.page.locator(selector).first.click()
    return shown.page.evaluate("window.copied")


CONDITIONS = """boxes => boxes.flatMap(box => {
  const tables = box.closest("section, .table, div:has(table)").querySelectorAll("th[data-name]");
  const names = [...tables].map(heading => heading.dataset.name);
  const conditions = box.placeholder.replace("Filter: words, ", "").split(", ");
  const isThere = each => names.some(name => name.startsWith(each.match(/^\\w+/)[0]));
  return conditions.map(each => [each, isThere(each)]);
})"""


def test_a_filter_shows_conditions_on_columns_of_its_table(browser, path, tmp_path):
    with opened(browser, path) as page:
        conditions = page.page.locator(".tools input[type=search]").evaluate_all(CONDITIONS)
        assert page.problems == []
    assert ["cause=launch-late", True] in conditions
    kernels = tmp_path / "kernels.html"
    inspected = traceview.inspect_ptx(DATA / "producers/tilelang-0.1.15-sm80.ptx")
    kernels.write_text(render_ptx_html(inspected, "1"), "utf-8")
    with opened(browser, kernels) as page:
        of_kernels = page.page.locator(".tools input[type=search]").evaluate_all(CONDITIONS)
        assert page.problems == []
    assert of_kernels
    assert all(has_column for _, has_column in conditions + of_kernels)


def test_sums_of_a_filter_are_those_of_the_json(shown, tables_report):
    answers = json.loads(render_json(tables_report, "1"))["analyses"]
    kernels = answers["kernel-share"]["tables"]["kernels"]
    shown.page.locator(f"{KERNELS} input[type=search]").fill("total>0.1ms calls<1000 -layer")
    rows = list(csv.DictReader(io.StringIO(copied(shown, f"{KERNELS} .foot .tool"))))
    expected = [
        row for row in kernels
        if row["total_ns"] > 100_000 and row["calls"] < 1_000
        and not any("layer" in str(value).lower() for value in row.values())
    ]  # fmt: skip
    assert 3 < len(expected) < len(kernels)
    for name in ("calls", "total_ns", "median_ns"):
        assert [int(row[name]) for row in rows] == [row[name] for row in expected]
    total = sum(row["total_ns"] for row in expected)
    assert total_of(shown).startswith(f"{len(expected)} of {len(kernels)} rows")
    assert f"total {traceview.base.units.duration(total)}" in total_of(shown)


def test_sums_of_selected_rows(shown, tables_report):
    rows = list(tables_report["kernel-share"].tables["kernels"].rows())
    body = shown.page.locator(f"{KERNELS} tbody tr")
    for place in (0, 2):
        body.nth(place).locator("td").nth(1).click()
    total = traceview.base.units.duration(rows[0]["total_ns"] + rows[2]["total_ns"])
    assert total_of(shown).startswith(f"2 of {len(rows)} rows selected")
    assert f"total {total}" in total_of(shown)


def test_sorting_by_a_column_and_back(shown, tables_report):
    def shown_calls():
        cells = shown.page.locator(f"{KERNELS} tbody tr").evaluate_all(
            "rows => rows.map(row => row.querySelector('td:not(.text)').textContent)"
        )
        return [int(cell.replace(",", "")) for cell in cells]

    kernels = tables_report["kernel-share"].tables["kernels"]
    calls = [row["calls"] for row in kernels.rows()]
    heading = shown.page.locator(f"{KERNELS} th").filter(has_text=re.compile("^calls$"))
    for order, said in ((sorted(calls, reverse=True), "descending"), (sorted(calls), "ascending")):
        heading.get_by_role("button").click()
        assert shown_calls() == order
        assert heading.get_attribute("aria-sort") == said
    heading.get_by_role("button").click()
    assert shown_calls() == calls
    assert heading.get_attribute("aria-sort") is None


def test_an_address_opens_a_table_as_it_was(shown, browser, tables_path):
    shown.page.locator(f"{KERNELS} input[type=search]").fill("gemm")
    shown.page.locator(f"{KERNELS} th").filter(has_text=re.compile("^calls$")).locator(
        "button"
    ).click()
    fragment = shown.page.evaluate("location.hash")
    names = shown.page.locator(f"{KERNELS} tbody tr:visible").all_inner_texts()
    assert fragment == "#table=kernel-share.kernels&sort=-calls&find=gemm"
    with opened(browser, tables_path, fragment) as again:
        assert again.page.locator(f"{KERNELS} tbody tr:visible").all_inner_texts() == names
        assert again.page.locator(KERNELS).evaluate("t => t.getBoundingClientRect().top") < 200


def test_an_address_opens_a_finding(browser, path):
    with opened(browser, path, "#finding-2") as shown:
        assert shown.page.locator("#finding-2 details").get_attribute("open") is not None
        assert in_view(shown.page.locator("#finding-2"))


def test_columns_are_chosen(shown):
    columns = shown.page.locator(f"{KERNELS} .columns")
    name = shown.page.locator(f"{KERNELS} th[data-name=name]")
    assert not name.is_visible()
    columns.locator("summary").click()
    columns.locator("dt").filter(has_text=re.compile("^ *name$")).locator("input").check()
    assert name.is_visible()
    assert "name" in copied(shown, f"{KERNELS} .foot .tool").partition("\n")[0].split(",")


def test_a_shortened_name_is_whole_on_hover_on_a_click_and_in_a_copy(browser, path):
    with opened(browser, path) as shown:
        name = shown.page.locator("main .table .elided:visible").first
        whole = name.get_attribute("title")
        assert "…" in name.inner_text()
        name.evaluate("name => getSelection().selectAllChildren(name)")
        text = name.evaluate(
            "name => { const data = new DataTransfer();"
            " name.dispatchEvent(new ClipboardEvent('copy', {clipboardData: data, bubbles: true}));"
            " return data.getData('text/plain'); }"
        )
        assert text == whole
        shown.page.evaluate("getSelection().removeAllRanges()")
        name.click()
        assert name.inner_text() == whole
        assert shown.problems == []


def test_a_command_has_a_copy_button(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(traceview.analyze(traceview.load(DATA / "graph_whole.sqlite.xz")).to_html())
    with opened(browser, path) as shown:
        command = copied(shown, ".action code[data-copy] + button")
        assert command == "traceview record --graph-trace node SCRIPT"
        assert shown.problems == []


def open_all(shown):
    shown.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")


def assert_no_cell_has_seven_lines(shown, width):
    open_all(shown)
    tallest = shown.page.evaluate(
        "Math.max(...[...document.querySelectorAll('td')].map(c => c.clientHeight /"
        " parseFloat(getComputedStyle(c).lineHeight)))"
    )
    assert tallest < 6.5
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_cell_has_seven_lines_and_all_prints_on_two_sheets(browser, path):
    with opened(browser, path) as shown:
        sheets = shown.page.pdf(
            format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "1.2cm")
        )
        assert len(re.findall(rb"/Type\s*/Page\b", sheets)) <= 2
        assert_no_cell_has_seven_lines(shown, 1400)


def test_text_is_readable_on_a_phone(browser, path):
    with opened(browser, path, viewport={"width": 390, "height": 844}) as shown:
        sizes = shown.page.evaluate(
            "[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() &&"
            " !e.closest('title') &&"
            " [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))"
            ".map(e => parseFloat(getComputedStyle(e).fontSize))"
        )
        assert min(sizes) >= 11
        assert_no_cell_has_seven_lines(shown, 390)


@needs_axe
def test_a_screen_reader_finds_nothing_serious(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(traceview.analyze(traceview.load(DATA / "workloads/gelu.sqlite.xz")).to_html())
    with opened(browser, path, color_scheme="light", bypass_csp=True) as shown:
        open_all(shown)
        assert serious_violations(shown.page) == []


def test_everything_is_there_without_scripts(browser, tables_path, tables_report):
    with opened(browser, tables_path, java_script_enabled=False) as shown:
        rows = shown.page.locator(f"{KERNELS} tbody tr")
        assert rows.count() == len(tables_report["kernel-share"].tables["kernels"])
        assert shown.page.locator(f"{KERNELS} th[data-name=name]").is_visible()
        assert shown.page.locator(".time-bar rect.part").count() > 3
        assert shown.page.locator(".tool").count() == 0


@pytest.mark.parametrize("names", [[HOSTILE, CONTROLS, "gemm"], ["x" * 10_000_000, "\u2028;//"]])
def test_hostile_names_neither_break_nor_run(browser, tmp_path, names):
    path = tmp_path / "page.html"
    path.write_text(render_html(a_report(names), "1"), "utf-8")
    with opened(browser, path) as shown:
        assert shown.count("img") == 0
        assert shown.count(".finding") == 5
        shown.page.locator("#share-of-all\\.shares th button").first.click()
        assert shown.problems == []


@pytest.mark.slow
def test_random_recordings_with_hostile_names_open_without_an_error(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<title>t</title>")
    with opened(browser, path) as shown:
        for seed in range(RANDOM_TRACES):
            report = traceview.analyze(random_trace(tmp_path, seed))
            path.write_text(report.to_html(), "utf-8")
            shown.page.reload()
            assert shown.counts("img", ".finding") == [0, len(report.findings)]
            assert shown.problems == [], f"seed {seed}"


def test_rows_lead_to_their_moment_and_an_address_to_the_timeline(browser, path):
    with opened(browser, path) as shown:
        page, panel = shown.page, shown.page.locator(".tl-row")
        row = page.locator("#gpu-idle a.moment").first
        span = row.get_attribute("href").removeprefix("#at=")
        first, last = map(int, span.split("-"))
        row.evaluate("link => { link.closest('details').open = true; link.click(); }")
        page.wait_for_function("() => location.hash.startsWith('#t=')")
        window = [int(each) for each in page.evaluate("location.hash")[3:].split("&")[0].split("-")]
        assert window[1] - window[0] >= last - first
        assert page.evaluate("document.getElementById('timeline').getBoundingClientRect().top") < 5

        kernel = page.locator("a.moment[href^='#name=']").first.get_attribute("href")
        page.evaluate("hash => { location.hash = hash; }", kernel)
        page.wait_for_function("() => location.hash.includes('&sel=')")
        said = panel.inner_text()
        assert all(word in said for word in ("Launched by", "All of this name"))
        address = page.url
        assert shown.problems == []
    with opened(browser, path) as again:
        again.page.goto(address)
        again.page.reload()
        again.page.wait_for_function("() => scrollY > 0")
        assert again.page.locator(".tl-row").inner_text() == said
