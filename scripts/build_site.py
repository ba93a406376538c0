"""Build the documentation site with Sphinx: make site

    python scripts/build_site.py [--out build/site] [--jobs N]

The pages are those of docs/, one per question (from the analyses' own declarations, a recording of
tests/data and docs/questions.toml), the gallery with live reports, and a reference of commands,
JSON Schemas and Python names read from the code. Warnings are errors: a link that leads nowhere
fails the build.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main
from website.gallery import gallery_pages
from website.pages import Page, documents, unbroken
from website.questions import question_pages
from website.reference import reference_pages

REPOSITORY = Path(__file__).resolve().parent.parent
OUT = REPOSITORY / "build" / "site"


def write_sources(sources: Path) -> None:
    """Write the pages and all that they show into an empty folder."""
    pages: list[Page] = [
        *documents(REPOSITORY),
        *question_pages(REPOSITORY),
        *gallery_pages(REPOSITORY),
        *reference_pages(),
    ]
    for page in pages:
        path = sources / page.name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_text = path.suffix == ".md"
        path.write_bytes(unbroken(page.content.decode()).encode() if is_text else page.content)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=OUT, help="default: build/site")
    parser.add_argument("--jobs", default="auto", help="processes of Sphinx; default: one per core")
    given = parser.parse_args()
    # Hardly any of the nodes that Sphinx makes is garbage, and looking took a tenth of the time.
    gc.disable()
    out: Path = given.out
    sources = out / "sources"
    shutil.rmtree(out, ignore_errors=True)
    write_sources(sources)
    html = out / "html"
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", f"--jobs={given.jobs}"]
    status = build_main(
        [*strict, "-b", "html", "-d", str(out / "doctrees"), str(sources), str(html)]
    )
    if status == 0:
        print(f"Wrote {html / 'index.html'}")
    sys.exit(status)


if __name__ == "__main__":
    main()
