"""The code blocks of the documentation, and what a comment above one says about it.

    <!-- shown: 5; "high" to "dry." -->       which lines of the output the block shows
    <!-- not run: needs a GPU -->             why the tests do not run it

`console` blocks hold commands after `$ ` and their output, `bash` blocks commands alone, `pycon`
blocks Python statements after `>>> ` and their output. Blocks of other languages are not run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tests.places import REPOSITORY

LEFT_OUT = "…"
RUN = ("console", "bash", "pycon")
PROMPTS = {"console": "$ ", "pycon": ">>> "}
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>shown|not run): (?P<about>.*?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced code block: its text, its place, and the comment above it."""

    page: str
    line: int
    language: str
    text: str
    span: tuple[int, int]
    """Where `text` stands in the page, in characters."""
    shown: str = ""
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Shell commands, each whole, also where it goes on after a backslash."""
        if self.language == "console":
            return [statement for statement, _ in self.statements()]
        joined = self.text.replace("\\\n", " ")
        lines = (" ".join(shlex.split(line, comments=True)) for line in joined.splitlines())
        return [line for line, words in zip(joined.splitlines(), lines, strict=True) if words]

    def statements(self) -> Iterator[tuple[str, list[str]]]:
        """Each statement after a prompt, with the output that the block shows for it."""
        prompt = PROMPTS[self.language]
        goes_on = "... " if self.language == "pycon" else "> "
        lines = self.text.splitlines()
        starts = [i for i, line in enumerate(lines) if line.startswith(prompt)]
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            rest = lines[start + 1 : end]
            more = list(takewhile(lambda line: line.startswith(goes_on), rest))
            statement = "\n".join([lines[start], *more])
            yield statement, rest[len(more) :]


def pages() -> list[Path]:
    """The README, CONTRIBUTING and everything in docs/."""
    return [
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        *sorted((REPOSITORY / "docs").glob("*.md")),
        *sorted((REPOSITORY / "docs/recipes").glob("*.md")),
    ]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    name = str(page.relative_to(REPOSITORY))
    return [
        Block(
            name,
            text.count("\n", 0, match.start("text")) + 1,
            match["language"],
            match["text"],
            match.span("text"),
            **({match["mark"].replace(" ", "_"): match["about"]} if match["mark"] else {}),
        )
        for match in _BLOCK.finditer(text)
    ]


def command_of(statement: str) -> str:
    """The text of a statement without its prompts."""
    return "\n".join(line.split(" ", 1)[1] for line in statement.splitlines())


def excerpt(output: str, shown: str) -> list[str]:
    """The lines of an output that a block shows, with `…` for each run of lines left out.

    `shown` lists them from top to bottom, after semicolons: `5` lines from here on, `"text" 5` from
    the first line that holds the text on, `"text" to "end"` up to the next line that holds the end.
    Nothing listed shows all of it.
    """
    lines = [line.rstrip() for line in output.rstrip("\n").split("\n")] if output.strip() else []
    if not shown:
        return lines
    taken: list[str] = []
    at = 0
    for part in shown.split(";"):
        *first, last = [word for word in shlex.split(part) if word != "to"]
        start = _line_with(first[0], lines, at) if first else at
        if start > at:
            taken.append(LEFT_OUT)
        at = start + int(last) if last.isdigit() else _line_with(last, lines, start) + 1
        taken += lines[start:at]
    return [*taken, LEFT_OUT] if at < len(lines) else taken


def _line_with(text: str, lines: list[str], start: int) -> int:
    found = [number for number in range(start, len(lines)) if text in lines[number]]
    assert found, f"no line of the output holds {text!r}"
    return found[0]
