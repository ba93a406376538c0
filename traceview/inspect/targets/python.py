"""Compile the kernels of a Python target: FILE.py, FILE.py:kernel or package.module:kernel.

The script runs in a worker process on a fake GPU, so neither a GPU nor its driver is needed.
Kernels are compiled as the script launches them, else as declared by a signature, else with
arguments guessed from the source.
Debug folders and logs of torch.compile are refused, with the file to pass instead.
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

_WRITTEN_TO = re.compile(rb"\[__output_code\].* Output code written to: (\S+\.py)")
_MOST_BYTES = 1 << 24


def refuse_debug_folder(folder: Path) -> None:
    """Raise InputError if a folder holds generated graphs, as that of TORCH_COMPILE_DEBUG does."""
    graph = min(folder.rglob("output_code.py"), default=None)
    if graph:
        what = f"{folder} holds no compiled kernel, but graphs that torch.compile has generated"
        raise InputError(what, f"pass one, such as {graph}")


def refuse_log(path: Path) -> None:
    """Raise InputError if a file is what TORCH_LOGS=output_code prints."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        named = _WRITTEN_TO.search(stream.read(_MOST_BYTES))
    if named:
        what = f"{path} is a log of torch.compile"
        raise InputError(what, f"pass the file that it names: {named[1].decode(errors='replace')}")


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
            broken = _why_not_recompilable(worker, parts, ended)
            recompiler.take(worker, broken, events.left_out)
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
        return Target(text, _existing(place), None, selected)
    if _MODULE.fullmatch(place):
        return Target(text, None, place, selected)
    remedy = "write FILE.py, FILE.py:kernel or package.module:kernel"
    raise InputError(f"{text[:200]!r} is not a Python target", remedy)


def _existing(place: str) -> str:
    path = Path(place)
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{place} {reason}", "check the path")
    return str(path.absolute())


def _name(target: Target) -> str:
    return Path(target.file).name if target.file else str(target.module)


def _why_not_recompilable(worker: Worker, target: Target, ended: str | None) -> str | None:
    """Why the kernels cannot be recompiled; None if they can."""
    if worker.lives:
        return None
    return f"{_name(target)} {ended or 'exited'}, so its kernels cannot be recompiled"


def _compiled(
    events: Events, ended: str | None, target: Target, note: Callable[[str], None]
) -> list[Compiled]:
    """The compiled kernels, with notes on how the script ended; raises if there are none."""
    if events.failure:
        raise events.failure
    name = _name(target)
    if ended and not events.compiled:
        raise TraceviewError(f"{name} {ended} before any kernel was compiled", _remedy(ended))
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


def _remedy(ended: str) -> str:
    if "still compiling" in ended:
        return "allow more time with --budget"
    return "allow more time with --timeout" if "within" in ended else ""
