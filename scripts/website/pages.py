"""Pages of the site: those of docs/, with links that hold on the site."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import traceview

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\[]*)\]\((?P<target>[^)\s]+)\)")
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^ *<!-- (?:shown|not run): .*? -->\n", re.MULTILINE)
# A number and its unit stay on one line; code is skipped.
_UNIT = r"%|[nµm]?s|[kMGT]?B(?:/s)?|[KMG]iB|T?FLOP/s"
_MEASURED = re.compile(rf"(`+)[^`]+\1|^ {{4}}.*$|(?<=\d) (?=(?:{_UNIT})(?![\w/]))", re.MULTILINE)
_SITE = Path("docs/site")
# Pages outside docs/ that the site has, and where.
_MOVED = {
    "reports/README.md": "gallery/index.md",
    "benchmarks/kernels/speed_claims.md": "kernel-times.md",
}
_CASE = re.compile(r"reports/([\w-]+)(?:/README\.md)?")


@dataclass(frozen=True)
class Page:
    """A file of the site's sources: its path there, and its content."""

    name: str
    content: bytes

    @classmethod
    def of(cls, name: str, text: str) -> Page:
        return cls(name, text.encode())


def unbroken(text: str) -> str:
    """The text of a page in which no line ends between a number and its unit."""
    parts = _FENCED.split(text)
    parts[::2] = [_MEASURED.sub(lambda m: "\u00a0" if m[0] == " " else m[0], p) for p in parts[::2]]
    return "".join(parts)


def opened(text: str, target: str) -> str:
    """A link to a file as it is: Sphinx would copy it and have the browser save it instead."""
    return f'<a href="{target}">{text}</a>'


def documents(repository: Path) -> Iterator[Page]:
    """The site's own pages, those of docs/ and its pictures."""
    for name in ("index.md", "conf.py"):
        yield Page(name, (repository / _SITE / name).read_bytes())
    yield Page("_static/site.css", (repository / _SITE / "site.css").read_bytes())
    docs = repository / "docs"
    for path in sorted([*docs.glob("*.md"), *docs.glob("recipes/*.md"), *docs.glob("agents/*.md")]):
        name = str(path.relative_to(docs))
        yield Page.of(name, on_site(path.read_text("utf-8"), path, name, repository))
    live = traceview.report(repository / "examples/loader.sqlite.xz")
    yield Page.of("_static/live.html", live.to_html())
    kernels = repository / "benchmarks/kernels/speed_claims.md"
    text = on_site(kernels.read_text("utf-8"), kernels, "kernel-times.md", repository)
    yield Page.of("kernel-times.md", f"---\norphan: true\n---\n\n{text}")
    for path in sorted([*docs.glob("images/*"), *docs.glob("*.svg")]):
        yield Page(str(path.relative_to(docs)), path.read_bytes())


def on_site(text: str, path: Path, name: str, repository: Path) -> str:
    """The text of a page of the repository as it stands at `name` on the site.

    Links to what the site does not have become the path in the repository, as code.
    """
    parts = _FENCED.split(_COMMENT.sub("", text))
    parts[::2] = [_LINK.sub(lambda m: _link(m, path, name, repository), p) for p in parts[::2]]
    return "".join(parts)


def _link(match: re.Match[str], path: Path, name: str, repository: Path) -> str:
    text, target = match["text"], match["target"]
    if target.startswith(("http://", "https://", "#", "mailto:")):
        return match[0]
    file, _, anchor = target.partition("#")
    there = Path(os.path.normpath(path.parent / file)).relative_to(repository)
    place = _place(there)
    if place is None:
        shown = str(there)
        if text == f"`{there.name}`":
            return text
        is_name = text.casefold() in (
            shown.casefold(),
            there.name.casefold(),
            there.stem.casefold(),
        )
        return f"`{shown}`" if is_name else f"{text} (`{shown}`)"
    relative = os.path.relpath(place, Path(name).parent)
    return f"[{text}]({relative}{'#' + anchor if anchor else ''})"


def _place(there: Path) -> str | None:
    """Where the site has a file of the repository, None where it has not."""
    if str(there) in _MOVED:
        return _MOVED[str(there)]
    if case := _CASE.fullmatch(str(there)):
        return f"gallery/{case[1]}.md"
    if there.parts[:2] == _SITE.parts:
        return str(Path(*there.parts[2:]))
    if there.parts[0] == "docs" and there.suffix in (".md", ".svg", ".png"):
        return str(Path(*there.parts[1:]))
    return None
