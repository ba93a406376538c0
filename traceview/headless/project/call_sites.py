"""The launches of a kernel in the source of its project: `kernel[grid](x, n, BLOCK=1024)`."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from traceview.headless.project.aliases import Aliases
from traceview.records import record

_MOST_FILES = 3000
_MOST_BYTES = 2_000_000
_MOST_SITES = 6
_INSTALLED = ("site-packages", "dist-packages", "node_modules")
_FIRST = re.compile(r"(^|[/_])(tests?|bench\w*|examples?)([/_.]|$)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@record
class CallSite:
    """A launch in the source: the call, the function around it and the module around that."""

    file: Path
    module: ast.Module
    function: Function | None
    call: ast.Call

    @property
    def place(self) -> str:
        """File and line, as messages name them."""
        return f"{self.file.name}:{self.call.lineno}"


def call_sites(kernel: str, file: Path, project: Path | None) -> Iterator[CallSite]:
    """The launches of a kernel: in its own file, then in the tests of the project, then elsewhere.

    Its own file comes first, as the function there is what tests call.
    """
    count = 0
    for path in (file, *_others(file, project)):
        for site in _in_file(kernel, path):
            yield site
            count += 1
            if count == _MOST_SITES:
                return


def _others(file: Path, project: Path | None) -> list[Path]:
    """The other files of the project: tests and benchmarks first, then those near the kernel."""
    if project is None:
        return []
    files = list(islice(_sources(project), _MOST_FILES))

    def order(path: Path) -> tuple[bool, int, str]:
        text = str(path.relative_to(project))
        near = len(Path(*_common(path.parts, file.parts)).parts)
        return not _FIRST.search(text), -near, text

    return [path for path in sorted(files, key=order) if path != file]


def _sources(project: Path) -> Iterator[Path]:
    """The Python files of a project, without what is installed or hidden in its folders."""
    for folder, below, names in os.walk(project):
        below[:] = sorted(each for each in below if each[0] != "." and each not in _INSTALLED)
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
    common = []
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        common.append(a)
    return common


def _in_file(kernel: str, path: Path) -> Iterator[CallSite]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return
        raw = path.read_bytes()
        # Parsing is what takes long.
        if not re.search(rb"(?<![A-Za-z0-9_])%s(?![A-Za-z0-9_])" % re.escape(kernel.encode()), raw):
            return
        module = ast.parse(raw)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return
    aliases = Aliases(kernel, module)
    for function, call in _calls(module, None):
        if isinstance(call.func, ast.Subscript) and aliases.names(call.func.value):
            yield CallSite(path, module, function, call)


def _calls(node: ast.AST, function: Function | None) -> Iterator[tuple[Function | None, ast.Call]]:
    """The calls in a tree, each with the innermost function around it that is not a lambda."""
    for child in ast.iter_child_nodes(node):
        inside = child if isinstance(child, Function) else function
        if isinstance(child, ast.Call):
            yield inside, child
        yield from _calls(child, inside)
