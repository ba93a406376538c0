"""Lines in the user's helpers, inlined into the kernel, where accesses are made.

Functions of a library (tl.zeros, cuda_fp16.h) are not a place to change: their lines are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from traceview.inspect.kernel_report import line_name
from traceview.ptx.model import Access, Function, Instruction, SourceLine

_PACKAGE = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")
_LIBRARY = re.compile(r"[/\\]triton[/\\](?:language|experimental)[/\\]|[/\\]include[/\\]")
_MOST_LINES = 3

_Key = tuple[str, str, SourceLine | None, int]


def helper_lines(instructions: Iterable[Instruction]) -> tuple[SourceLine, ...]:
    """The innermost lines of inlined helpers of the user's project, each once, in order."""
    lines = []
    for source, inlined in ((i.source, i.inlined) for i in instructions if i.source):
        for line in inlined:
            # In the kernel's own package or project, and not in a library.
            if line.file == source.file or (
                _package(line.file) == _package(source.file) and not _LIBRARY.search(line.file)
            ):
                if line != source:
                    lines.append(line)
                break
    return tuple(dict.fromkeys(lines))


def with_helper_lines(
    accesses: Sequence[Access], functions: Iterable[Function | None]
) -> Iterator[Access]:
    """The accesses of the PTX and SASS of a kernel, each with its `helper_lines`."""
    same: dict[_Key, list[Instruction]] = defaultdict(list)
    for function in functions:
        for instruction in function.instructions if function else ():
            if instruction.inlined and function:
                same[
                    function.level, instruction.opcode, instruction.source, instruction.loop_depth
                ].append(instruction)
    for access in accesses:
        key = (access.level, access.opcode, access.source, access.loop_depth)
        yield replace(access, helper_lines=helper_lines(same.get(key, ())))


def inlined_text(lines: Sequence[SourceLine]) -> str:
    """Evidence on helpers, such as `inlined from gelu.py:18`; empty for none."""
    if not lines:
        return ""
    more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
    return f"inlined from {', '.join(map(line_name, lines[:_MOST_LINES]))}{more}"


def _package(file: str) -> str:
    match = _PACKAGE.match(file)
    return match[0] if match else ""
