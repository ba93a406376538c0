"""NVIDIA's compilers and disassemblers on this machine: find them and run them; no GPU needed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from traceview.errors import ToolNotFoundError, TraceviewError

PATIENCE_S = 300.0
TRITON_BIN = ("backends", "nvidia", "bin")
TOOLKITS = Path("/usr/local")
GET_IT = {
    "nvcc": "install the CUDA toolkit, or `pip install nvidia-cuda-nvcc`",
    "ptxas": "`pip install triton`, whose wheel brings it, or install the CUDA toolkit",
    "nvdisasm": "`pip install triton`, whose wheel brings it, or install the CUDA toolkit",
    "cuobjdump": "`pip install triton`, whose wheel brings it, or install the CUDA toolkit",
}
_RELEASE = re.compile(r"release (\d+)\.(\d+)")


@dataclass(frozen=True)
class Ran:
    """How a tool ended: its exit status (negative for a signal), its words, and what it wrote."""

    status: int
    out: str
    err: str
    written: bytes | None = None

    @property
    def evidence(self) -> str:
        """The line that tells what went wrong: the first with an error, else the first at all."""
        if self.status < 0:
            return f"it crashed (signal {-self.status})"
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        errors = (line for line in lines if re.search(r"\b(error|fatal)\b", line))
        return next(errors, lines[0] if lines else f"it ended with status {self.status}")[:300]


def find(tool: str, arch: str = "") -> list[Path]:
    """The places of a tool, the best first: what $TRACEVIEW_<TOOL> names (then that alone),
    what Triton brings, PATH, the CUDA toolkits, NVIDIA's wheels.

    `arch` (sm_100) is what ptxas is to compile for, as Triton has two of them. Raises
    ToolNotFoundError if there is none.
    """
    found: dict[Path, Path] = {}
    for path in _places(tool, arch):
        if path.is_file() and os.access(path, os.X_OK):
            found.setdefault(path.resolve(), path)
    if not found:
        raise _not_here(tool)
    return list(found.values())


def newest(tool: str) -> list[Path]:
    """The places of a tool, the newest release first: the older a disassembler, the less it knows.

    Raises ToolNotFoundError.
    """
    return sorted(find(tool), key=lambda path: release_of(path) or (0, 0), reverse=True)


@lru_cache(maxsize=64)
def release_of(path: Path) -> tuple[int, int] | None:
    """The CUDA release that a tool belongs to, such as (12, 8); None if it does not tell."""
    try:
        found = _RELEASE.search(_run([path, "--version"], 20.0).out)
    except TraceviewError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def run(
    path: Path,
    arguments: Callable[[Path, Path], Sequence[str | Path]],
    given: bytes | None,
    suffix: str = "",
    patience_s: float = PATIENCE_S,
) -> Ran:
    """Run a tool on one input, in a folder of its own that is gone afterwards.

    `arguments` is given the paths of the input, which ends in `suffix`, and of the output. With
    `given` None there is no input. Raises ToolNotFoundError if the tool cannot run and
    TraceviewError if it takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        source, target = Path(folder, f"input{suffix}"), Path(folder, "output")
        if given is not None:
            source.write_bytes(given)
        ran = _run([path, *arguments(source, target)], patience_s, folder)
        written = target.read_bytes() if target.is_file() else None
        # The name of our copy would only puzzle the user.
        out, err = (text.replace(str(source), f"the {suffix[1:]}") for text in (ran.out, ran.err))
        return Ran(ran.status, out, err, written)


def extracted(
    path: Path, arguments: Sequence[str | Path], suffix: str, patience_s: float = PATIENCE_S
) -> tuple[Ran, list[bytes]]:
    """Run a tool that writes files of this suffix into the current folder; give what they hold.

    Raises as `run` does.
    """
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        ran = _run([path, *arguments], patience_s, folder)
        files = sorted(Path(folder).glob(f"*{suffix}"))
        return ran, [file.read_bytes() for file in files if file.is_file()]


def first_success(paths: Sequence[Path], attempt: Callable[[Path], Ran], too_old: str) -> Ran:
    """Try tools in turn, as long as one says by a message like `too_old` that it is too old."""
    ran = attempt(paths[0])
    for path in paths[1:]:
        if ran.status == 0 or not re.search(too_old, ran.err):
            break
        ran = attempt(path)
    return ran


def _run(command: Sequence[str | Path], patience_s: float, folder: str | None = None) -> Ran:
    try:
        done = subprocess.run(  # noqa: S603 (the whole purpose)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            cwd=folder,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"{Path(command[0]).name} did not end within {patience_s:g} s"
        raise TraceviewError(message) from None
    except OSError as error:
        message = f"{command[0]} cannot run: {error.strerror or error}"
        raise ToolNotFoundError(message) from None
    return Ran(done.returncode, done.stdout, done.stderr)


def _places(tool: str, arch: str) -> Iterator[Path]:
    named = os.environ.get(_variable(tool))
    if named:
        # The user's word is final: another tool in its place would be a surprise.
        yield Path(named).absolute()
        return
    yield from _of_triton(tool, arch)
    on_path = shutil.which(tool)
    if on_path:
        yield Path(on_path).absolute()
    toolkits = sorted(TOOLKITS.glob("cuda*"), key=_numbers, reverse=True)
    yield from (toolkit / "bin" / tool for toolkit in toolkits)
    for folder in map(Path, sys.path):
        yield from sorted(folder.glob(f"nvidia/*/bin/{tool}"), key=_numbers, reverse=True)


def _of_triton(tool: str, arch: str) -> Iterator[Path]:
    """Where Triton's wheel has a tool; found without importing Triton, which would load LLVM."""
    spec = importlib.util.find_spec("triton")
    names = [tool]
    if tool == "ptxas":
        names = ["ptxas-blackwell", tool] if _number(arch) >= 100 else [tool, "ptxas-blackwell"]
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from (Path(folder, *TRITON_BIN, name) for name in names)


def _not_here(tool: str) -> ToolNotFoundError:
    variable = _variable(tool)
    named = os.environ.get(variable)
    if named:
        return ToolNotFoundError(f"${variable} names {named}, which is no program", "correct it")
    remedy = f"{GET_IT.get(tool, 'install the CUDA toolkit')}, or name the tool in ${variable}"
    return ToolNotFoundError(f"{tool} is not on this machine", remedy)


def _variable(tool: str) -> str:
    return f"TRACEVIEW_{tool.upper()}"


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def _numbers(path: Path) -> list[int]:
    """The numbers in a path, so that cuda-12.10 comes after cuda-12.9."""
    return [int(number) for number in re.findall(r"\d+", str(path))]
