"""How wide the kernels of an operation load, from their PTX: no GPU is needed to tell."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from traceview.bench import launch_version
from traceview.bench.operation import Operation, Version
from traceview.errors import TraceviewError
from traceview.headless.compile_options import CompileOptions
from traceview.inspect.kernel import inspect
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.targets.target import kernels_of
from traceview.ptx.model import Access, Compiled

Key = tuple[int, str, str]
"""Size, data type, version."""

_LARGEST = 1 << 24
_PATIENCE_S = 120.0
_WARP = 32


@dataclass(frozen=True)
class Width:
    """The bits that a thread moves in one load of global memory; None where `why` says why not.

    Of several kernels, that of the one which loads the most in one pass; of several widths in it,
    the one that moves the most bits. `size` is the one that was compiled for.
    """

    bits: int | None
    kernel: str | None = None
    size: int | None = None
    why: str | None = None


def widths_of(
    operation: Operation,
    path: str,
    asked: Iterable[Key],
    arch: str,
    parameters: Mapping[str, int] | None = None,
) -> Mapping[Key, Width]:
    """The width of each that was asked for, of those versions that tell their kernels.

    `parameters` are values of the operation's, beside the size.
    """
    given = tuple(f"{name}={value}" for name, value in (parameters or {}).items())
    told = [key for key in asked if _tells(operation.version(key[2]))]
    groups: dict[tuple[int, str], list[str]] = {}
    for size, dtype, name in told:
        groups.setdefault((_compiled_size(operation, size), dtype), []).append(name)
    with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        jobs = {
            group: pool.submit(
                _of_group, operation, path, group, list(dict.fromkeys(names)), arch, given
            )
            for group, names in groups.items()
        }
        found = {group: job.result() for group, job in jobs.items()}
    return {key: found[_compiled_size(operation, key[0]), key[1]][key[2]] for key in told}


def _tells(version: Version) -> bool:
    return bool(version.kernels or version.cuda_source)


def _compiled_size(operation: Operation, size: int) -> int:
    """A size for which the same kernels are compiled, and whose inputs take no time to make.

    Triton looks at divisibility by 16: where the size is large, the largest of the operation's
    own that is smaller and no different in that stands for it.
    """
    if size <= _LARGEST:
        return size
    known = (*operation.sizes, *operation.small_sizes)
    alike = [each for each in known if each <= _LARGEST and (each % 16 == 0) == (size % 16 == 0)]
    return max(alike, default=size)


def _of_group(
    operation: Operation,
    path: str,
    group: tuple[int, str],
    names: Sequence[str],
    arch: str,
    given: tuple[str, ...],
) -> dict[str, Width]:
    size, dtype = group
    found = {}
    for name in names:
        version = operation.version(name)
        try:
            script = (str(Path(path).resolve()), str(size), dtype, name, *given)
            reports = _reports(version, script, arch)
            found[name] = _width(reports, size)
        except TraceviewError as error:
            found[name] = Width(None, size=size, why=error.what)
    return found


def _reports(version: Version, script: tuple[str, ...], arch: str) -> list[KernelReport]:
    compiled = (
        _of_cuda(version.cuda_source, arch) if version.cuda_source else _of_triton(script, arch)
    )
    return [inspect(each, sass=False) for each in compiled]


def _of_triton(arguments: tuple[str, ...], arch: str) -> list[Compiled]:
    options = CompileOptions(
        arch=arch, arguments=arguments, timeout_s=_PATIENCE_S, first_config=True
    )
    return kernels_of(str(launch_version.__file__), options)


@lru_cache(maxsize=32)
def _of_cuda(source: str, arch: str) -> list[Compiled]:
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        file = Path(folder, "kernel.cu")
        file.write_text(source, "utf-8")
        return kernels_of(str(file), CompileOptions(arch=arch))


def _width(reports: Sequence[KernelReport], size: int) -> Width:
    loading = [report for report in reports if _loads(report)]
    if not loading:
        bulk = any(_copies_in_bulk(report) for report in reports)
        said = "it copies in bulk (TMA)" if bulk else "it has no load of global memory"
        return Width(None, size=size, why=said)
    most = max(loading, key=_bits_in_a_pass)
    moved: Counter[int] = Counter()
    for access in _loads(most):
        moved[access.width_bits or 0] += (access.width_bits or 0) * access.count
    return Width(max(moved, key=lambda bits: (moved[bits], bits)), most.name, size)


def _loads(report: KernelReport) -> list[Access]:
    """The loads of global memory in the innermost loop that has any."""
    listed = [
        access
        for access in report.accesses
        if access.space == "global" and access.kind in ("load", "async-copy") and access.width_bits
    ]
    deepest = max((access.loop_depth for access in listed), default=0)
    return [access for access in listed if access.loop_depth == deepest]


def _copies_in_bulk(report: KernelReport) -> bool:
    """Whether a copy has its size in a descriptor: no thread moves it."""
    return any(a.kind == "async-copy" and a.width_bits is None for a in report.accesses)


def _bits_in_a_pass(report: KernelReport) -> int:
    """Over the whole grid, which makes the kernel that reads the data outweigh one that sums up."""
    grid = report.compiled.grid or (1, 1, 1)
    threads = grid[0] * grid[1] * grid[2] * _WARP * (report.compiled.num_warps or 1)
    return threads * sum((access.width_bits or 0) * access.count for access in _loads(report))
