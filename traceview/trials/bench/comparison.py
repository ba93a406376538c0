"""Check every version of an operation against its reference, then time those that are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import product
from typing import Any, Literal

from traceview.base.records import record
from traceview.traces.facts.work.from_ranges import declaration
from traceview.trials.bench import growth, measurement, plan
from traceview.trials.bench.case import Case, compare, releasing_memory, user_code
from traceview.trials.bench.clock import Declared
from traceview.trials.bench.operation import Operation, Version, broke_cuda, error_line
from traceview.trials.bench.plan import BenchRequest, Machine, Peaks
from traceview.trials.bench.widths import Key, Width, widths_of

Status = Literal["timed", "right", "wrong", "failed", "skipped", "unsupported"]
_FEWEST_TO_FIT, _FEWEST_IN_SWEEP = 4, 3
_COMPILED = ("timed", "right", "wrong", "skipped")


@record
class VersionResult:
    """One version at one size and data type.

    `status`: `timed`, and right; `right` but not timed, for the reason in `why`; `wrong`, and not
    timed; `failed` with an error; `skipped`, as it cannot run on this machine; `unsupported`, as it
    does not take such inputs.
    `error` is the largest difference from the float64 reference ÷ the reference's largest
    magnitude, at most `tolerance` if it is right. `checked_size` differs from `size` only if the
    reference does not fit in memory at `size`. `value` is that of the swept parameter; None if the
    size is swept, or nothing.
    """

    size: int
    dtype: str
    version: str
    status: Status
    why: str | None = None
    bytes_moved: int | None = None
    flop: int | None = None
    error: float | None = None
    tolerance: float | None = None
    checked_size: int | None = None
    timing: measurement.Timing | None = None
    peak_pct: float | None = None
    bound: str | None = None
    width: Width | None = None
    value: int | None = None

    @property
    def median_ns(self) -> float | None:
        """Time per call."""
        return self.timing.median_ns if self.timing else None

    @property
    def bytes_per_s(self) -> float | None:
        """Minimum traffic ÷ time."""
        return self._rate(self.bytes_moved)

    @property
    def flop_per_s(self) -> float | None:
        """FLOP ÷ time."""
        return self._rate(self.flop)

    def _rate(self, amount: int | None) -> float | None:
        if amount is None or not self.median_ns:
            return None
        return amount / self.median_ns * 1e9


@record
class BenchReport:
    """The versions of an operation at all sizes and data types, on one machine.

    `over` is what was swept: the size, or a parameter of the operation. `fits` has the growth of
    time with `over` by (data type, version), from three values of a sweep or four sizes on.
    """

    operation: Operation
    machine: Machine
    peaks: Peaks
    rows: tuple[VersionResult, ...]
    notes: tuple[str, ...] = ()
    fits: Mapping[tuple[str, str], growth.Fit] = field(default_factory=dict)
    over: str = growth.SIZE

    @property
    def bad(self) -> tuple[VersionResult, ...]:
        """The results of versions that are wrong or failed."""
        return tuple(row for row in self.rows if row.status in ("wrong", "failed"))

    def speedup(self, row: VersionResult) -> float | None:
        """Speed relative to the first timed version at that size and data type."""
        point = row.size, row.dtype, row.value
        timed = (r for r in self.rows if r.timing and (r.size, r.dtype, r.value) == point)
        first = next(timed, None)
        if first is None or not first.median_ns or not row.median_ns:
            return None
        return first.median_ns / row.median_ns

    def inputs(self, row: VersionResult) -> tuple[Any, ...]:
        """The inputs of a result, made again."""
        import torch

        operation = _at_value(self.operation, self.over, row.value)
        return operation.inputs(row.size, getattr(torch, row.dtype), self.machine.device)

    @property
    def unit(self) -> str:
        """The singular of what is swept, such as element or step."""
        return self.operation.unit if self.over == growth.SIZE else growth.one_of(self.over)


def _at_value(operation: Operation, over: str, value: int | None) -> Operation:
    return operation if value is None else operation.at(**{over: value})


def measure(
    operation: Operation,
    request: BenchRequest,
    *,
    path: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> BenchReport:
    """Check and time versions of an operation.

    Defaults: the operation's sizes (without a GPU its small ones), its first data type, all
    versions. A sweep over a parameter runs at one size, by default the middle one. `path` is the
    operation's file, from which its kernels are compiled to read their load widths. `note` receives
    progress messages. Raises InputError for a version, data type, size or parameter that the
    operation does not have.
    """
    machine = plan.this_machine()
    resolved, over, values = plan.resolve_request(operation, request, machine)
    peaks = plan.peaks_of(machine, resolved.peaks)
    rows: list[VersionResult] = []
    for dtype, size, value in product(resolved.dtypes, resolved.sizes, values):
        if _broken_cuda_note(rows):
            break
        varied = _at_value(operation, over, value)
        results = _measure_point(varied, resolved, machine, peaks, size, dtype, note)
        rows += [replace(row, value=value) for row in results]
    if request.widths and path:
        note(f"Compiling the kernels of {operation.name}")
        arch = resolved.arch or machine.arch or "sm_90"
        rows = _with_widths(operation, path, rows, arch, over)
    notes = _broken_cuda_note(rows)
    if machine.gpu is None:
        notes = (
            "no GPU: Triton kernels are checked in the interpreter but not timed, CUDA C++ is "
            "skipped, and all times are CPU times",
            *notes,
        )
    elif peaks.memory_bytes_per_s is None:
        unknown = f"the peaks of {machine.gpu} are not known; pass --peak bandwidth=BYTES_PER_S"
        notes = (unknown, *notes)
    fits = _fits(rows, _FEWEST_IN_SWEEP if request.sweep else _FEWEST_TO_FIT)
    return BenchReport(operation, machine, peaks, tuple(rows), notes, fits, over)


def _broken_cuda_note(rows: Sequence[VersionResult]) -> tuple[str, ...]:
    """A note if a kernel's error left CUDA unusable in this process; otherwise empty."""
    for row in rows:
        if row.status == "failed" and broke_cuda(row.why or ""):
            return (
                f"{row.version} broke CUDA in this process, so nothing was run after it; exclude "
                "it, or debug it with compute-sanitizer",
            )
    return ()


def _measure_point(
    operation: Operation,
    request: BenchRequest,
    machine: Machine,
    peaks: Peaks,
    size: int,
    dtype: str,
    note: Callable[[str], None],
) -> list[VersionResult]:
    """All versions at one size and data type."""
    rows: list[VersionResult] = []
    with releasing_memory(machine.device):
        case = Case.prepare(operation, size, dtype, machine.device)
        for name in request.versions:
            if _broken_cuda_note(rows):
                break
            note(f"{operation.name} {name}, size {size:,}, {dtype}")
            rows.append(_check(operation, operation.version(name), case, machine))
        if _broken_cuda_note(rows):
            return rows
        note(f"Timing {operation.name}, size {size:,}, {dtype}")
        return _with_times(operation, rows, case, request, peaks)


def _check(operation: Operation, version: Version, case: Case, machine: Machine) -> VersionResult:
    """The result of the correctness check, without a time."""
    row = VersionResult(
        case.size,
        case.dtype,
        version.name,
        "skipped",
        bytes_moved=case.bytes_moved,
        flop=case.flop,
        tolerance=operation.tolerances[case.dtype],
        checked_size=case.checked.size if case.checked else None,
    )
    with user_code(operation, f"supports of {version.name}"):
        if version.supports and not version.supports(*case.inputs):
            return replace(row, status="unsupported", why="does not take these inputs")
    obstacle = _obstacle(version, machine)
    if obstacle:
        return replace(row, why=obstacle)
    if case.checked is None:
        return replace(row, status="failed", why=case.unchecked)
    try:
        case.checked.poison_free_memory()
        results = version.run(*case.checked.inputs)
        check = compare(results, case.checked.expected, row.tolerance or 0)
        is_modified = case.checked.is_modified()
    except Exception as error:
        # A compiler that this machine lacks is not the version's fault. Inductor's errors are
        # recognized by name: importing torch._inductor would take seconds.
        names = {type(raised).__name__ for raised in (error, error.__cause__)}
        missing = names & {"ToolNotFoundError", "InvalidCxxCompiler"}
        return replace(row, status="skipped" if missing else "failed", why=error_line(error))
    if is_modified:
        case.checked.restore()
        return replace(row, status="wrong", why="modifies its inputs", error=check.error)
    if check.wrong:
        return replace(row, status="wrong", why=check.wrong, error=check.error)
    interpreted = version.needs == "triton" and machine.gpu is None
    why = "timings in the interpreter are meaningless" if interpreted else None
    return replace(row, status="right", why=why, error=check.error)


def _obstacle(version: Version, machine: Machine) -> str | None:
    """Why a version cannot run on this machine; None if it can."""
    if machine.gpu is None and version.needs == "cuda":
        return "needs a GPU"
    if machine.gpu is None and version.needs == "triton" and not machine.interpreter:
        return "needs a GPU, or TRITON_INTERPRET=1 set before Triton is imported"
    if machine.gpu and version.needs == "triton" and machine.interpreter:
        return "TRITON_INTERPRET=1 is set: unset it to run on the GPU"
    return None


def _with_times(
    operation: Operation,
    rows: Sequence[VersionResult],
    case: Case,
    request: BenchRequest,
    peaks: Peaks,
) -> list[VersionResult]:
    """The results, with times for the versions that are right, measured in turns."""
    kind = plan.flop_kind(case.dtype, operation.tensor_cores)
    names = [row.version for row in rows if row.status == "right" and row.why is None]
    if not names:
        return list(rows)

    def declared(name: str) -> Declared:
        def text(calls: int) -> str:
            moved, flop = case.bytes_moved * calls, case.flop * calls
            return declaration(f"{operation.name} {name}", bytes=moved, flop=flop, kind=kind)

        return text

    times: Sequence[measurement.Timing | Exception | None]
    try:
        times = measurement.benchmark_in_turns(
            [partial(operation.version(name).run, *case.inputs) for name in names],
            request.warmup,
            request.trials,
            cold=request.cold,
            declared=[declared(name) for name in names],
            is_fatal=lambda error: broke_cuda(error_line(error)),
        )
    except Exception as error:
        # The clock's own buffer may not fit beside the inputs.
        times = [error] * len(names)
    outcomes = dict(zip(names, times, strict=True))
    errors = {name: error_line(e) for name, e in outcomes.items() if isinstance(e, Exception)}
    breaking = next((name for name, line in errors.items() if broke_cuda(line)), None)
    results = []
    for row in rows:
        timing = outcomes.get(row.version)
        if row.version in errors:
            row = replace(row, status="failed", why=errors[row.version])
        elif isinstance(timing, measurement.Timing):
            peak_pct, bound = peaks.peak_pct(timing.median_ns, case.bytes_moved, case.flop, kind)
            row = replace(row, status="timed", timing=timing, peak_pct=peak_pct, bound=bound)
        elif row.version in outcomes:
            row = replace(row, why=f"{breaking} broke CUDA before it was timed")
        results.append(row)
    return results


def _with_widths(
    operation: Operation, path: str, rows: list[VersionResult], arch: str, over: str
) -> list[VersionResult]:
    widths: dict[tuple[int | None, Key], Width] = {}
    for value in dict.fromkeys(row.value for row in rows):
        compiled = [row for row in rows if row.value == value and row.status in _COMPILED]
        keys = [(row.size, row.dtype, row.version) for row in compiled]
        parameters = {} if value is None else {over: value}
        of_value = widths_of(operation, path, keys, arch, parameters)
        widths |= {(value, key): width for key, width in of_value.items()}
    return [
        replace(row, width=widths.get((row.value, (row.size, row.dtype, row.version))))
        for row in rows
    ]


def _fits(rows: Sequence[VersionResult], fewest: int) -> Mapping[tuple[str, str], growth.Fit]:
    """The growth of time over the size, or the swept value, by data type and version."""
    series: dict[tuple[str, str], list[tuple[float, measurement.Timing]]] = {}
    for row in rows:
        if row.timing:
            point = (row.size if row.value is None else row.value, row.timing)
            series.setdefault((row.dtype, row.version), []).append(point)
    return {
        key: growth.fit_timings(points)
        for key, points in series.items()
        if len({position for position, _ in points}) >= fewest
    }
