"""What the recorded program is given so that it writes down its own kernels and calls.

A folder of ours comes first on its PYTHONPATH; see traceview.recorders.injected. Children inherit
it: the ranks of torchrun, Inductor's compile workers, the workers of a DataLoader.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from traceview.recorders.injected.traceview_injected.notes import NOTES, STARTED
from traceview.recorders.injected.traceview_injected.start import GATHER, SYNC_SITES
from traceview.recorders.options import RecordOptions
from traceview.recorders.program import python_of

_INJECTED = Path(__file__).parent / "injected"
_MOST_NOTES = 3
_BLIND = (
    "the program's Triton kernels were not gathered: its Python ran nothing of ours, as with "
    "python -I, -E or -S; run it without these options"
)


def environment(options: RecordOptions, folder: Path) -> Mapping[str, str]:
    """The variables to add to the program's; kernels go into `folder`, which is made."""
    wanted: dict[str, str] = {}
    if options.kernels:
        folder.mkdir(exist_ok=True)
        wanted[GATHER] = str(folder)
    if options.sync_sites:
        wanted[SYNC_SITES] = "1"
    if not wanted:
        return {}
    # An empty entry would be the current folder.
    entries = [str(_INJECTED), os.environ.get("PYTHONPATH", "")]
    return {**wanted, "PYTHONPATH": os.pathsep.join(filter(None, entries))}


def has_started(folder: Path) -> bool:
    """Whether a Python of the program came as far as our hooks."""
    return (folder / STARTED).exists()


def never_ran(options: RecordOptions, folder: Path, command: Sequence[str]) -> bool:
    """Whether the program is known not to have started.

    Known it is of a script that our own Python runs with its usual options alone: that comes to
    our hooks before anything of the script's.
    """
    hooked = options.kernels and command[0] == sys.executable
    hooked = hooked and any(word.endswith(".py") for word in command[1:2])
    return hooked and os.access(folder, os.W_OK) and not has_started(folder)


def remarks(options: RecordOptions, folder: Path, command: Sequence[str]) -> list[str]:
    """What went wrong inside the program, one line each."""
    said = _lines(folder / NOTES)
    if options.kernels and python_of(command) and not has_started(folder):
        said = [_BLIND, *said]
    more = len(said) - _MOST_NOTES
    return [*said[:_MOST_NOTES], *([f"{more} more like these"] if more > 0 else [])]


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return []
    return list(dict.fromkeys(text.splitlines()))
