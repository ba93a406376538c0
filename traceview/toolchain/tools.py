"""NVIDIA's compilers and disassemblers: find and run them. None of them needs a GPU."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from traceview.errors import ToolNotFoundError, TraceviewError
from traceview.toolchain import processes

TIMEOUT_S = 300.0
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
    release = _RELEASE.search(processes.run_process([path, "--version"]).out)
    return (int(release[1]), int(release[2])) if release else None


def run(
    path: Path,
    arguments: Callable[[Path, Path], Sequence[str | Path]],
    source: bytes | None,
    suffix: str = "",
    timeout_s: float = TIMEOUT_S,
) -> processes.ProcessResult:
    """Run a tool on one input file, in a temporary folder, and read the output file.

    `arguments` maps the paths of the input, which ends in `suffix`, and of the output to the
    command-line arguments. With `source` None there is no input file. Raises ToolNotFoundError if
    the tool cannot run and TraceviewError at the time limit.
    """
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        source_path, target = Path(folder, f"input{suffix}"), Path(folder, "output")
        if source is not None:
            source_path.write_bytes(source)
        command = [path, *arguments(source_path, target)]
        result = processes.run_process(command, timeout_s=timeout_s, folder=Path(folder))
        if result.timed_out:
            raise TraceviewError(f"{path.name} did not end within {timeout_s:g} s")
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
    paths: Sequence[Path], attempt: Callable[[Path], processes.ProcessResult], too_old: str
) -> processes.ProcessResult:
    """Try the paths of a tool in turn until one does not fail with a message like `too_old`."""
    result = attempt(paths[0])
    for path in paths[1:]:
        if result.ok or not re.search(too_old, result.err):
            break
        result = attempt(path)
    return result


def _candidates(tool: str, arch: str) -> Iterator[Path]:
    chosen = processes.chosen_by_user(tool)
    if chosen:
        # No other tool may take its place: that would be a surprise.
        yield chosen
        return
    yield from _in_triton(tool, arch)
    yield from processes.on_path(tool)
    yield from (
        toolkit / "bin" / tool for toolkit in processes.newest_first(TOOLKITS.glob("cuda*"))
    )
    for folder in map(Path, sys.path):
        yield from processes.newest_first(folder.glob(f"nvidia/*/bin/{tool}"))


def _in_triton(tool: str, arch: str) -> Iterator[Path]:
    """A tool's paths in Triton's wheel; found without importing Triton, which would load LLVM."""
    spec = importlib.util.find_spec("triton")
    names = [tool]
    if tool == "ptxas":
        is_blackwell = int(re.sub(r"\D", "", arch) or 0) >= 100
        names = ["ptxas-blackwell", tool] if is_blackwell else [tool, "ptxas-blackwell"]
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from (Path(folder, *TRITON_BIN, name) for name in names)


def _not_found(tool: str) -> ToolNotFoundError:
    variable, chosen = processes.variable_of(tool), os.environ.get(processes.variable_of(tool))
    if chosen:
        what = f"${variable} is {chosen}, which is not an executable file"
        return ToolNotFoundError(what, f"correct or unset ${variable}")
    remedy = f"{HOW_TO_INSTALL.get(tool, 'install the CUDA toolkit')}, or set ${variable}"
    return ToolNotFoundError(f"{tool} was not found on this machine", f"{remedy} to its path")
