"""Kernels that Triton refuses, grids with too many blocks, and axes that the kernel ignores."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.ptx.addresses.evaluation import Registers
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
_MASKED = Diagnosis(
    "Of {sampled_blocks:block} spread over a grid of {blocks}, {idle_blocks} store nothing: their "
    "masks leave out all elements",
    "Launch as many blocks as hold the data: triton.cdiv(n, BLOCK) along an axis of n elements",
    "medium",
)
# Fewer cost little beside those that work. Multiples of it fall evenly on all axes.
_SAMPLES, _MOST_IDLE, _GOLDEN = 64, 0.5, 0.6180339887
_WRITES = re.compile(r"(?:st|atom|red)\b(?!.*\.(?:shared|local|param)\b)|cp\..*bulk|multimem|call")
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


def masked_blocks(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A launch most of whose blocks store nothing, by the masks of all that they could store."""
    grid, costs, ptx = kernel.compiled.grid, kernel.request_costs, kernel.code.ptx
    if kernel.compiled.how != "launched" or not grid or not costs or not ptx:
        return
    slices, blocks = costs.provenance.slices, math.prod(grid)
    writes = [i for i in ptx.instructions if _WRITES.match(i.opcode)]
    known = costs.provenance.arguments_by_parameter
    needed = {name for each in writes for name in slices.guard(each).parameters}
    if not all(name in known and type(known[name].value) is int for name in needed):
        return
    idle, places = 0, {blocks - 1, *(int(blocks * (n * _GOLDEN % 1)) for n in range(_SAMPLES))}
    for place in sorted(places, reverse=True):
        block = place % grid[0], place // grid[0] % grid[1], place // grid[0] // grid[1]
        registers = Registers(slices, replace(costs.each[0].launch, block=block))
        idle += not any(registers.may_execute(each) for each in writes)
        # The last block is the first to be masked off.
        if not idle:
            return
    # Where none stores, the arguments are not those of real use.
    if _MOST_IDLE * len(places) < idle < len(places):
        yield CodeClaim(
            _MASKED,
            {"sampled_blocks": len(places), "blocks": blocks, "idle_blocks": idle, "proven": True},
            "the masks in PTX for the launch's arguments",
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
