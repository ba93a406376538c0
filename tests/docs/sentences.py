"""Every sentence that a user can read, to be read aloud: python -m tests.docs.sentences [PART...]

The parts, all by default: `source` lists the texts of the package, with {…} for what is filled in;
`pages` those of its pages and their script; `reports` what the shipped recordings and examples say;
`docs` what the blocks of the documentation show. A sentence that differs from one before in its
numbers alone is left out.
"""

from __future__ import annotations

import ast
import html
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import traceview
from tests.conftest import SHIPPED
from tests.docs.blocks import blocks_of, pages
from tests.places import DATA, REPOSITORY
from traceview.render.report.plan import plan_text
from traceview.traces.analyses.base import Skipped
from traceview.traces.reporting import Report

PACKAGE = REPOSITORY / "traceview"
Said = tuple[str, str]
"""Where a sentence is, and the sentence."""
_LEAST_WORDS = 3  # Fewer are a name, a title or a unit.
_WORD = re.compile(r"(?<![\w{.<-])[A-Za-z][a-z’'-]*(?![\w}(=])")
_CODE = re.compile(
    r"\\[bdwsS]|\(\?|^\s*(SELECT|INSERT|CREATE|DELETE|WITH|PRAGMA|UPDATE|import|from \w+ import)\b"
    r"|[;{]\s*\n|[{}]\s*$|\bdef \w+\(|^#include|^\W*select\b",
    re.MULTILINE,
)
_COLUMN = re.compile(r"^ *\w+ (?:text|sentence|bool|bytes|u?int\d+|float\d+)\??: ", re.MULTILINE)
_QUOTED = re.compile(r"\"((?:[^\"\\\n]|\\.)+)\"|`((?:[^`\\]|\\.)+)`")
_ATTRIBUTE = re.compile(r"(?:title|aria-label|placeholder|content)=\"([^\"]+)\"")
_TAG = re.compile(r"</?(?:b|code|em|a|i|strong|kbd|span)\b[^>]*>")


def is_sentence(text: str) -> bool:
    return len(_WORD.findall(text)) >= _LEAST_WORDS and not _CODE.search(text)


def in_source() -> Iterator[Said]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for line, text in _in_python(file):
            # A table is declared by a line per column.
            for part in text.splitlines() if _COLUMN.search(text) else text.split("\n\n"):
                yield f"{file.relative_to(REPOSITORY)}:{line}", part


def _in_python(file: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module, without docstrings other than the help of commands and tools."""
    left_out: set[ast.AST] = set()
    nodes = [*ast.walk(ast.parse(file.read_text("utf-8")))]
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            lone = [each.value for each in node.body if isinstance(each, ast.Expr)]
            left_out |= {*lone[_is_command(file, node) :]}
        elif isinstance(node, ast.JoinedStr):
            left_out |= {*node.values}
    for node in nodes:
        if node in left_out:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(map(_part, node.values))


def _is_command(file: Path, node: ast.AST) -> bool:
    """Whether the docstring of a function is the help of a command, or of a tool of agents."""
    if not isinstance(node, ast.FunctionDef):
        return False
    is_method = bool(node.args.args) and node.args.args[0].arg == "self"
    is_tool = file.name == "server.py" and is_method and not node.name.startswith("_")
    return is_tool or (file.parent.name == "cli" and bool(node.decorator_list))


def _part(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant | ast.FormattedValue)
    return str(node.value) if isinstance(node, ast.Constant) else f"{{{ast.unparse(node.value)}}}"


def in_pages() -> Iterator[Said]:
    """The texts of the pages: between tags, in attributes that are read, and of the script."""
    for file in sorted((PACKAGE / "render").rglob("*.html")):
        text = _TAG.sub("", re.sub(r"{[%#].*?[%#]}", "\n", file.read_text(), flags=re.DOTALL))
        texts = [*_ATTRIBUTE.findall(text), *re.sub(r"<[^>]*>", "\n\n", text).split("\n\n")]
        yield from ((file.name, html.unescape(each)) for each in texts)
    for file in sorted((PACKAGE / "render" / "script").rglob("*.js")):
        lines = (line for line in file.read_text().splitlines() if not re.match(r"\s*[/*]", line))
        for double, back in _QUOTED.findall("\n".join(lines)):
            yield file.name, double or re.sub(r"\$(?={)", "", back)


def in_reports() -> Iterator[Said]:
    examples = sorted((REPOSITORY / "examples").rglob("*.sqlite.xz"))
    for file in (*(DATA / f"{name}.sqlite.xz" for name in SHIPPED), *examples):
        for text in in_report(traceview.analyze(traceview.load(file))):
            yield file.name.split(".")[0], text


def in_report(report: Report) -> Iterator[str]:
    """Headline, plan, findings with their actions, notes, and reasons for no answer."""
    if report.verdict:
        yield report.verdict.text
        yield report.verdict.shares_text or ""
    yield from (*report.trace.warnings, plan_text(report))
    for each in report.findings:
        yield from (each.finding.message, each.finding.action)
    for outcome in report.outcomes.values():
        if isinstance(outcome, Skipped):
            yield from (outcome.reason, outcome.remedy)
        else:
            yield from outcome.notes


def in_docs() -> Iterator[Said]:
    """The output that the documentation shows: of errors, kernels, `try`, `what-if` and others."""
    for block in (block for page in pages() for block in blocks_of(page)):
        if block.language in ("console", "pycon"):
            output = (line for _, lines in block.statements() for line in lines)
            for text in re.split(r"\n(?=\S|\s*$)", "\n".join(output)):
                yield str(block), text


PARTS: dict[str, Callable[[], Iterator[Said]]] = {
    each.__name__.removeprefix("in_"): each for each in (in_source, in_pages, in_reports, in_docs)
}


def sentences(parts: Iterable[str] = PARTS) -> Iterator[Said]:
    """The sentences of some parts, each once."""
    seen = set()
    for part in parts:
        for place, text in PARTS[part]():
            plain = " ".join(text.split())
            kind = re.sub(r"\d[\d.,]*( [GMkµnm]?[sB]\b)?", "0", plain)
            if kind not in seen and is_sentence(plain):
                seen.add(kind)
                yield place, plain


if __name__ == "__main__":
    for place, text in sentences(sys.argv[1:] or PARTS):
        print(f"{place}\t{text}")
