"""Edits of the user's source: applied in memory for a run, or written as a diff."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from itertools import pairwise
from pathlib import Path
from typing import Any

from traceview.trials.remedies.base import SourceEdit

Place = tuple[int, int]
"""A line, from 1, and a column in bytes."""


def read_source(path: Path) -> str:
    """The text of a source as Python reads it, with its ends of lines.

    Raises OSError, SyntaxError for an unknown encoding, ValueError for other bytes than of it.
    """
    data = path.read_bytes()
    return data.decode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])


def edited(text: str, edits: Iterable[SourceEdit]) -> str:
    """The text with all edits; insertions at one place in their order.

    Raises ValueError where edits overlap, but for equal replacements.
    """
    at: dict[tuple[int, int, int, int], str] = {}
    for edit in edits:
        place = (edit.line, edit.column, edit.end_line, edit.end_column)
        is_insertion = place[:2] == place[2:]
        if not is_insertion and at.get(place, edit.text) != edit.text:
            raise ValueError(f"line {edit.line} is replaced by different texts")
        at[place] = at.get(place, "") + edit.text if is_insertion else edit.text
    if any(one[2:] > two[:2] for one, two in pairwise(sorted(at))):
        raise ValueError("edits overlap")
    lines = text.encode().splitlines(keepends=True)
    for (line, column, end_line, end_column), new in sorted(at.items(), reverse=True):
        head, tail = lines[line - 1][:column], lines[end_line - 1][end_column:]
        lines[line - 1 : end_line] = [head + new.encode() + tail]
    return b"".join(lines).decode()


def keyword_edits(
    text: str, end: Place, callee: str, keywords: Mapping[str, Any]
) -> list[SourceEdit] | None:
    """The edits that give the call of `callee` that ends there these keywords; None if none does.

    A keyword that is None is left out of the call. Raises SyntaxError.
    """
    call = _call_at(text, end, callee)
    if call is None:
        return None
    edits, given = [], {keyword.arg: keyword for keyword in call.keywords}
    if None in given:  # **options may hold them.
        return None
    for name, value in keywords.items():
        if (keyword := given.get(name)) is not None:
            edits.append(_replacing(keyword.value, repr(value)))
    new = [f"{k}={v!r}" for k, v in keywords.items() if k not in given and v is not None]
    if new:
        if len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and not given:
            return None
        line, column, last = _last_token(text, call)
        lead = {"(": "", ",": " "}.get(last, ", ")
        edits.append(SourceEdit(line, column, line, column, lead + ", ".join(new)))
    return edits


def _last_token(text: str, call: ast.Call) -> tuple[int, int, str]:
    """Where the last token before the closing parenthesis of a call ends, and the token.

    Not the end of its last argument, which may be in parentheses of its own.
    """
    close = _end(call)
    last = (0, 0, "")
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line, column = token.end
        at = (line, len(lines[line - 1][:column].encode()) if line <= len(lines) else 0)
        if at >= close:
            return last
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            last = (*at, token.string)
    return last


def line_edits(text: str, statement: str) -> list[SourceEdit]:
    """The edits that put a statement on torch behind its import, which is added where it lacks.

    Raises SyntaxError.
    """
    tree = ast.parse(text)
    body = tree.body
    imports = [isinstance(node, ast.Import | ast.ImportFrom) for node in body]
    at, name = next(
        ((at, name) for at, node in enumerate(body) if (name := _torch(node))), (-1, "")
    )
    if not name:
        at = 0 if ast.get_docstring(tree, clean=False) is not None else -1
    while at + 1 < len(body) and imports[at + 1]:
        at += 1
    lines, newline = text.encode().splitlines(), "\r\n" if "\r\n" in text else "\n"
    before = body[: at + 1]
    if not before:  # Behind what may be the encoding.
        first = [len(lines) + 1, *(n.lineno for n in ast.walk(body[0]) if hasattr(n, "lineno"))]
        place = (min(first), 0) * 2
        return [SourceEdit(*place, each + 2 * newline) for each in ("import torch", statement)]
    line = 0
    for node in body:  # As several may be in one line.
        if node in before or node.lineno <= line:
            line = _end(node)[0]
    place = (line, len(lines[line - 1])) * 2
    added = [] if name else [SourceEdit(*place, f"{newline}import torch")]
    statement = statement.replace("torch", name or "torch", 1)
    return [*added, SourceEdit(*place, f"{newline}{newline}{statement}")]


def _torch(node: ast.stmt) -> str:
    """The name of torch that a statement imports."""
    names = node.names if isinstance(node, ast.Import) else ()
    for alias in names:
        if alias.name == "torch" or (alias.name.startswith("torch.") and not alias.asname):
            return alias.asname or "torch"
    return ""


def removal(text: str, end: Place, callee: str) -> list[SourceEdit] | None:
    """The edit that replaces a call that stands alone with `pass`; None for any other."""
    call = _call_at(text, end, callee)
    statements = (n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Expr))
    if call is None or (call.lineno, _end(call)) not in [(s.lineno, _end(s)) for s in statements]:
        return None
    return [_replacing(call, "pass")]


def diff(path: str, before: str, after: str) -> str:
    """A unified diff of one file."""
    old, new = (text.split("\n") for text in (before, after))
    old, new = ([f"{line}\n" for line in each[:-1]] + each[-1:] for each in (old, new))
    lines = unified_diff([x for x in old if x], [x for x in new if x], f"a/{path}", f"b/{path}")
    return "".join(x if x.endswith("\n") else f"{x}\n\\ No newline at end of file\n" for x in lines)


def _call_at(text: str, end: Place, callee: str) -> ast.Call | None:
    """The call of a name that ends there: where its line begins would not tell several apart."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and _end(node) == end:
            # A Triton kernel is launched as kernel[grid](...).
            func = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            name = getattr(func, "attr", "") or getattr(func, "id", "")
            return node if name == callee else None
    return None


def _end(node: ast.expr | ast.stmt) -> Place:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _replacing(node: ast.expr, text: str) -> SourceEdit:
    return SourceEdit(node.lineno, node.col_offset, *_end(node), text)
