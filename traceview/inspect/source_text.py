"""The user's source around the lines that accesses come from, and lines in inlined helpers.

Functions of a library (tl.zeros, cuda_fp16.h) are not a place to change: their lines are left out.
"""

from __future__ import annotations

import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from traceview import units
from traceview.inspect.kernel_report import line_name
from traceview.ptx.model import Access, Function, Instruction, SourceLine
from traceview.records import record

_AROUND = 3
_MOST_BYTES = 4_000_000
_FAR_APART = 400


@record
class Excerpt:
    """Lines of one file, numbered; `missing` says why there are none."""

    file: str
    lines: tuple[tuple[int, str], ...]
    missing: str | None = None


def excerpts(
    sources: Iterable[SourceLine], texts: Mapping[str, str] | None = None
) -> list[Excerpt]:
    """One excerpt per file, with all these lines and a few around them.

    `texts` has the text of files that no longer exist. A file that cannot be read, is shorter than
    when it was compiled, or is too large has no lines, but a reason.
    """
    by_file: dict[str, set[int]] = {}
    for source in sources:
        by_file.setdefault(source.file, set()).add(source.line)
    known = texts or {}
    return [_excerpt(file, numbers, known.get(file)) for file, numbers in sorted(by_file.items())]


def _excerpt(file: str, numbers: set[int], known: str | None) -> Excerpt:
    try:
        text = (_read(Path(file)) if known is None else known).splitlines()
    except (OSError, ValueError) as error:
        return Excerpt(file, (), f"cannot be read: {getattr(error, 'strerror', None) or error}")
    if max(numbers) > len(text):
        return Excerpt(
            file,
            (),
            f"has only {units.counted(len(text), 'line')}: it changed since it was compiled",
        )
    wanted = sorted({n for number in numbers for n in _neighbours(number, numbers, len(text))})
    return Excerpt(file, tuple((n, text[n - 1]) for n in wanted))


def _read(path: Path) -> str:
    """The text of a source file. Raises OSError, or ValueError if it cannot be shown."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        # Code names any file it likes: a device may have no end, a pipe no writer.
        raise ValueError("it is not a regular file")
    if status.st_size > _MOST_BYTES:
        raise ValueError("it is too large to show")
    return path.read_text("utf-8", "replace")


def _neighbours(number: int, numbers: set[int], most: int) -> range:
    """The lines to show around `number`: a few, and all up to the next unless that is far."""
    following = min((n for n in numbers if n > number), default=number)
    end = following if following - number <= _FAR_APART else number
    return range(max(1, number - _AROUND), min(most, end + _AROUND) + 1)


_PACKAGE = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")
_LIBRARY = re.compile(r"[/\\]triton[/\\](?:language|experimental)[/\\]|[/\\]include[/\\]")
_MOST_LINES = 3

_Key = tuple[str, str, SourceLine | None, int]


def helper_lines(instructions: Iterable[Instruction]) -> tuple[SourceLine, ...]:
    """The innermost lines of inlined helpers of the user's project, each once, in order."""
    lines = (_in_helper(instruction) for instruction in instructions)
    return tuple(dict.fromkeys(line for line in lines if line))


def with_helper_lines(
    accesses: Sequence[Access], functions: Iterable[Function | None]
) -> Iterator[Access]:
    """The accesses of the PTX and SASS of a kernel, each with its `helper_lines`."""
    same: dict[_Key, list[Instruction]] = defaultdict(list)
    for function in functions:
        for each in function.instructions if function else ():
            if each.inlined and function:
                same[function.level, each.opcode, each.source, each.loop_depth].append(each)
    for access in accesses:
        key = (access.level, access.opcode, access.source, access.loop_depth)
        yield replace(access, helper_lines=helper_lines(same.get(key, ())))


def inlined_text(lines: Sequence[SourceLine]) -> str:
    """Evidence on helpers, such as `inlined from gelu.py:18`; empty for none."""
    if not lines:
        return ""
    more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
    return f"inlined from {', '.join(map(line_name, lines[:_MOST_LINES]))}{more}"


def _in_helper(instruction: Instruction) -> SourceLine | None:
    source = instruction.source
    if source is None:
        return None
    own = (line for line in instruction.inlined if _is_of_project(line.file, source.file))
    line = next(own, None)
    return line if line != source else None


def _is_of_project(file: str, kernel_file: str) -> bool:
    """Whether a file is in the kernel's own package or project, and not in a library."""
    if file == kernel_file:
        return True
    return _package(file) == _package(kernel_file) and not _LIBRARY.search(file)


def _package(file: str) -> str:
    match = _PACKAGE.match(file)
    return match[0] if match else ""
