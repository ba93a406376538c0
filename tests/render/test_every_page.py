"""What holds of every kind of page: read by a screen reader, and on a phone."""

import subprocess
import sys

import pytest

from tests.places import DATA, REPOSITORY
from tests.render.chromium import needs_axe, needs_chromium, opened, serious_violations

pytestmark = [needs_chromium, pytest.mark.programs]
LOADER = str(REPOSITORY / "examples/loader.sqlite.xz")
# Those of ranks and comparisons, which need jobs and pairs, have such tests of their own.
PAGES = {
    "report": ("report", LOADER),
    "what-if": ("what-if", LOADER, "--graph", "step"),
    "history": ("history", str(REPOSITORY / "examples")),
    "ptx": ("ptx", str(next(DATA.rglob("*.ptx")))),
}


@needs_axe
@pytest.mark.parametrize("words", PAGES.values(), ids=PAGES)
def test_a_screen_reader_finds_nothing_serious_and_a_phone_shows_all(browser, tmp_path, words):
    path = tmp_path / "page.html"
    command = [sys.executable, "-m", "traceview", *words, "--html", str(path)]
    subprocess.run(command, capture_output=True, check=True)
    phone = {"viewport": {"width": 390, "height": 844}}
    with opened(browser, path, color_scheme="light", bypass_csp=True, **phone) as shown:
        everything = "document.querySelectorAll('details').forEach(each => { each.open = true; })"
        shown.page.evaluate(everything)
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert serious_violations(shown.page) == []
        assert shown.problems == []
