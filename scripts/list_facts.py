"""List the facts, one line each, in docs/facts.md: make docs

A fact is a function of a Trace that is computed once per trace: one decorated with `@fact`
or `@fact_without_ranges`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "traceview"
PAGE = REPOSITORY / "docs/facts.md"
INTRODUCTION = """\
# The facts

What do several analyses need from a trace? Each fact is a function of the trace, computed once
and shared. A fact that one analysis alone uses lives in that analysis' folder. `make docs` writes
this page.
"""


class Fact(NamedTuple):
    """A function decorated with `@fact` or `@fact_without_ranges`."""

    file: Path
    name: str
    meaning: str


def facts_in(file: Path) -> Iterator[Fact]:
    tree = ast.parse(file.read_text("utf-8")).body
    classes = {node.name: node for node in tree if isinstance(node, ast.ClassDef)}
    for node in tree:
        if isinstance(node, ast.FunctionDef) and _is_public_fact(node):
            # Where a class is what the fact is, the class has the docstring.
            returned = classes.get(ast.unparse(node.returns) if node.returns else "")
            text = ast.get_docstring(node) or (returned and ast.get_docstring(returned)) or ""
            yield Fact(file.relative_to(PACKAGE), node.name, text.partition("\n")[0])


def _is_public_fact(node: ast.FunctionDef) -> bool:
    decorators = [item.id for item in node.decorator_list if isinstance(item, ast.Name)]
    return bool({"fact", "fact_without_ranges"} & {*decorators}) and not node.name.startswith("_")


def all_facts() -> list[Fact]:
    """Every fact: those of facts/ first, then those of single analyses."""
    files = [*sorted((PACKAGE / "traces" / "facts").rglob("*.py"))]
    files += sorted((PACKAGE / "traces" / "analyses").rglob("*.py"))
    return [fact for file in files for fact in facts_in(file)]


def page() -> str:
    """docs/facts.md as it should be."""
    parts = [INTRODUCTION]
    for folder, facts in groupby(all_facts(), lambda fact: fact.file.parent):
        parts.append(f"\n## {folder}\n\n| fact | file | what it is |\n|---|---|---|\n")
        for fact in facts:
            link = f"[`{fact.file.name}`](../traceview/{fact.file})"
            meaning = fact.meaning.replace("|", "\\|")
            parts.append(f"| `{fact.name}` | {link} | {meaning} |\n")
    return "".join(parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page(), "utf-8")
