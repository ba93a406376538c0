"""Load widths of an operation's kernels, from their PTX. Needs no GPU."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from traceview.bench.operation import Operation, Version
from traceview.errors import TraceviewError
from traceview.headless.compile_options import CompileOptions
from traceview.inspect.kernel import inspect
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.targets.target import kernels_of
from traceview.ptx.model import Access, Compiled
from traceview.records import record
from traceview.vocabulary.amounts import WARP_THREADS

Key = tuple[int, str, str]
"""Size, data type, version."""

_LARGEST_SIZE = 1 << 24
_TIMEOUT_S = 120.0


@record
class Width:
    """Bits per thread per load of global memory; None for the reason in `why`.

    Of several kernels, the one that loads the most in one pass counts; of several widths in it, the
    one that moves the most bits. `size` is the size the kernels were compiled for.
    """

    bits: int | None
    kernel: str | None = None
    size: int | None = None
    why: str | None = None


def widths_of(
    operation: Operation,
    path: str,
    keys: Iterable[Key],
    arch: str,
    parameters: Mapping[str, int] | None = None,
) -> Mapping[Key, Width]:
    """The load width for each key whose version names its kernels.

    `parameters` are values of the operation's parameters besides the size.
    """
    words = tuple(f"{name}={value}" for name, value in (parameters or {}).items())
    compiled = [key for key in keys if _has_kernels(operation.version(key[2]))]
    groups: dict[tuple[int, str], list[str]] = {}
    for size, dtype, name in compiled:
        groups.setdefault((_compiled_size(operation, size), dtype), []).append(name)
    with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        jobs = {
            group: pool.submit(
                _group_widths, operation, path, group, list(dict.fromkeys(names)), arch, words
            )
            for group, names in groups.items()
        }
        widths = {group: job.result() for group, job in jobs.items()}
    return {key: widths[_compiled_size(operation, key[0]), key[1]][key[2]] for key in compiled}


def _has_kernels(version: Version) -> bool:
    return bool(version.kernels or version.cuda_source)


def _compiled_size(operation: Operation, size: int) -> int:
    """A size that compiles to the same kernels but whose inputs are quick to make.

    Triton specializes on divisibility by 16. A large size is replaced by the largest smaller size
    of the operation with the same divisibility.
    """
    if size <= _LARGEST_SIZE:
        return size
    known = (*operation.sizes, *operation.small_sizes)
    similar = [
        each for each in known if each <= _LARGEST_SIZE and (each % 16 == 0) == (size % 16 == 0)
    ]
    return max(similar, default=size)


def _group_widths(
    operation: Operation,
    path: str,
    group: tuple[int, str],
    names: Sequence[str],
    arch: str,
    parameters: tuple[str, ...],
) -> dict[str, Width]:
    size, dtype = group
    widths = {}
    for name in names:
        version = operation.version(name)
        try:
            script = (str(Path(path).resolve()), str(size), dtype, name, *parameters)
            reports = _reports(version, script, arch)
            widths[name] = _width(reports, size)
        except TraceviewError as error:
            widths[name] = Width(None, size=size, why=error.what)
    return widths


def _reports(version: Version, script: tuple[str, ...], arch: str) -> list[KernelReport]:
    compiled = (
        _of_cuda(version.cuda_source, arch) if version.cuda_source else _of_triton(script, arch)
    )
    return [inspect(each, sass=False) for each in compiled]


def _of_triton(arguments: tuple[str, ...], arch: str) -> list[Compiled]:
    options = CompileOptions(
        arch=arch, arguments=arguments, timeout_s=_TIMEOUT_S, first_config=True
    )
    return kernels_of(str(__file__), options)


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
        why = "it copies in bulk (TMA)" if bulk else "it does not load global memory"
        return Width(None, size=size, why=why)
    most = max(loading, key=_bits_in_a_pass)
    moved: Counter[int] = Counter()
    for access in _loads(most):
        moved[access.width_bits or 0] += (access.width_bits or 0) * access.count
    return Width(max(moved, key=lambda bits: (moved[bits], bits)), most.name, size)


def _loads(report: KernelReport) -> list[Access]:
    """The global loads in the innermost loop that has any."""
    listed = [
        access
        for access in report.accesses
        if access.space == "global" and access.kind in ("load", "async-copy") and access.width_bits
    ]
    deepest = max((access.loop_depth for access in listed), default=0)
    return [access for access in listed if access.loop_depth == deepest]


def _copies_in_bulk(report: KernelReport) -> bool:
    """Whether a copy takes its size from a descriptor, so that no thread moves it."""
    return any(a.kind == "async-copy" and a.width_bits is None for a in report.accesses)


def _bits_in_a_pass(report: KernelReport) -> int:
    """Bits loaded by the whole grid: the kernel that reads the data outweighs a final reduction."""
    grid = report.compiled.grid or (1, 1, 1)
    threads = grid[0] * grid[1] * grid[2] * WARP_THREADS * (report.compiled.num_warps or 1)
    return threads * sum((access.width_bits or 0) * access.count for access in _loads(report))


# A script for `traceview ptx` that calls versions of one operation, so that their kernels
# compile.
#
# Its arguments are the operation's file, a size, a data type, the versions to call, and values of
# the operation's parameters, such as batch=4. It runs headless: a launch compiles and does
# nothing else.


def main(path: str, size: str, dtype: str, *words: str) -> None:
    """Make the inputs on the fake GPU and call each version once."""
    import torch

    from traceview.bench.loading import load_operation

    parameters = dict(word.split("=") for word in words if "=" in word)
    operation = load_operation(path).at(**{name: int(n) for name, n in parameters.items()})
    inputs = operation.inputs(int(size), getattr(torch, dtype), "cuda")
    for name in words:
        if "=" not in name:
            operation.version(name).run(*inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
