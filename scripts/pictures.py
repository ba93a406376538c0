"""Make the pictures of the README and of docs/ from shipped recordings: make pictures

The terminal is drawn as SVG by rich, the HTML report by headless Chromium as PNG.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parent.parent
RECORDING = Path("examples/training.sqlite.xz")
RANKS = Path("tests/data/ddp_late.sqlite.xz")
IMAGES = REPOSITORY / "docs/images"
COLUMNS = 96
PAGE_PIXELS, RANKS_PIXELS = (1200, 1000), (1200, 1290)
COLOURS = 224
# As rich's own, without the web font: a picture loads nothing.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""  # noqa: E501 (one element per line)


def traceview(*words: str, folder: Path) -> str:
    """The coloured output of a traceview command, run in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "traceview", *words],
        cwd=folder,
        env=os.environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def terminal(folder: Path) -> str:
    """The report in a terminal, which is one screen, as SVG."""
    command = f"traceview report {RECORDING}"
    printed = traceview("report", "--color", "always", str(REPOSITORY / RECORDING), folder=folder)
    console = Console(width=COLUMNS, record=True, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}"))
    console.print(Text.from_ansi(printed))
    return console.export_svg(
        title="traceview", theme=MONOKAI, code_format=SVG, unique_id="terminal"
    )


def page(folder: Path, picture: Path, pixels: tuple[int, int], *words: str) -> None:
    """The start of the HTML that `traceview report` makes of these arguments, as PNG."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        sys.exit("no Chromium on the PATH: apt-get install chromium")
    traceview("report", *words, "--html", "page.html", "--force", folder=folder)
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--hide-scrollbars",
            # The page unpacks its data after it has loaded.
            "--virtual-time-budget=10000",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={pixels[0]},{pixels[1]}",
            f"--screenshot={folder / 'page.png'}",
            (folder / "page.html").as_uri(),
        ],
        check=True,
        capture_output=True,
    )
    with Image.open(folder / "page.png") as shot:
        shot.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        (IMAGES / "terminal.svg").write_text(terminal(Path(folder)), "utf-8")
        page(Path(folder), IMAGES / "page.png", PAGE_PIXELS, str(REPOSITORY / RECORDING))
        # The page says the path that was passed.
        shutil.copy(REPOSITORY / RANKS, folder)
        page(Path(folder), IMAGES / "ranks.png", RANKS_PIXELS, RANKS.name, "--ranks")
    for picture in ("terminal.svg", "page.png", "ranks.png"):
        print(f"Wrote {(IMAGES / picture).relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
