"""Benchmarks of one operation in several versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.trials.bench import BenchReport
    from traceview.trials.bench.history import BenchDifference
    from traceview.trials.bench.operation import Operation


def benchmark(
    operation: str | Path | Operation,
    *,
    sizes: int | Sequence[int] = (),
    dtypes: str | Sequence[str] = (),
    versions: str | Sequence[str] = (),
    sweep: str | None = None,
    warmup: int = 3,
    trials: int = 30,
    cold: bool = True,
    widths: bool = True,
    arch: str | None = None,
    peaks: str | Mapping[str, float] | Sequence[str] = (),
    path: str | Path | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> BenchReport:
    """Check every version of an operation against its reference, and time those that are right.

    Arguments:
        operation: an Operation, or a file that defines OPERATION, which is run.
        sizes: by default the operation's own.
        dtypes: by default the operation's first data type.
        versions: by default all.
        sweep: vary the size or a parameter, such as "batch=1,2,4", and fit the growth of time.
        warmup: untimed calls of each version.
        trials: measurements of each version.
        cold: empty the L2 cache before each call.
        widths: compile the kernels to read their load widths.
        arch: architecture to compile for; by default that of this GPU.
        peaks: peak rates that replace those of the GPU, such as "bandwidth=4.8e12".
        path: the file of an Operation, which `widths` needs.
        note: gets progress messages.

    Versions that are wrong or fail are in the report's `bad`. Raises InputError if the file is at
    fault, or if the operation has no such version, data type, size or parameter.
    """
    from traceview.trials.bench import BenchRequest, load_operation, measure
    from traceview.trials.bench.operation import Operation as LoadedOperation

    if not isinstance(operation, LoadedOperation):
        path, operation = operation, load_operation(operation)
    request = BenchRequest(
        sizes=(sizes,) if isinstance(sizes, int) else sizes,
        dtypes=(dtypes,) if isinstance(dtypes, str) else dtypes,
        versions=(versions,) if isinstance(versions, str) else versions,
        warmup=warmup,
        trials=trials,
        cold=cold,
        widths=widths,
        arch=arch,
        peaks=peaks,
        sweep=sweep,
    )
    return measure(operation, request, path=str(path) if path else None, note=note)


def compare_benchmarks(
    before: str | Path | BenchReport | Sequence[str | Path | BenchReport],
    after: str | Path | BenchReport | Sequence[str | Path | BenchReport],
    *,
    force: bool = False,
) -> BenchDifference:
    """Compare runs of `benchmark`, or files that `traceview bench --json` wrote, per version.

    Runs of one operation differ more than the trials of one run: differences are certain only from
    four runs per side on, each in a process of its own. Raises ComparisonRefusedError if the sides
    are of different operations, or of different GPUs unless `force`, and InputError for any other
    file.
    """
    from traceview.trials.bench.history import bench_difference, benches_of

    return bench_difference(benches_of(before), benches_of(after), force)
