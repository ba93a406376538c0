"""Python targets: from FILE.py, FILE.py:kernel or package.module:kernel to compiled kernels.

The script runs in a process of its own, with a Triton driver that launches nothing, so neither a
GPU nor its driver is needed. Three ways, chosen by what there is: as launched by the script, as
declared by a signature, as guessed from the source.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from traceview import errors
from traceview.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.hardware import limits_of
from traceview.ptx.child import Request
from traceview.ptx.events import Events
from traceview.ptx.model import Compiled

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# The process gets the package's folder for its own imports alone: a script must not see it.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from traceview.ptx import child; "
    "sys.path.pop(0); child.main(*sys.argv[2:])"
)
# Settings of the user's that would keep Triton from compiling, or write where it should not.
_UNSET = (
    "TRITON_INTERPRET",
    "TRITON_STORE_BINARY_ONLY",
    "TRITON_DISABLE_LINE_INFO",
    "TRITON_KERNEL_DUMP",
    "TRITON_DUMP_DIR",
    "TRITON_CACHE_MANAGER",
    "TRITON_DEFAULT_BACKEND",
)


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
    timeout_s: float | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Compiled]:
    """Compile the kernels of a Python target for `arch`; none of them is launched.

    `signature` is in Triton's notation. `constexprs`, `num_warps` and `num_stages` also replace
    what the script passes. `first_config` compiles one configuration of an autotuned kernel
    instead of all. `emulate` gives the script's tensors their values through Triton's
    interpreter. `note` gets a line at a time for the user. The script writes to stderr.

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
    )
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        ended = _run(request, Path(folder), timeout_s)
        events = Events.read(Path(folder, "events.jsonl"), arch)
        return _kept(events, ended, found, note)


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


def _run(request: Request, folder: Path, timeout_s: float | None) -> str | None:
    """Run the child to its end; how it ended, where that was not by itself."""
    asked = folder / "request.json"
    asked.write_text(json.dumps(asdict(request)))
    root = Path(errors.__file__).parents[1]
    command = [python(), "-P", "-c", _START, str(root), str(asked), str(folder / "events.jsonl")]
    process = _started(command, folder)
    try:
        status = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return f"did not end within {timeout_s:g} s and was stopped"
    finally:
        _stop(process)
    if status < 0:
        name = signal.Signals(-status).name
        hint = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    return f"ended with status {status}" if status else None


def _started(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 (the whole purpose)
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=environment(folder),
            start_new_session=True,
        )
    except OSError as error:
        what = f"{command[0]} cannot run: {error.strerror}"
        raise ToolNotFoundError(what, "correct $TRACEVIEW_PYTHON") from None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the child and all that it started, also when we are interrupted."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def python() -> str:
    """The Python that runs scripts: $TRACEVIEW_PYTHON, or our own."""
    return os.environ.get("TRACEVIEW_PYTHON") or sys.executable


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process that runs a script and keeps its caches in a folder."""
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return kept | {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        # What slips through the pretence must fail here as it would without a GPU.
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "Agg",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _kept(
    events: Events, ended: str | None, target: Target, note: Callable[[str], None]
) -> list[Compiled]:
    """What was compiled, after saying what went wrong; raises if that is all there is."""
    if events.failure:
        raise events.failure
    name = Path(target.file).name if target.file else str(target.module)
    if ended and not events.compiled:
        raise TraceviewError(f"{name} {ended} before any kernel was compiled", _remedy(ended))
    if not events.compiled:
        raise InputError(f"{name} ended the process before any kernel was compiled")
    if ended:
        note(f"{name} {ended}; what was compiled until then is kept")
    for text in events.notes:
        note(text)
    note(f"{name}: {events.summary}")
    return events.compiled


def _remedy(ended: str) -> str:
    return "give it longer with --timeout" if "within" in ended else ""
