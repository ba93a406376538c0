"""Injection into the recorded program, which then writes its kernels and sync sites to a folder.

The folder recorders/injected comes first on the program's PYTHONPATH. Child processes inherit it:
the ranks of torchrun, Inductor's compile workers, DataLoader workers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from traceview.recorders.injected.traceview_injected import start
from traceview.recorders.injected.traceview_injected.notes import NOTES, STARTED
from traceview.recorders.injected.traceview_injected.torch_profile import SETTINGS
from traceview.recorders.options import RecordOptions
from traceview.recorders.program import python_of

_INJECTED = Path(__file__).parent / "injected"
_MOST_NOTES = 3
_NO_HOOKS = (
    "the program's Triton kernels were not recorded, because its Python ignored PYTHONPATH; run "
    "it without python -I, -E or -S"
)


def environment(
    options: RecordOptions,
    folder: Path,
    *,
    sample_python: bool = False,
    torch_settings: str | None = None,
) -> Mapping[str, str]:
    """Environment variables to add to the program's; creates `folder` for what it writes.

    With `sample_python` the program samples its own Python stacks; with `torch_settings` it runs
    torch.profiler.
    """
    wanted: dict[str, str] = {}
    if options.kernels or sample_python or torch_settings:
        folder.mkdir(exist_ok=True)
    if options.kernels:
        wanted[start.GATHER] = str(folder)
    if sample_python:
        wanted[start.PYTHON_SAMPLES] = str(folder)
    if torch_settings:
        wanted |= {start.TORCH: str(folder), SETTINGS: torch_settings}
    elif options.steps:
        wanted[start.STEPS] = "{}:{}".format(*options.steps)
    if options.sync_sites:
        wanted[start.SYNC_SITES] = "1"
    if options.annotate != "off":
        wanted[start.ANNOTATE] = options.annotate
    if not wanted:
        return {}
    # An empty entry would be the current folder.
    entries = [str(_INJECTED), os.environ.get("PYTHONPATH", "")]
    return {**wanted, "PYTHONPATH": os.pathsep.join(filter(None, entries))}


def has_started(folder: Path) -> bool:
    """Whether a Python of the program reached the injected hooks."""
    return (folder / STARTED).exists()


def never_ran(options: RecordOptions, folder: Path, command: Sequence[str]) -> bool:
    """Whether the program certainly did not start.

    This is known only of a script run by our own Python without options: the hooks run before the
    script does.
    """
    hooked = options.kernels and command[0] == sys.executable
    hooked = hooked and any(word.endswith(".py") for word in command[1:2])
    return hooked and os.access(folder, os.W_OK) and not has_started(folder)


def remarks(options: RecordOptions, folder: Path, command: Sequence[str]) -> list[str]:
    """Failures of the hooks inside the program, one line each."""
    notes = gathered_notes(folder)
    if options.kernels and python_of(command) and not has_started(folder):
        notes = [_NO_HOOKS, *notes]
    more = len(notes) - _MOST_NOTES
    return [*notes[:_MOST_NOTES], *([f"{more} more warnings of this kind"] if more > 0 else [])]


def gathered_notes(folder: Path) -> list[str]:
    """Notes of the hooks in a gathered folder, one line each."""
    path = folder / NOTES
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return []
    return list(dict.fromkeys(text.splitlines()))
