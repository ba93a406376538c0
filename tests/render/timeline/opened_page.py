"""A page with a timeline, open in Chromium and driven like a person does."""

import re
from contextlib import ExitStack

from tests.render.chromium import lent_page

READY = ".timeline.ready"
CANVAS = ".tl-scroll canvas"
# By the page's own clock, which a busy machine holds up together with what is waited for.
FRAMES = """count => new Promise(done => {
    const next = () => count-- ? requestAnimationFrame(next) : done();
    next();
})"""
RESTED = "() => new Promise(done => setTimeout(done, 300))"


class Opened:
    """A page that is open, with what its console said."""

    def __init__(self, browser, path, fragment="", **options):
        self.said = []
        handlers = {
            "console": lambda message: self.said.append(message.text),
            "pageerror": lambda error: self.said.append(str(error)),
        }
        self._lent = ExitStack()
        self.page = self._lent.enter_context(lent_page(browser, handlers, offline=True, **options))
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_selector(READY)

    def close(self):
        """Leave the page to the next test."""
        self._lent.close()

    @property
    def window(self):
        """The shown time in ns, as the address holds it once something is chosen."""
        self.rest()
        match = re.search(r"#t=(-?\d+)-(\d+)", self.page.url)
        return int(match[1]), int(match[2])

    def frames(self, count):
        """Wait until the page was drawn so many times."""
        self.page.evaluate(FRAMES, count)

    def rest(self):
        """Wait until the page has done what it does when nothing moves any more."""
        self.frames(2)
        self.page.evaluate(RESTED)

    def key(self, key):
        self.page.locator(CANVAS).press(key)

    def select(self, name):
        search = self.page.locator(".tl-tools input")
        search.fill(name)
        search.press("Enter")

    def facts(self):
        words = self.page.locator(".tl-row dt").all_inner_texts()
        return dict(zip(words, self.page.locator(".tl-row dd").all_inner_texts(), strict=True))

    def sums(self):
        """Time by class, and busy and idle time, of the first GPU."""
        self.rest()
        device = self.page.locator(".tl-device").first
        rows = device.locator("table").filter(has_not_text="Longest").locator("tr")
        times = {
            row.get_attribute("data-class"): int(row.get_attribute("data-ns")) for row in rows.all()
        }
        return times, *(int(device.get_attribute(f"data-{side}")) for side in ("busy", "idle"))
