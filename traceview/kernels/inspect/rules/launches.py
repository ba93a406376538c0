"""Kernels that Triton refuses, and grids of which the kernel ignores an axis."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.ptx.model import Compiled, SourceLine

_REFUSED = Diagnosis(
    "Triton refuses to compile the kernel: at {line} it reads the global {name}, which is no "
    "tl.constexpr; the code shown is compiled as if it were",
    "Define it as {name} = tl.constexpr(…), or pass it as a tl.constexpr parameter",
    "high",
)

_IGNORED = Diagnosis(
    "The kernel ignores axis {axis} of its grid: the {blocks:block} along it do the same work",
    "Drop that axis from the grid, or use tl.program_id({axis}) in the offsets",
)
_UNUSED = Diagnosis(
    "The result of tl.program_id({axis}) at {line} is never used, so blocks along that axis of a "
    "grid do the same work",
    "Leave it out, and launch the kernel on a grid without that axis",
    "info",
)
# With these, blocks can share out work without their indices.
_OTHER_INDEX = re.compile(r"%(?:clusterid|cluster_ctaid|smid|globaltimer)\b|\batom\.")

_PROGRAM_ID = re.compile(r"\w+\.program_id\((?:axis=)?([012])\)")


def plain_globals(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A global that the kernel reads although it is no constant for Triton."""
    if kernel.compiled.plain_global:
        name, source = kernel.compiled.plain_global
        yield CodeClaim(
            _REFUSED,
            {"line": line_name(source), "name": name, "proven": True},
            "the error of Triton's compiler",
            source,
        )


def unused_axes(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Axes of the grid that the kernel does not read, each once."""
    ptx, grid = kernel.compiled.ptx, kernel.compiled.grid
    if ptx is None or kernel.compiled.is_cuda(None) or _OTHER_INDEX.search(ptx):
        return
    unused = _unused_ids(kernel.compiled)
    for axis, letter in enumerate("xyz"):
        line = unused.get(axis)
        if f"%ctaid.{letter}" in ptx or not (grid[axis] > 1 if grid else line):
            continue
        source = SourceLine(str(kernel.compiled.source_file), line) if line else None
        yield CodeClaim(
            _IGNORED if grid else _UNUSED,
            {"axis": axis, "blocks": grid[axis] if grid else None, "line": line_name(source)},
            f"PTX: it does not read %ctaid.{letter}",
            source,
        )


def _unused_ids(compiled: Compiled) -> dict[int, int]:
    """The axes whose tl.program_id the source reads into a name that it never uses, by line."""
    text = compiled.source_text or ""
    with suppress(OSError, ValueError, SyntaxError, RecursionError):
        text = text or Path(compiled.source_file or "").read_text("utf-8")
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef) and function.lineno == compiled.source_line:
                return dict(_ids_in(function))
    return {}


def _ids_in(function: ast.FunctionDef) -> Iterator[tuple[int, int]]:
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    loaded = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            read = _PROGRAM_ID.fullmatch(ast.unparse(node.value))
            if read and node.targets[0].id not in loaded:
                yield int(read[1]), node.lineno
