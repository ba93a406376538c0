"""Edits of the user's source: applied in memory for a run, or written as a diff."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from typing import Any

from traceview.remedies.base import SourceEdit


def edited(text: str, edits: Iterable[SourceEdit]) -> str:
    """The text with all edits, which must not overlap."""
    lines = text.encode().splitlines(keepends=True)
    for edit in sorted(edits, key=lambda e: (e.line, e.column), reverse=True):
        head = lines[edit.line - 1][: edit.column]
        tail = lines[edit.end_line - 1][edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [head + edit.text.encode() + tail]
    return b"".join(lines).decode()


def keyword_edits(
    text: str, line: int, callee: str, keywords: Mapping[str, Any]
) -> list[SourceEdit] | None:
    """The edits that give the call of `callee` at a line these keywords; None if it is not there.

    A keyword that is None is left out of the call. Raises SyntaxError.
    """
    call = _call_at(text, line, callee)
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


def line_edit(text: str, statement: str) -> list[SourceEdit] | None:
    """The edit that puts a statement behind the imports at the top; None without `import torch`."""
    body = ast.parse(text).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    named = [a for node in imports if isinstance(node, ast.Import) for a in node.names]
    if not any(alias.name == "torch" and not alias.asname for alias in named):
        return None
    last = _end(imports[-1])
    return [SourceEdit(*last, *last, f"\n\n{statement}")]


def removal(text: str, line: int, callee: str) -> list[SourceEdit] | None:
    """The edit that replaces a call that stands alone with `pass`; None for any other."""
    call = _call_at(text, line, callee)
    statements = (n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Expr))
    if call is None or (call.lineno, _end(call)) not in [(s.lineno, _end(s)) for s in statements]:
        return None
    return [_replacing(call, "pass")]


def diff(path: str, before: str, after: str) -> str:
    """A unified diff of one file."""
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(unified_diff(old, new, f"a/{path}", f"b/{path}"))


def _call_at(text: str, line: int, callee: str) -> ast.Call | None:
    """The innermost call of a name at a line."""
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and callee in (getattr(node.func, "attr", ""), getattr(node.func, "id", ""))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(calls, key=lambda node: (node.lineno, node.col_offset), default=None)


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _replacing(node: ast.expr, text: str) -> SourceEdit:
    return SourceEdit(node.lineno, node.col_offset, *_end(node), text)
