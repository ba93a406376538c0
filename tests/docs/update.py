"""Rewrite the output that the documentation shows: python -m tests.docs.update [PAGE...]"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.blocks import Block, blocks_of, pages
from tests.docs.clone import fresh_clone, rendered_python, rendered_shell
from tests.docs.questions import with_questions
from tests.docs.tried import with_tried


def rendered(block: Block) -> str:
    with TemporaryDirectory() as folder:
        return rendered_shell(block, fresh_clone(Path(folder)))


def updated(page: Path) -> str:
    """The text of a page with the output that its commands print now."""
    runnable = [block for block in blocks_of(page) if not block.not_run]
    console = [block for block in runnable if block.language == "console"]
    python = [block for block in runnable if block.language == "pycon"]
    # One after the other: commands run in this process, with its folder and its stdout.
    texts = [rendered(block) for block in console]
    with TemporaryDirectory() as folder:
        texts += rendered_python(python, fresh_clone(Path(folder)))
    text = page.read_text()
    # From the end, so that the places of the blocks before stay right.
    for block, new in sorted(
        zip([*console, *python], texts, strict=True), key=lambda pair: -pair[0].span[0]
    ):
        text = text[: block.span[0]] + new + text[block.span[1] :]
    return with_tried(with_questions(text))


def main(names: list[str]) -> None:
    for page in [Path(name).resolve() for name in names] or pages():
        text = updated(page)
        if text != page.read_text():
            page.write_text(text)
            print(f"Wrote {page}")


if __name__ == "__main__":
    main(sys.argv[1:])
