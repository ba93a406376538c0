"""NVIDIA's compilers and disassemblers, and demanglers: find and run them without a GPU."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from traceview.base.errors import TimeUpError, ToolNotFoundError
from traceview.base.records import record

TIMEOUT_S = 20.0
LONGEST_LINE = 300


@record
class ProcessResult:
    """Exit status and output of a program that has ended.

    `status` is negative for a signal, and None if the program could not start or was stopped at
    the time limit; `err` then says which. `written` is the content of the file it was to write.
    """

    status: int | None
    out: str
    err: str = ""
    written: bytes | None = None
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """True for exit status 0."""
        return self.status == 0

    @property
    def text(self) -> str:
        """Everything that the program printed."""
        return f"{self.out}\n{self.err}"

    @property
    def evidence(self) -> str:
        """The line that best explains a failure: the first with an error, else the first."""
        if self.status is not None and self.status < 0:
            return f"it crashed (signal {-self.status})"
        lines = [line.strip() for line in f"{self.err}\n{self.out}".splitlines() if line.strip()]
        errors = (line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE))
        silent = f"it printed nothing and exited with status {self.status}"
        return next(errors, lines[0] if lines else silent)[:LONGEST_LINE]


def run_process(
    command: Sequence[str | Path],
    *,
    timeout_s: float = TIMEOUT_S,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> ProcessResult:
    """Run a command without input in `folder` and wait at most `timeout_s` for it.

    `environment` is added to the current one. Never raises: a command that cannot run, or does
    not end, is a result with status None.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 (the whole purpose)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            errors="replace",
            # Ctrl-C is for us to handle: a terminal would send it to the program, too.
            process_group=0,
        )
    except OSError as error:
        return ProcessResult(None, "", f"it cannot run: {error.strerror or error}")
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return ProcessResult(None, "", f"it did not end within {timeout_s:g} s", timed_out=True)
        except BaseException:
            _kill(process)
            raise
    return ProcessResult(process.returncode, out, err)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a program and the processes that it started, which are in its process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def variable_of(program: str) -> str:
    """The environment variable by which a user chooses a program: TRACEVIEW_PTXAS for ptxas."""
    return f"TRACEVIEW_{program.upper()}"


def chosen_by_user(program: str) -> Path | None:
    """The path in the program's environment variable, whether or not there is a file."""
    path = os.environ.get(variable_of(program))
    return Path(path).absolute() if path else None


def on_path(program: str) -> Iterator[Path]:
    """The program on PATH, if it is there."""
    path = shutil.which(program)
    if path:
        yield Path(path).absolute()


def newest_first(paths: Iterable[Path]) -> list[Path]:
    """Install paths in descending order of the version numbers in them: 12.10 before 12.9."""
    return sorted(paths, key=_numbers, reverse=True)


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


COMPILE_TIMEOUT_S = 300.0
TRITON_BIN = ("backends", "nvidia", "bin")
TOOLKITS = Path("/usr/local")
HOW_TO_INSTALL = {
    "nvcc": "install the CUDA toolkit, or `pip install nvidia-cuda-nvcc`",
    "ptxas": "`pip install triton`, which includes it, or install the CUDA toolkit",
    "nvdisasm": "`pip install triton`, which includes it, or install the CUDA toolkit",
    "cuobjdump": "`pip install triton`, which includes it, or install the CUDA toolkit",
}
_RELEASE = re.compile(r"release (\d+)\.(\d+)")


def find(tool: str, arch: str = "") -> list[Path]:
    """All paths of a tool, in order of preference.

    $TRACEVIEW_<TOOL> excludes all others. Otherwise: the tool in Triton's wheel, on PATH, in the
    CUDA toolkits, in NVIDIA's wheels. `arch` (sm_100) is the target of ptxas, of which Triton
    ships two. Raises ToolNotFoundError if there is none.
    """
    paths: dict[Path, Path] = {}
    for path in _candidates(tool, arch):
        if path.is_file() and os.access(path, os.X_OK):
            paths.setdefault(path.resolve(), path)
    if not paths:
        raise _not_found(tool)
    return list(paths.values())


def find_newest(tool: str) -> list[Path]:
    """All paths of a tool, newest release first: an old disassembler lacks new architectures.

    Raises ToolNotFoundError.
    """
    return sorted(find(tool), key=lambda path: release_of(path) or (0, 0), reverse=True)


@lru_cache(maxsize=64)
def release_of(path: Path) -> tuple[int, int] | None:
    """The CUDA release that a tool belongs to, such as (12, 8); None if it prints none."""
    release = _RELEASE.search(run_process([path, "--version"]).out)
    return (int(release[1]), int(release[2])) if release else None


def run(
    path: Path,
    arguments: Callable[[Path, Path], Sequence[str | Path]],
    source: bytes | None,
    suffix: str = "",
    timeout_s: float = COMPILE_TIMEOUT_S,
    folder: Path | None = None,
) -> ProcessResult:
    """Run a tool on one input file, in a temporary folder or `folder`, and read the output file.

    `arguments` maps the paths of the input, which ends in `suffix`, and of the output to the
    command-line arguments. With `source` None there is no input file. Raises ToolNotFoundError if
    the tool cannot run and TimeUpError at the time limit.
    """
    with tempfile.TemporaryDirectory(prefix="traceview-") as temporary:
        source_path, target = Path(temporary, f"input{suffix}"), Path(temporary, "output")
        if source is not None:
            source_path.write_bytes(source)
        command = [path, *arguments(source_path, target)]
        result = run_process(command, timeout_s=timeout_s, folder=folder or Path(temporary))
        if result.timed_out:
            raise TimeUpError(f"{path.name} did not end within {timeout_s:g} s")
        if result.status is None:
            what = f"{path} {result.err.removeprefix('it ')}"
            raise ToolNotFoundError(what, "install it again")
        # The name of our temporary copy would only puzzle the user.
        return replace(
            result,
            out=result.out.replace(str(source_path), f"the {suffix[1:]}"),
            err=result.err.replace(str(source_path), f"the {suffix[1:]}"),
            written=target.read_bytes() if target.is_file() else None,
        )


def run_first_able(
    paths: Sequence[Path], attempt: Callable[[Path], ProcessResult], too_old: str
) -> ProcessResult:
    """Try the paths of a tool in turn until one does not fail with a message like `too_old`."""
    result = attempt(paths[0])
    for path in paths[1:]:
        if result.ok or not re.search(too_old, result.err):
            break
        result = attempt(path)
    return result


def _candidates(tool: str, arch: str) -> Iterator[Path]:
    chosen = chosen_by_user(tool)
    if chosen:
        # No other tool may take its place: that would be a surprise.
        yield chosen
        return
    yield from _in_triton(tool, arch)
    yield from on_path(tool)
    yield from (toolkit / "bin" / tool for toolkit in newest_first(TOOLKITS.glob("cuda*")))
    for folder in map(Path, sys.path):
        yield from newest_first(folder.glob(f"nvidia/*/bin/{tool}"))


def _in_triton(tool: str, arch: str) -> Iterator[Path]:
    """A tool's paths in Triton's wheel; found without importing Triton, which would load LLVM."""
    spec = importlib.util.find_spec("triton")
    names = [tool]
    if tool == "ptxas":
        is_blackwell = number_of(arch) >= 100
        names = ["ptxas-blackwell", tool] if is_blackwell else [tool, "ptxas-blackwell"]
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from (Path(folder, *TRITON_BIN, name) for name in names)


def number_of(arch: str) -> int:
    """The number of an architecture: 90 of sm_90a; 0 without one."""
    return int(re.sub(r"\D", "", arch) or 0)


def _not_found(tool: str) -> ToolNotFoundError:
    variable, chosen = variable_of(tool), os.environ.get(variable_of(tool))
    if chosen:
        what = f"${variable} is {chosen}, which is not an executable file"
        return ToolNotFoundError(what, f"correct or unset ${variable}")
    remedy = f"{HOW_TO_INSTALL.get(tool, 'install the CUDA toolkit')}, or set ${variable}"
    return ToolNotFoundError(f"{tool} was not found on this machine", f"{remedy} to its path")


# C++ names of mangled symbols: by c++filt, else by the C++ library of this machine. CUDA's cu++filt
# writes others (`k<(int)4>(T1 *)`): one kernel would have two names on two machines.
#
# Symbols come from untrusted files. They are demangled in a separate process, so that a symbol
# that crashes the demangler costs only names.

_MANGLED = re.compile(r"_Z[\w.$]+")
_TOOLS = ("c++filt", "llvm-cxxfilt")
_LONGEST = 8192
# An argument of a command may have 128 KiB, all of them together some MiB.
_AT_ONCE = 64
_TIMEOUT_S = 10.0
_BY_LIBRARY = """
import ctypes, sys
library = ctypes.CDLL("libstdc++.so.6")
demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for symbol in sys.argv[1:]:
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    print(ctypes.string_at(text).decode("utf-8", "replace") if text else symbol)
    free(text)
"""
_known: dict[str, str] = {}
_MOST_KNOWN = 1 << 16


def demangled(symbols: Iterable[str]) -> dict[str, str]:
    """Each symbol mapped to its C++ name, or to itself if it is not mangled or not understood."""
    wanted = list(dict.fromkeys(symbols))
    fresh = [s for s in wanted if s not in _known and _MANGLED.fullmatch(s) and len(s) < _LONGEST]
    if len(_known) > _MOST_KNOWN:
        _known.clear()
    for first in range(0, len(fresh), _AT_ONCE):
        some = fresh[first : first + _AT_ONCE]
        _known.update(zip(some, _by_any(some), strict=True))
    return {symbol: _known.get(symbol, symbol) for symbol in wanted}


def _by_any(symbols: Sequence[str]) -> list[str]:
    """The names printed by the first demangler that changes at least one symbol."""
    for command in _commands():
        lines = run_process([*command, *symbols], timeout_s=_TIMEOUT_S).out.splitlines()
        if len(lines) == len(symbols) and lines != list(symbols):
            return lines
    return list(symbols)


def _commands() -> Iterable[list[str | Path]]:
    for tool in _TOOLS:
        if path := shutil.which(tool):
            yield [path]
    yield [sys.executable, "-I", "-c", _BY_LIBRARY]
