"""The pages of kernels in a real browser, light and dark, wide and narrow."""

import pytest

from tests.render.kernels.test_diff_text import diff
from tests.render.kernels.test_html import hostile, with_code
from tests.render.report import test_browser
from tests.render.report.test_browser import DARK, LIGHT, chromium, scan_lines
from traceview.kernels.inspect.target_report import PtxReport
from traceview.render.kernels.html import render_diff_html, render_ptx_html

pytestmark = test_browser.pytestmark


@pytest.fixture
def pages(tmp_path):
    file = tmp_path / "gelu.py"
    file.write_text("def k():\n    x = load()\n\n    y = x\n")
    kernel = with_code(file)
    texts = {
        "one": render_ptx_html(PtxReport("gelu.py", (kernel, hostile(tmp_path))), "1.2.3"),
        "diff": render_diff_html(diff(kernel, with_code(file, registers=9)), "1.2.3"),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.html").write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize(("name", "details"), [("one", 5), ("diff", 6)])
def test_the_browser_reads_what_was_written(pages, name, details):
    dom = chromium(pages / f"{name}.html", pages, "--dump-dom")
    assert "<title>gelu.py · traceview</title>" in dom
    assert dom.count("<summary>Source") + dom.count("instructions</summary>") >= details
    assert "<img" not in dom


@pytest.mark.parametrize(("scheme", "paper"), [(LIGHT, "ffffff"), (DARK, "14171b")])
@pytest.mark.parametrize("width", [1280, 500])
def test_the_pages_are_drawn_in_both_schemes(pages, scheme, paper, width):
    shot = pages / "shot.png"
    setting = f"--blink-settings=preferredColorScheme={scheme}"
    chromium(
        pages / "one.html", pages, f"--screenshot={shot}", setting, f"--window-size={width},900"
    )
    lines = scan_lines(shot.read_bytes())
    assert lines[1:4].hex() == paper
    assert len(set(lines)) > 100
