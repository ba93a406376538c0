"""The gallery: the page of each case, and its reports as they are, to be used in place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gallery.case import Case, all_cases

from website.pages import Page, on_site, opened

_LISTED = re.compile(r"\]\(([\w-]+)/README\.md\)")
_MARK = re.compile(r"^<!-- (?:\w+|end) -->\n", re.MULTILINE)


def gallery_pages(repository: Path) -> Iterator[Page]:
    """Its index, and page, picture and HTML reports of every case with recordings."""
    listed = repository / "reports/README.md"
    head, _, _ = listed.read_text("utf-8").partition("    make gallery")
    every = all_cases()
    cases = {name: every.pop(name) for name in _LISTED.findall(head)} | every
    cases = {name: case for name, case in cases.items() if not case.missing}
    tree = "\n".join(["```{toctree}", ":hidden:", "", *cases, "```", ""])
    yield Page.of(
        "gallery/index.md", f"{on_site(head, listed, 'gallery/index.md', repository)}\n{tree}"
    )
    for name, case in cases.items():
        yield from _case(repository, name, case)


def _case(repository: Path, name: str, case: Case) -> Iterator[Page]:
    folder = repository / "reports" / name
    page = folder / "README.md"
    text = on_site(_MARK.sub("", page.read_text("utf-8")), page, f"gallery/{name}.md", repository)
    text = text.replace("(lead.svg)", f"({name}.svg)").replace('"lead.svg"', f'"{name}.svg"')
    yield Page(f"gallery/{name}.svg", (folder / "lead.svg").read_bytes())
    reports = {file: body for file, body in case.files(case.analyze()) if file.endswith(".html")}
    links = " · ".join(opened(file, f"../_static/gallery/{name}/{file}") for file in reports)
    question, _, rest = text.partition("**Command.**")
    live = f"**Live report.** {links}\n\n" if reports else ""
    yield Page.of(f"gallery/{name}.md", f"{question}{live}**Command.**{rest}")
    for file, body in reports.items():
        yield Page.of(f"_static/gallery/{name}/{file}", body)
