"""Load widths of an operation's kernels, from their PTX. Needs no GPU."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from traceview.base.errors import TraceviewError
from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.kernel_report import KernelReport
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.inspect.targets import kernels_of
from traceview.kernels.ptx.model import Access, Compiled
from traceview.trials.bench.operation import Operation, Version

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
    by_compiled: dict[tuple[int, str], dict[str, list[Key]]] = {}
    for key in keys:
        size, dtype, name = key
        version = operation.version(name)
        if version.kernels or version.cuda_source:
            group = by_compiled.setdefault((_compiled_size(operation, size), dtype), {})
            group.setdefault(name, []).append(key)

    def of_group(size: int, dtype: str, versions: Mapping[str, list[Key]]) -> dict[Key, Width]:
        widths: dict[Key, Width] = {}
        for name, same in versions.items():
            script = (str(Path(path).resolve()), str(size), dtype, name, *words)
            try:
                width = _width(operation.version(name), script, arch, size)
            except TraceviewError as error:
                width = Width(None, size=size, why=error.what)
            widths |= dict.fromkeys(same, width)
        return widths

    with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        jobs = [pool.submit(of_group, *group, names) for group, names in by_compiled.items()]
        return {key: width for job in jobs for key, width in job.result().items()}


def _compiled_size(operation: Operation, size: int) -> int:
    """A size that compiles to the same kernels but whose inputs are quick to make.

    Triton specializes on divisibility by 16. A large size is replaced by the largest smaller size
    of the operation with the same divisibility.
    """
    if size <= _LARGEST_SIZE:
        return size
    sizes = (s for s in (*operation.sizes, *operation.small_sizes) if s <= _LARGEST_SIZE)
    return max((s for s in sizes if (s % 16 == 0) == (size % 16 == 0)), default=size)


@lru_cache(maxsize=32)
def _of_cuda(source: str, arch: str) -> list[Compiled]:
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        file = Path(folder, "kernel.cu")
        file.write_text(source, "utf-8")
        return kernels_of(str(file), CompileOptions(arch=arch))


def _width(version: Version, script: tuple[str, ...], arch: str, size: int) -> Width:
    if version.cuda_source:
        compiled = _of_cuda(version.cuda_source, arch)
    else:
        options = CompileOptions(
            arch=arch, arguments=script, timeout_s=_TIMEOUT_S, first_config=True
        )
        compiled = kernels_of(str(__file__), options)
    reports = [inspect(kernel, sass=False) for kernel in compiled]
    loading = [report for report in reports if _loads(report)]
    if not loading:
        # A copy that takes its size from a descriptor: no thread moves it.
        bulk = any(
            access.kind == "async-copy" and access.width_bits is None
            for report in reports
            for access in report.accesses
        )
        why = "it copies in bulk (TMA)" if bulk else "it does not load global memory"
        return Width(None, size=size, why=why)

    def bits_in_a_pass(report: KernelReport) -> int:
        """Bits loaded by the whole grid: the reader of the data outweighs a final reduction."""
        threads = math.prod(report.compiled.grid or (1,)) * (report.compiled.num_warps or 1)
        bits = sum((access.width_bits or 0) * access.count for access in _loads(report))
        return threads * WARP_THREADS * bits

    most = max(loading, key=bits_in_a_pass)
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


# A script for `traceview ptx` that calls versions of one operation, so that their kernels
# compile.
#
# Its arguments are the operation's file, a size, a data type, the versions to call, and values of
# the operation's parameters, such as batch=4. It runs headless: a launch compiles and does
# nothing else.


def main(path: str, size: str, dtype: str, *words: str) -> None:
    """Make the inputs on the fake GPU and call each version once."""
    import torch

    from traceview.trials.bench.operation import load_operation

    parameters = dict(word.split("=") for word in words if "=" in word)
    operation = load_operation(path).at(**{name: int(n) for name, n in parameters.items()})
    inputs = operation.inputs(int(size), getattr(torch, dtype), "cuda")
    for name in words:
        if "=" not in name:
            operation.version(name).run(*inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
