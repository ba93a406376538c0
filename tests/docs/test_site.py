"""The documentation site builds without a warning; its links lead somewhere and load nothing."""

import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.places import REPOSITORY
from tests.render.chromium import a_browser, needs_chromium, opened
from traceview.cli import VERBS
from traceview.traces.analyses import ALL

NEEDED = ("sphinx", "myst_parser", "furo", "matplotlib")
pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
# A page of each kind: prose with commands, wide output, tables, a chart, generated reference.
KINDS = (
    "index",
    "quick-start",
    "report",
    "accuracy",
    "questions/10-roofline",
    "gallery/gelu-five-ways",
    "reference/commands",
    "reference/python-api",
)
WIDE = """() => [...document.querySelectorAll(".highlight-bash pre")]
    .filter(block => block.scrollWidth > block.clientWidth).map(block => block.textContent)"""
# Relations of <link> that a browser does not load.
NOT_LOADED = {"canonical", "next", "prev", "index", "search", "author"}


class Document(HTMLParser):
    """What a page loads, where its links lead, and the ids it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif values.get(LOADS.get(tag, "")) and values.get("rel") not in NOT_LOADED:
            self.loads.append(values[LOADS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    # One process: the others of the machine test, and Sphinx' would send pages to each other.
    program = [sys.executable, "scripts/build_site.py", "--out", str(out), "--jobs", "1"]
    built = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out / "html"


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Document]:
    """The pages that Sphinx wrote."""
    return {path: Document(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_every_link_leads_to_a_page_and_a_place_on_it(pages):
    assert len(pages) > 40
    for path, page in pages.items():
        for link in page.links + page.loads:
            there = urlsplit(link)
            if there.scheme:
                continue
            target = (path.parent / unquote(there.path)).resolve() if there.path else path
            assert target.exists(), f"{path.name} links to {link}"
            if there.fragment and target in pages:
                known = pages[target].ids
                assert unquote(there.fragment) in known, f"{path.name} links to {link}"


def test_no_page_loads_from_elsewhere(pages):
    for path, page in pages.items():
        assert not [load for load in page.loads if urlsplit(load).netloc], path.name


def test_every_question_verb_and_case_has_its_page(site):
    questions = {path.stem.partition("-")[2] for path in (site / "questions").glob("*.html")}
    assert questions == {analysis.name for analysis in ALL}
    commands = (site / "reference/commands.html").read_text("utf-8")
    assert all(f"traceview {verb}</h2>" in commands.replace("<a ", "</h2><a ") for verb in VERBS)
    cases = {path.parent.name for path in (REPOSITORY / "reports").glob("*/lead.svg")}
    assert {path.name for path in (site / "_static/gallery").iterdir()} == cases


def test_links_to_reports_and_schemas_open_them(site):
    for path in site.rglob("*.html"):
        assert "_static" in path.parts or " download=" not in path.read_text("utf-8"), path.name


@needs_chromium
def test_pages_fit_a_phone_and_their_commands_wrap(site):
    with a_browser() as browser:
        for name in KINDS:
            phone = {"width": 390, "height": 844}
            with opened(browser, site / f"{name}.html", viewport=phone) as shown:
                width = shown.page.evaluate("document.documentElement.scrollWidth")
                assert width <= phone["width"], name
                assert shown.page.evaluate(WIDE) == [], name


def test_the_reference_is_the_same_in_each_build(site):
    names = (site / "reference/python-api.html").read_text("utf-8")
    assert " at 0x" not in names
    assert "&lt;lambda&gt;" not in names
