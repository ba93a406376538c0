"""A real Chromium without a network, driven by Playwright, for pages opened from file://."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError:  # pragma: no cover - depends on the machine
    sync_playwright = None  # type: ignore[assignment]

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or sync_playwright is None, reason="no Chromium, or no playwright, here"
)
ROOT = Path(__file__).parents[2]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"


@dataclass
class OpenPage:
    """A page and everything that went wrong on it: console errors, exceptions, requests."""

    page: "Page"
    problems: list[str] = field(default_factory=list)

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def counts(self, *selectors: str) -> list[int]:
        """How many elements each selector matches, asked in one go."""
        script = "asked => asked.map(one => document.querySelectorAll(one).length)"
        return self.page.evaluate(script, selectors)


@contextmanager
def a_browser() -> Iterator["Browser"]:
    with sync_playwright() as playwright:
        # Without --disable-gpu a process draws with a GPU that is not there.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: "Browser", path: Path, fragment: str = "", **context: object
) -> Iterator[OpenPage]:
    """The page of a file, once its script has run."""
    settings = {"viewport": {"width": 1400, "height": 900}, "offline": True} | context
    made = browser.new_context(**settings)  # type: ignore[arg-type]
    shown = OpenPage(made.new_page())
    problems = shown.problems
    shown.page.on("console", lambda m: m.type in ("error", "warning") and problems.append(m.text))
    shown.page.on("pageerror", lambda error: problems.append(str(error)))
    shown.page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))
    local = ("file:", "data:", "blob:")
    shown.page.on("request", lambda r: r.url.startswith(local) or problems.append(r.url))
    shown.page.goto(path.as_uri() + fragment)
    yield shown
    made.close()
