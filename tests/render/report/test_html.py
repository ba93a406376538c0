"""The HTML page: self-contained, escaped, and the same bytes every time."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import traceview
from tests.render.example_report import CONTROLS, HOSTILE, a_long_report, a_report
from traceview.render.base.page import MOST_ROWS
from traceview.render.report.document import Claim
from traceview.render.report.html import (
    _MOST_WORDS,
    FindingEntry,
    _first_cards,
    render_html,
)

DATA = Path(__file__).parents[2] / "data"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """A parsed page: elements with their attributes, texts, and elements left open."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts, self.open, self.misnested = [], [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.misnested.append(tag)

    def handle_data(self, data):
        self.texts.append(data)

    def named(self, *tags):
        return [attrs for tag, attrs in self.elements if tag in tags]


@pytest.fixture(scope="module")
def html():
    names = [HOSTILE, CONTROLS, 'url(#x) id="text_1" xmlns="urn:x" #010101', "gemm"]
    return render_html(a_report(names), "1.2.3")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_elements_nest_and_are_closed(page):
    assert page.misnested == []
    assert page.open == []


def test_nothing_is_fetched(html, page):
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert page.named("img", "iframe", "object", "embed", "base") == []
    assert [link["href"] for link in page.named("link")] == ["data:,"]
    targets = [a[key] for _, a in page.elements for key in ("href", "src") if key in a]
    assert all(target.startswith("#") or target == "data:," for target in targets)
    assert set(re.findall(r"url\((.)", html.replace("url(#x)", ""))) <= {"#"}


def test_hostile_names_are_escaped(html, page):
    text = "".join(page.texts)
    assert HOSTILE in text
    assert "<img src" not in html
    assert html.count("</script>") == len(page.named("script"))
    assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", html)


def test_ids_are_unique_and_links_have_targets(page):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = {attrs["href"][1:] for _, attrs in page.elements if attrs.get("href", "")[:1] == "#"}
    assert links <= set(ids)


def test_findings_precede_the_sections(html):
    assert html.index("What to do first") < html.index("Which kernels take the time?")
    assert html.index('<li class="finding high"') < html.index('<li class="finding medium"')


def test_tables_are_accessible(page):
    assert all(attrs.get("scope") == "col" for attrs in page.named("th"))
    assert "how often it ran" in {attrs["title"] for attrs in page.named("th")}
    regions = [attrs for attrs in page.named("div") if attrs.get("role") == "region"]
    assert len(regions) == len(page.named("table"))
    assert all(attrs["aria-label"] for attrs in regions)


def test_charts_are_accessible(page):
    charts = [div for div in page.named("div") if div.get("class") == "chart"]
    assert [chart["aria-label"] for chart in charts] == [
        "Kernel time",
        "Idle time by cause",
        "Steps on the CPU and on the GPU",
    ]
    assert all(chart["role"] == "img" for chart in charts)


def test_page_has_values_absent_values_notes_and_skipped_analyses(html):
    for text in (
        "12.3 ms",
        "97.2 %",
        "–",
        "Launches were recorded whole",
        "<strong>Copies</strong> the trace has no copies table",
        "record with: <code data-copy>traceview record SCRIPT</code>",
        '<p class="rest">none</p>',
        "traceview 1.2.3",
    ):
        assert text in html


def test_style_covers_both_color_schemes_and_print(html):
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    defined = set(re.findall(r"(--[\w-]+):", html))
    assert set(re.findall(r"var\((--[\w-]+)\)", html)) <= defined


def test_the_same_report_gives_the_same_bytes():
    assert render_html(a_report(), "1") == render_html(a_report(), "1")


def test_a_long_table_is_cut_with_a_hint():
    page = Page(render_html(a_report([f"kernel_{i}" for i in range(MOST_ROWS + 7)]), "1"))
    rows = len(page.named("tr"))
    assert MOST_ROWS < rows < MOST_ROWS + 100
    text = " ".join(page.texts)
    assert "… and 7 more rows. The rows above are the first; " in text
    assert "traceview report --html --all-rows" in text


def test_rows_left_out_are_summed():
    page = Page(render_html(a_long_report(MOST_ROWS + 3), "1"))
    text = " ".join(page.texts)
    assert "… and 3 more rows (calls 9 · idle 3.00 µs). The rows above are the first; " in text


def test_all_rows_are_written_on_request():
    page = Page(render_html(a_long_report(MOST_ROWS + 7), "1", None))
    assert len(page.named("tr")) == MOST_ROWS + 7 + 1
    assert not any("more rows" in text for text in page.texts)


def test_a_name_of_ten_megabytes_leaves_the_page_small():
    assert len(render_html(a_report(["x" * 10_000_000]), "1")) < 200_000


def test_the_page_names_the_file_and_not_its_folder(html):
    assert "run 1.sqlite.xz" in html
    assert "/data" not in html


def test_a_finding_on_a_kernel_has_its_code_where_the_recording_carries_it():
    trace = traceview.load(DATA / "workloads/gelu.sqlite.xz")
    page = Page(traceview.analyze(trace, "load-widths").to_html())
    text = "".join(page.texts)
    assert "PTX of the kernel" in text
    assert "ld.global.f32 %f1, [%rd5]" in text


@pytest.mark.parametrize("which", ["per step", "per decode on average", "after warm-up", ""])
def test_a_card_says_which_whole_a_saving_is_of(which):
    """Where it is of no step, the whole itself."""
    claim = Claim("up to", "688 ms", f"of 782 ms {which}".rstrip(), share="88.0 %")
    assert claim.brief() == f"{which or 'of 782 ms'}, 88.0 %"


def cards(lengths, severities=("high",) * 5):
    """Findings whose messages have so many words; each has a saving and a remedy of two words."""
    return [
        FindingEntry(severity, Claim("about", "2 ms", "of 9 ms"), "w " * words, "", brief="b b")
        for words, severity in zip(lengths, severities, strict=False)
    ]


@pytest.mark.parametrize("lead", [0, 30, 60, 90])
@pytest.mark.parametrize(
    "lengths", [(5, 5, 5, 5), (15, 15, 15), (15, 40, 15), (15, 15, 40), (90, 3, 3), (30, 30)]
)
def test_there_are_as_many_cards_as_words_allow(lengths, lead):
    findings = cards(lengths)

    shown = _first_cards(findings, "w " * lead)

    # Beside the message: what is saved of it all, and a remedy of two words.
    beside = 2 + len(findings[0].claim.brief().split())
    fit = [
        number
        for number in (3, 2)
        if number <= len(lengths) and lead + beside * number + sum(lengths[:number]) <= _MOST_WORDS
    ]
    assert shown == findings[: fit[0] if fit else 1]


def test_a_note_is_no_card():
    assert len(_first_cards(cards((5, 5, 5), ("high", "info", "high")), "")) == 1
    assert len(_first_cards(cards((5, 5), ("info", "info")), "")) == 1
    assert _first_cards([], "") == []
