"""Kernels of a file compiled by Triton's own compile, without anything of traceview.

Written anew for the test of the advice: the file's functions are defined statement by statement,
and whatever statement fails is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_LOCATION = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)(.*)$")
_INLINED = re.compile(r"@\[\s*[^\s:]*:(\d+)|inlined_at \d+ (\d+)")
_ACCESS = re.compile(
    r"^\s*(?:@!?%\w+\s+)?(ld|st)(?:\.\w+|::\w+)*\.global(?:\.\w+|::\w+)*?(?:\.v(\d))?\.[a-z]+(\d+)\s"
)
_COPY = re.compile(r"^\s*(?:@!?%\w+\s+)?cp\.async\.c[ag]\.shared\.global.*?,\s*(0x[0-9a-f]+|\d+)")


def kernel_in(path: Path, name: str) -> Any:
    """The @triton.jit function of a file, out of its decorators."""
    import triton

    kernel = _names_in(path)[name]
    while not isinstance(kernel, triton.runtime.jit.JITFunction):
        kernel = kernel.fn
    return kernel


def _names_in(path: Path) -> dict[str, Any]:
    """The names that a file defines, statement by statement; relative imports are followed."""
    import triton
    import triton.language as tl

    names: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": f"corpus_{path.stem}"}
    for statement in ast.parse(path.read_bytes()).body:
        sibling = _sibling(path, statement)
        if isinstance(statement, ast.FunctionDef):
            kept = [each for each in statement.decorator_list if "jit" in ast.unparse(each)]
            statement.decorator_list = kept
        with suppress(Exception):
            if sibling:
                theirs = _names_in(sibling)
                names |= {a.asname or a.name: theirs[a.name] for a in statement.names}
            else:
                exec(compile(ast.Module([statement], []), str(path), "exec"), names)
    return names


def _sibling(path: Path, statement: ast.stmt) -> Path | None:
    """The file of `from .sibling import name`, or of `from project.sibling import name`."""
    if not isinstance(statement, ast.ImportFrom) or not statement.module:
        return None
    level = statement.level
    folders = [path.parents[level - 1]] if level else list(path.parents)
    files = (folder.joinpath(*statement.module.split(".")) for folder in folders)
    return next((f.with_suffix(".py") for f in files if f.with_suffix(".py").is_file()), None)


def ptx_of(
    kernel: Any,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    divisible: Iterable[str],
    options: Mapping[str, int],
) -> str:
    """The PTX of a kernel for sm_90."""
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_

    at = {name: index for index, name in enumerate(kernel.arg_names)}
    values = {
        (at[name],): getattr(tl, value.removeprefix("tl."))
        if isinstance(value, str) and value.startswith("tl.")
        else value
        for name, value in constants.items()
    }
    signature = {n: "constexpr" if n in constants else types[n] for n in kernel.arg_names}
    attributes = {(at[name],): [["tt.divisibility", 16]] for name in divisible}
    source = ASTSource(kernel, signature, values, attributes)
    made = compile_(source, target=GPUTarget("cuda", 90, 32), options=dict(options))
    return str(made.asm["ptx"])


def widths_at(ptx: str, line: int) -> dict[int, int]:
    """How many accesses of each width, in bits, to global memory a source line has."""
    found: dict[int, int] = {}
    here: set[int] = set()
    for text in ptx.splitlines():
        location = _LOCATION.match(text)
        if location:
            outer = [int(a or b) for a, b in _INLINED.findall(location[2])]
            here = {int(location[1]), *outer}
        access, copy = _ACCESS.match(text), _COPY.match(text)
        width = int(access[2] or 1) * int(access[3]) if access else 0
        width = 8 * int(copy[1], 0) if copy else width
        if width and line in here:
            found[width] = found.get(width, 0) + 1
    return found
