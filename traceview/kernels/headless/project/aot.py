"""Signatures that a project compiles kernels for ahead of time: ASTSource, triton.tools.compile."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.kernels.headless import signatures
from traceview.kernels.headless.project.call_sites import INSTALLED
from traceview.kernels.headless.signatures import Parameter
from traceview.kernels.ptx.model import Argument

_TOOL = re.compile(r"triton[./]tools[./]compile")
_NAMES = re.compile(r"makefile|.*\.(?:py|sh|bash|mk|cmake|txt|toml|ya?ml)", re.IGNORECASE)
_MOST_FILES, _MOST_BYTES = 1000, 200_000
_OPTIONS = {"--num-warps": "num_warps", "-w": "num_warps", "--num-stages": "num_stages"}
# Of triton.tools.compile, unlike those of a launch.
_DEFAULTS = {"num_warps": 1, "num_stages": 3}


@record
class AotSignature:
    """The arguments that the project declares at a place, and options such as num_warps."""

    place: str
    arguments: tuple[Argument, ...]
    options: Mapping[str, int]


def aot_signatures(
    kernel: str, file: Path, project: Path | None, parameters: Sequence[Parameter]
) -> Iterator[AotSignature]:
    """The signatures of a kernel: in its own file, then in those of its project or beside it.

    Another file that defines a function of that name compiles its own.
    """
    others = islice(_files(project or file.parent, deep=bool(project)), _MOST_FILES)
    for path in dict.fromkeys((file, *others)):
        text = _text(path)
        if kernel not in text or not ("ASTSource" in text or _TOOL.search(text)):
            continue
        if path != file and re.search(rf"^\s*def {kernel}\(", text, re.MULTILINE):
            continue
        commands = _commands_in_python(text) if path.suffix == ".py" else _commands(text)
        for line, words in commands:
            place = f"{path.name}:{line}"
            with suppress(InputError, ValueError, IndexError):
                yield from _of_command(words, place, kernel, file.name, parameters)
        for call in _sources(text, kernel) if path.suffix == ".py" else ():
            with suppress(InputError, ValueError, TypeError, KeyError, AttributeError):
                arguments = _of_source(call, parameters)
                yield AotSignature(f"{path.name}:{call.lineno}", arguments, {})


def _files(root: Path, *, deep: bool) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        below[:] = sorted(n for n in below if deep and n[0] != "." and n not in INSTALLED)
        yield from (Path(folder, name) for name in sorted(names) if _NAMES.fullmatch(name))


def _text(path: Path) -> str:
    """The text of a file; empty if it is large or cannot be read."""
    with suppress(OSError):
        return path.read_text("utf-8", "replace") if path.stat().st_size <= _MOST_BYTES else ""
    return ""


def _commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """The commands that run the tool, each with its line; a `\\` joins lines."""
    joined = re.sub(r"\\\n", lambda _: " \0", text)
    line = 1
    for command in joined.split("\n"):
        if _TOOL.search(command):
            with suppress(ValueError):
                yield line, shlex.split(command.replace("\0", ""), comments=True)
        line += 1 + command.count("\0")


def _commands_in_python(text: str) -> Iterator[tuple[int, list[str]]]:
    """The commands in lists of strings; what is computed is left empty."""
    for node in _nodes(text):
        if isinstance(node, (ast.List, ast.Tuple)):
            constants = (each.value if isinstance(each, ast.Constant) else "" for each in node.elts)
            words = [str(each) for each in constants]
            if any(map(_TOOL.search, words)):
                yield node.lineno, words


def _of_command(
    words: Sequence[str], place: str, kernel: str, file: str, parameters: Sequence[Parameter]
) -> Iterator[AotSignature]:
    given = {}
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        given[name] = value or (words[at + 1] if at + 1 < len(words) else "")
    named = given.get("--kernel-name") or given.get("-n")
    signature = given.get("--signature") or given.get("-s") or ""
    is_file = any(Path(word).name == file for word in words)
    if named == kernel and is_file and signature and "$" not in signature:
        own = {name: int(given[option]) for option, name in _OPTIONS.items() if option in given}
        yield AotSignature(place, signatures.bind(signature, parameters, {}), _DEFAULTS | own)


def _sources(text: str, kernel: str) -> Iterator[ast.Call]:
    for node in _nodes(text):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ASTSource"):
            fn = next((k.value for k in node.keywords if k.arg == "fn"), None)
            named = fn or (node.args[0] if node.args else None)
            if named and ast.unparse(named).rpartition(".")[2] == kernel:
                yield node


def _of_source(call: ast.Call, parameters: Sequence[Parameter]) -> tuple[Argument, ...]:
    """The arguments of `ASTSource(fn, signature, constexprs, attrs)`, if these are literals."""
    names = [parameter.name for parameter in parameters]
    given = dict(zip(("fn", "signature", "constexprs", "attrs"), call.args, strict=False))
    given |= {k.arg: k.value for k in call.keywords if k.arg}
    read: dict[str, dict[str, Any]] = {}
    for part in ("signature", "constexprs", "attrs"):
        listed = ast.literal_eval(given[part]) if part in given else None
        read[part] = {_name(key, names): value for key, value in (listed or {}).items()}
    types, values = read["signature"], read["constexprs"]
    return tuple(
        signatures.constant(name, values[name])
        if name in values or types[name] == "constexpr"
        else signatures.argument(name, types[name] + ":16" * ("16" in str(read["attrs"].get(name))))
        for name in names
    )


def _name(key: Any, names: Sequence[str]) -> str:
    """The parameter of a key: its name, its position, or a path that begins with that."""
    at = key[0] if isinstance(key, tuple) else key
    return names[at] if isinstance(at, int) else str(at)


def _nodes(text: str) -> Iterator[ast.AST]:
    with suppress(SyntaxError, ValueError, RecursionError):
        yield from ast.walk(ast.parse(text))
