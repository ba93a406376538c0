"""Python targets: from FILE.py, FILE.py:kernel or package.module:kernel to compiled kernels.

The script runs in a process of its own, with a Triton driver that launches nothing, so neither a
GPU nor its driver is needed. Three ways, chosen by what there is: as launched by the script, as
declared by a signature, as guessed from the source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from traceview.errors import InputError, TraceviewError
from traceview.hardware import limits_of
from traceview.headless.client import Process
from traceview.headless.events import Events
from traceview.headless.recompile import Recompiler
from traceview.headless.request import Request
from traceview.ptx.model import Compiled

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Target:
    """A target in its parts: `file` or `module`, and a kernel or None for all of them."""

    text: str
    file: str | None
    module: str | None
    kernel: str | None


def compile_python(
    target: str,
    *,
    kernel: str | None = None,
    arch: str = "sm_90",
    script_args: Sequence[str] = (),
    signature: str | None = None,
    constexprs: Mapping[str, str] | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    first_config: bool = False,
    emulate: bool = False,
    compile_torch: bool = False,
    timeout_s: float | None = None,
    recompiler: Recompiler | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Compiled]:
    """Compile the kernels of a Python target for `arch`; none of them is launched.

    `signature` is in Triton's notation. `constexprs`, `num_warps` and `num_stages` also replace
    what the script passes. `first_config` compiles one configuration of an autotuned kernel
    instead of all. `emulate` gives the script's tensors their values through Triton's
    interpreter; `compile_torch` lets torch.compile compile what it generates. After `timeout_s`
    the script is interrupted. `recompiler` takes the process, to compile the kernels again.
    `note` gets a line at a time for the user. The script writes to stderr.

    Raises InputError where the target, the signature or the script is at fault, ToolNotFoundError
    without Triton, TraceviewError if the process is killed before anything was compiled.
    """
    found = parse_target(target, kernel)
    options = {"num_warps": num_warps, "num_stages": num_stages}
    request = Request(
        file=found.file,
        module=found.module,
        kernel=found.kernel,
        capability=limits_of(arch).compute_capability,
        script_args=list(script_args),
        signature=signature,
        constexprs=dict(constexprs or {}),
        options={name: value for name, value in options.items() if value is not None},
        first_config=first_config,
        emulate=emulate,
        compile_torch=compile_torch,
        timeout_s=timeout_s,
    )
    with ExitStack() as held:
        process = Process(request)
        held.callback(process.close)
        ended = process.run(timeout_s)
        kept = _kept(Events.read(process.events, arch), ended, found, note)
        if recompiler:
            recompiler.take(process, _why_gone(process, found, ended))
            held.pop_all()
        return kept


def parse_target(text: str, kernel: str | None = None) -> Target:
    """Take a target apart. Raises InputError if it is none, or names another kernel too."""
    place, _, named = text.rpartition(":") if ":" in text else (text, "", "")
    if kernel and named and kernel != named:
        remedy = "name it once"
        raise InputError(f"{text} names one kernel and --kernel {kernel} another", remedy)
    wanted = named or kernel or None
    if place.endswith(".py"):
        return Target(text, _existing(place), None, wanted)
    if _MODULE.fullmatch(place):
        return Target(text, None, place, wanted)
    remedy = "write FILE.py, FILE.py:kernel or package.module:kernel"
    raise InputError(f"{text[:200]!r} is not a Python target", remedy)


def _existing(place: str) -> str:
    path = Path(place)
    if not path.is_file():
        raise InputError(f"{place} is {'a folder' if path.is_dir() else 'not there'}")
    return str(path.absolute())


def _name(target: Target) -> str:
    return Path(target.file).name if target.file else str(target.module)


def _why_gone(process: Process, target: Target, ended: str | None) -> str | None:
    """Why the kernels cannot be compiled again, if that is so."""
    if process.lives:
        return None
    return f"{_name(target)} {ended or 'ended the process'}, so nothing can be recompiled"


def _kept(
    events: Events, ended: str | None, target: Target, note: Callable[[str], None]
) -> list[Compiled]:
    """What was compiled, after saying what went wrong; raises if that is all there is."""
    if events.failure:
        raise events.failure
    name = _name(target)
    if ended and not events.compiled:
        raise TraceviewError(f"{name} {ended} before any kernel was compiled", _remedy(ended))
    if not events.compiled:
        raise InputError(f"{name} ended the process before any kernel was compiled")
    if ended:
        note(f"{name} {ended}; what was compiled until then is kept")
    for text in events.notes:
        note(text)
    if not events.is_whole and any(compiled.launches for compiled in events.compiled):
        note(f"{name} was cut short: the launch counts are lower bounds")
    note(f"{name}: {events.summary}")
    return events.compiled


def _remedy(ended: str) -> str:
    return "give it longer with --timeout" if "within" in ended else ""
