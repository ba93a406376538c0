"""An error of Triton's compiler in words: its line in the user's file, the source, the message."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_MOST_LETTERS = 300
_REPR = re.compile(r"""(\w+)\((["'])(.*)\2\)""", re.DOTALL)
_UNDEFINED = re.compile(r"(\w+) is not defined")
_STAND_IN = re.compile(r"<stand-in for ([\w.]+)")
_PLAIN = re.compile(r"Unsupported function referenced: <function (\w+) at 0x\w+>")
_PLAIN_GLOBAL = re.compile(r"Cannot access global variable (\w+) from within")
_NEVER_RIGHT = re.compile(
    rf"{_PLAIN.pattern}|module '[\w.]+' has no attribute|unexpected keyword argument|"
    # The last two lines: the signature's words from Triton 3.7 on, Python's own before.
    rf"{_STAND_IN.pattern}|unsupported AST node type|"
    r"missing a required argument|too many positional arguments|"
    r"missing \d+ required positional arguments?|takes \d+ positional arguments? but \d+ w"
)
_PTXAS = re.compile(r"^ptxas \w+ *: (.+)$", re.MULTILINE)
NOT_IMPORTED = "which could not be imported"
OF_TRITON_1 = "which only Triton 1 knew"
NOT_CONSTEXPR = "which is no tl.constexpr"
NOT_ASCII = "Unexpected non-ASCII character"


def in_words(error: BaseException, functions: Iterable[Any] = ()) -> str:
    """An error on one line, with its place if it is in one of the jitted `functions`."""
    inner = _innermost(error)
    # Without a message of its own, its text is the source around the line.
    message = inner.error_message or "" if hasattr(inner, "error_message") else str(inner)
    missing = _STAND_IN.search(str(message))
    if missing:
        return f"it calls {missing[1]}{_place(inner, functions)}, {NOT_IMPORTED}"
    gathered = _gathered_keywords(str(message), inner)
    if gathered:
        return f"it takes **{gathered}, {OF_TRITON_1},{_place(inner, functions)}"
    if named := _PLAIN_GLOBAL.search(str(message)):
        return f"it reads the global {named[1]}{_place(inner, functions)}, {NOT_CONSTEXPR}"
    if plain := _PLAIN.search(str(message)):
        return (
            f"it calls {plain[1]}{_use(plain[1], functions)}, which is no function of @triton.jit"
        )
    text = on_one_line(_plain(str(message)))
    return f"{type(error).__name__}{_place(inner, functions)}{': ' * bool(text)}{text}"


def on_one_line(message: str) -> str:
    """A message, shortened. Triton's message on a failure of ptxas includes all PTX."""
    reasons = _PTXAS.findall(message)
    return " ".join((f"ptxas: {reasons[0]}" if reasons else message).split())[:_MOST_LETTERS]


def is_of_source(error: BaseException) -> bool:
    """Whether a kernel cannot be compiled with any arguments.

    It uses a name that nothing defines, something that this Triton lacks, or a module that is not
    installed.
    """
    inner = _innermost(error)
    message = str(getattr(inner, "error_message", None) or inner)
    if _NEVER_RIGHT.search(message):
        return True
    if _gathered_keywords(message, inner):
        return True
    undefined = _UNDEFINED.search(message)
    source = getattr(inner, "src", None)
    return bool(undefined and source and undefined[1] not in _bound(source))


def plain_global(error: BaseException, functions: Iterable[Any]) -> tuple[str, str, int] | None:
    """The global that a kernel reads and Triton refuses, with file and line; else None."""
    inner = _innermost(error)
    named = _PLAIN_GLOBAL.search(str(getattr(inner, "error_message", None) or inner))
    place = _line_of(inner, functions) if named else None
    return (named[1], *place) if named and place else None


def _gathered_keywords(message: str, error: BaseException) -> str | None:
    """The name of the `**meta` parameter that an error says is not defined; else None."""
    undefined, source = _UNDEFINED.search(message), getattr(error, "src", None)
    for node in ast.walk(_parsed(source)) if undefined and source else ():
        keywords = node.args.kwarg if isinstance(node, ast.FunctionDef) else None
        if keywords and undefined and keywords.arg == undefined[1]:
            return keywords.arg
    return None


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None and hasattr(error.__cause__, "node"):
        error = error.__cause__
    return error


def _plain(message: str) -> str:
    matched = _REPR.fullmatch(message)
    return f"{matched[1]}: {matched[3]}" if matched else message


def _place(error: BaseException, functions: Iterable[Any]) -> str:
    line, source = getattr(getattr(error, "node", None), "lineno", None), getattr(error, "src", "")
    if line is None:
        return ""
    lines = str(source or "").splitlines()
    code = f", `{lines[line - 1].strip()[:100]}`" if line <= len(lines) else ""
    place = _line_of(error, functions)
    return f" at {Path(place[0]).name}:{place[1]}{code}" if place else f" at its line {line}{code}"


def _line_of(error: BaseException, functions: Iterable[Any]) -> tuple[str, int] | None:
    """File and line of an error in one of the jitted functions; None elsewhere."""
    line, source = getattr(getattr(error, "node", None), "lineno", None), getattr(error, "src", "")
    # Triton's source of a function begins at its `def`.
    first = source_of(next((f for f in functions if getattr(f, "src", None) == source), None))
    return (first[0], first[1] + line - 1) if first and line else None


def _use(name: str, functions: Iterable[Any]) -> str:
    """The place where jitted functions first call a function; empty where none does."""
    for function in functions:
        first, lines = source_of(function), str(getattr(function, "src", "")).splitlines()
        for at, line in enumerate(lines if first else ()):
            if first and re.search(rf"\b{name}\(", line):
                return f" at {Path(first[0]).name}:{first[1] + at}, `{line.strip()[:100]}`"
    return ""


def source_of(function: Any) -> tuple[str, int] | None:
    """File and line of a kernel's `def`; None for a kernel that is not Python."""
    code = getattr(getattr(function, "fn", None), "__code__", None)
    if code is None:
        return None
    before = 0
    for before, line in enumerate(function.raw_src):  # noqa: B007 (the index is what is wanted)
        if line.lstrip().startswith("def "):
            break
    return code.co_filename, function.starting_line_number + before


def _bound(source: str) -> set[str]:
    """The names that a function binds anywhere, and the builtins."""
    tree = _parsed(source)
    stored = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return stored | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} | set(dir(builtins))


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return ast.Module([], [])
