"""The code of the kernels that nvcc built into a recorded program, stored in its trace."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from traceview.base.errors import TraceviewError
from traceview.kernels.inspect.targets import binary_kernels
from traceview.kernels.ptx.cubin import has_fatbin
from traceview.kernels.ptx.model import Compiled
from traceview.traces.recorders import written_tables
from traceview.traces.trace.nsys import added_tables

_MOST_KERNELS = 16
"""Kernels whose code is stored, the longest first: a report looks at no more of them in detail."""
_MOST_BYTES = 256 << 20
"""Of a program: larger ones are frameworks, whose code takes minutes to read."""


def write_program_code(database: Path, command: Sequence[str]) -> int:
    """Add the code of the longest kernels of the programs in a command. Returns their number.

    Programs are the words that name files with GPU code: `mpirun` starts one. A program that cannot
    be read adds none. Raises RecordingError if the database is damaged.
    """
    names = frozenset(added_tables.longest_kernels(database, _MOST_KERNELS))
    kernels = [each for each in map(_of_program, command) if each] if names else []
    found = [kernel for each in kernels for kernel in each if kernel.name in names]
    if found:
        written_tables.write_code(database, found)
    return len(found)


def _of_program(word: str) -> list[Compiled]:
    path = Path(shutil.which(word) or word)
    try:
        readable = path.is_file() and path.stat().st_size <= _MOST_BYTES and has_fatbin(path)
        return binary_kernels([path]) if readable else []
    except (OSError, ValueError, TraceviewError):
        return []
