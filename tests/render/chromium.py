"""A real Chromium without a network, driven by Playwright, for pages opened from file://."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
Handler = Callable[[Any], object]
# Pages that tests have left, by their browser and the settings of their context.
_FREE: dict["Browser", dict[str, list["Page"]]] = defaultdict(lambda: defaultdict(list))
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
needs_axe = pytest.mark.skipif(
    not AXE.exists(), reason="no node_modules: make page-tools gets axe through npm"
)
# What differs in texts and numbers alone: rows of a table, columns in a list of them, parts of a
# picture. The first two of each sort stay.
_TWO_OF_EACH_SORT = """() => {
    const shape = node => node && [node.tagName, node.className?.baseVal ?? node.className,
        ...node.getAttributeNames(), node.getAttribute("role"), node.textContent === "",
        "(", ...[...node.children].map(shape), ")"].join(" ");
    const keepTwo = groups => {
        const seen = new Map();
        for (const group of groups) {
            const key = group.map(shape).join(), count = (seen.get(key) ?? 0) + 1;
            seen.set(key, count);
            if (count > 2) group.forEach(node => node.remove());
        }
    };
    for (const body of document.querySelectorAll("tbody, svg, svg g"))
        keepTwo([...body.children].map(child => [child]));
    for (const list of document.querySelectorAll("dl"))
        if ([...list.children].every((child, at) => child.tagName === ["DT", "DD"][at % 2]))
            keepTwo([...list.querySelectorAll("dt")].map(term => [term, term.nextElementSibling]));
}"""


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
        _FREE.pop(browser, None)
        browser.close()


@contextmanager
def lent_page(
    browser: "Browser", handlers: Mapping[str, Handler], **context: object
) -> Iterator["Page"]:
    """A blank page, of an earlier test if one had such a context: a new one takes half a second.

    Nothing of a file outlives its page, as ours store nothing.
    """
    free = _FREE[browser][repr(context)]
    page = free.pop() if free else browser.new_context(**context).new_page()  # type: ignore[arg-type]
    for event, handler in handlers.items():
        page.on(event, handler)  # type: ignore[call-overload]
    yield page
    for event, handler in handlers.items():
        page.remove_listener(event, handler)
    page.mouse.move(0, 0)
    page.goto("about:blank")
    free.append(page)


@contextmanager
def opened(
    browser: "Browser", path: Path, fragment: str = "", **context: object
) -> Iterator[OpenPage]:
    """The page of a file, once its script has run."""
    settings = {"viewport": {"width": 1400, "height": 900}, "offline": True} | context
    problems: list[str] = []
    local = ("file:", "data:", "blob:")
    handlers: dict[str, Handler] = {
        "console": lambda m: m.type in ("error", "warning") and problems.append(m.text),
        "pageerror": lambda error: problems.append(str(error)),
        "dialog": lambda dialog: problems.append(f"dialog {dialog.message}"),
        "request": lambda r: r.url.startswith(local) or problems.append(r.url),
    }
    with lent_page(browser, handlers, **settings) as page:
        page.goto(path.as_uri() + fragment)
        yield OpenPage(page, problems)


def serious_violations(page: "Page") -> list[tuple[object, ...]]:
    """What axe finds on a light page, and on colors once it is dark. It takes 1 ms per element."""
    page.evaluate(_TWO_OF_EACH_SORT)
    page.evaluate(AXE.read_text("utf-8"))
    found = _violations(page, {})
    page.emulate_media(color_scheme="dark")
    try:
        return found + _violations(page, {"runOnly": "color-contrast"})
    finally:
        page.emulate_media(color_scheme="light")


def _violations(page: "Page", options: Mapping[str, str]) -> list[tuple[object, ...]]:
    found = page.evaluate(
        "options => axe.run(document, options)", {"resultTypes": ["violations"]} | options
    )
    return [
        (violation["id"], violation["nodes"][0]["html"][:200], violation["nodes"][0]["any"][:1])
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
