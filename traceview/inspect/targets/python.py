"""Compile the kernels of a Python target: FILE.py, FILE.py:kernel or package.module:kernel.

The script runs in a worker process on a fake GPU, so neither a GPU nor its driver is needed.
Kernels are compiled as the script launches them, else as declared by a signature, else with
arguments guessed from the source.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from traceview.errors import InputError, TraceviewError
from traceview.hardware import limits_of
from traceview.headless.client import Worker
from traceview.headless.compile_options import CompileOptions
from traceview.headless.events import Events
from traceview.headless.recompile import Recompiler
from traceview.headless.request import Request
from traceview.ptx.model import Compiled
from traceview.records import record

DEFAULT_ARCH = "sm_90"
_DEFAULTS = CompileOptions()
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_REACH = "pass it arguments, after --, with which it launches one"


@record
class Target:
    """A parsed target: a `file` or a `module`, and one kernel or None for all."""

    text: str
    file: str | None
    module: str | None
    kernel: str | None

    @property
    def name(self) -> str:
        """The name of the file, without its folder, or of the module."""
        return Path(self.file).name if self.file else str(self.module)


def compile_python(
    target: str,
    options: CompileOptions = _DEFAULTS,
    *,
    recompiler: Recompiler | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Compiled]:
    """Compile the kernels of a Python target without launching any.

    `recompiler` keeps the worker process, to compile the kernels again. `note` gets a line at a
    time for the user. The script writes to stderr.

    Raises InputError where the target, the signature or the script is at fault, ToolNotFoundError
    without Triton, TraceviewError if the process is killed before anything was compiled.
    """
    parts = parse_target(target, options.kernel)
    arch = options.arch or DEFAULT_ARCH
    request = Request(
        file=parts.file,
        module=parts.module,
        capability=limits_of(arch).compute_capability,
        options=replace(options, kernel=parts.kernel, budget_s=options.trials_s),
    )
    with ExitStack() as stack:
        worker = Worker(request)
        stack.callback(worker.close)
        ended = worker.run()
        events = Events.read(worker.events, arch)
        kernels = _compiled(events, ended, parts, note)
        if recompiler:
            why = f"{parts.name} {ended or 'exited'}, so its kernels cannot be recompiled"
            recompiler.take(worker, None if worker.lives else why, events.left_out)
            stack.pop_all()
        return kernels


def parse_target(text: str, kernel: str | None = None) -> Target:
    """Parse a target. Raises InputError if it is invalid or contradicts `kernel`."""
    place, _, name = text.rpartition(":") if ":" in text else (text, "", "")
    if kernel and name and kernel != name:
        remedy = "leave out one of them"
        raise InputError(f"{text} and --kernel {kernel} name different kernels", remedy)
    selected = name or kernel or None
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            reason = "is a folder" if path.is_dir() else "does not exist"
            raise InputError(f"{place} {reason}", "check the path")
        return Target(text, str(path.absolute()), None, selected)
    if _MODULE.fullmatch(place):
        return Target(text, None, place, selected)
    remedy = "write FILE.py, FILE.py:kernel or package.module:kernel"
    raise InputError(f"{text[:200]!r} is not a Python target", remedy)


def _compiled(
    events: Events, ended: str | None, target: Target, note: Callable[[str], None]
) -> list[Compiled]:
    """The compiled kernels, with notes on how the script ended; raises if there are none."""
    if events.failure:
        raise events.failure
    name = target.name
    if ended and not events.compiled:
        remedy = "allow more time with --timeout" if "within" in ended else ""
        if "still compiling" in ended:
            remedy = "allow more time with --budget"
        raise TraceviewError(f"{name} {ended} before any kernel was compiled", remedy)
    if not events.compiled:
        raise InputError(f"{name} exited before it compiled any kernel", _REACH)
    if ended:
        note(f"{name} {ended.rstrip(',')}; only kernels compiled by then are shown")
    for text in events.notes:
        note(text)
    if not events.is_whole and any(compiled.launches for compiled in events.compiled):
        note(f"{name} did not run to its end: launch counts are lower bounds")
    note(f"{name}: {events.summary}")
    return events.compiled
