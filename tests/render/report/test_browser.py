"""The page in a real browser, without a network.

Headless Chromium cannot take a screenshot with scripts disabled: a test shows that the page itself
blocks them.
"""

import shutil
import struct
import subprocess
import zlib

import pytest

from tests.render.example_report import HOSTILE, a_report
from traceview.render.report.html import render_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.programs,
]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=1000,1600",
)


LIGHT, DARK = "1", "0"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(render_html(a_report([HOSTILE, "gemm"]), "1.2.3"), "utf-8")
    return path


def chromium(page, tmp_path, *options):
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}/profile", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def scan_lines(png):
    """The decompressed picture. Its first pixel, which has no neighbours, stands there as it is."""
    data, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    return zlib.decompress(data)


def test_chromium_parses_the_page(page, tmp_path):
    dom = chromium(page, tmp_path, "--dump-dom")
    assert "<title>run 1.sqlite.xz · traceview</title>" in dom
    assert dom.count('class="chart"') == 3
    assert "<img" not in dom
    assert "What to do first" in dom
    assert "traceview 1.2.3" in dom


def test_the_page_blocks_scripts(page, tmp_path):
    changing = "<script>document.title = 'a script ran'</script></body>"
    bare = tmp_path / "bare.html"
    bare.write_text(f"<title>quiet</title><body>{changing}", "utf-8")
    assert "<title>a script ran</title>" in chromium(bare, tmp_path, "--dump-dom")
    infected = tmp_path / "infected.html"
    infected.write_text(page.read_text("utf-8").replace("</body>", changing), "utf-8")
    assert "<title>run 1.sqlite.xz · traceview</title>" in chromium(
        infected, tmp_path, "--dump-dom"
    )


@pytest.mark.parametrize(("scheme", "paper"), [(LIGHT, "ffffff"), (DARK, "14171b")])
def test_the_page_renders_in_both_color_schemes(page, tmp_path, scheme, paper):
    shot = tmp_path / "shot.png"
    setting = f"--blink-settings=preferredColorScheme={scheme}"
    chromium(page, tmp_path, f"--screenshot={shot}", setting)
    lines = scan_lines(shot.read_bytes())
    assert lines[1:4].hex() == paper
    # An empty page is one colour: its lines hold a handful of different bytes.
    assert len(set(lines)) > 100
