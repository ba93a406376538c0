"""All versions of an operation side by side: checked first, then timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from traceview.bench.case import Case, released, users
from traceview.bench.correctness import compare
from traceview.bench.loading import broke_cuda, in_words
from traceview.bench.machine import Machine, Peaks, flop_kind, peaks_of, this_machine
from traceview.bench.operation import Operation, Version
from traceview.bench.plan import Asked, planned
from traceview.bench.timing.growth import Fit, fitted
from traceview.bench.timing.measurement import Timing, benchmark
from traceview.bench.timing.sweep import SIZE, one_of
from traceview.bench.widths import Key, Width, widths_of
from traceview.facts.work.declarations import declaration

Status = Literal["timed", "right", "wrong", "failed", "skipped", "unsupported"]
_FEWEST_TO_FIT, _FEWEST_ASKED_FOR = 4, 3
_COMPILED = ("timed", "right", "wrong", "skipped")


@dataclass(frozen=True)
class Row:
    """One version at one size and data type.

    `status`: `timed` after it was found right; `right` and, for the reason in `why`, not timed;
    `wrong` and therefore not timed; `failed` with an error; `skipped`, as it cannot run here;
    `unsupported`, as it does not take such inputs anywhere.
    `error` is the largest difference from the float64 reference as a share of that one's largest
    magnitude, of which `tolerance` is allowed. `checked_size` is the size at which it was
    checked, another one only where the reference does not fit into memory. `value` is that of the
    parameter that is swept, None where that is the size or nothing.
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
    timing: Timing | None = None
    peak_pct: float | None = None
    bound: str | None = None
    width: Width | None = None
    value: int | None = None

    @property
    def median_ns(self) -> float | None:
        """Time of a call."""
        return self.timing.median_ns if self.timing else None

    @property
    def bytes_per_s(self) -> float | None:
        """The least traffic ÷ time."""
        return self._rate(self.bytes_moved)

    @property
    def flop_per_s(self) -> float | None:
        """The arithmetic ÷ time."""
        return self._rate(self.flop)

    def _rate(self, amount: int | None) -> float | None:
        if amount is None or not self.median_ns:
            return None
        return amount / self.median_ns * 1e9


@dataclass(frozen=True)
class BenchReport:
    """An operation's versions at all sizes and types, on one machine.

    `over` is what was swept: the size, or a parameter of the operation.
    """

    operation: Operation
    machine: Machine
    peaks: Peaks
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    fits: Mapping[tuple[str, str], Fit] = field(default_factory=dict)
    """How the time grows with `over`, by (dtype, version); not asked for, from four on."""
    over: str = SIZE

    @property
    def bad(self) -> tuple[Row, ...]:
        """The rows of versions that are wrong or failed."""
        return tuple(row for row in self.rows if row.status in ("wrong", "failed"))

    def speedup(self, row: Row) -> float | None:
        """How many times as fast as the first version that was timed at that size and type."""
        first = next((r for r in self.rows if r.timing and _place(r) == _place(row)), None)
        if first is None or not first.median_ns or not row.median_ns:
            return None
        return first.median_ns / row.median_ns

    def inputs(self, row: Row) -> tuple[Any, ...]:
        """The inputs of a row, made anew."""
        import torch

        made = _at_value(self.operation, self.over, row.value)
        return made.inputs(row.size, getattr(torch, row.dtype), self.machine.device)

    @property
    def unit(self) -> str:
        """What one more of what is swept is."""
        return self.operation.unit if self.over == SIZE else one_of(self.over)


def _place(row: Row) -> tuple[int, str, int | None]:
    return row.size, row.dtype, row.value


def _at_value(operation: Operation, over: str, value: int | None) -> Operation:
    return operation if value is None else operation.at(**{over: value})


def measure(
    operation: Operation,
    asked: Asked,
    *,
    path: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> BenchReport:
    """Check and time versions of an operation.

    Without `sizes` those of the operation are taken, its small ones where there is no GPU; without
    `dtypes` its first; a sweep over anything but the size is at one size, by itself the middle one.
    `path` is the file of the operation, from which its kernels are compiled to see how wide they
    load. `note` gets what is being done. Raises InputError for a version, type, size or parameter
    that the operation does not have.
    """
    machine = this_machine()
    plan, over, values = planned(operation, asked, machine)
    peaks = peaks_of(machine, plan.peaks)
    rows: list[Row] = []
    for dtype, size, value in product(plan.dtypes, plan.sizes, values):
        if _broken(rows):
            break
        varied = _at_value(operation, over, value)
        found = _at(varied, plan, machine, peaks, size, dtype, note)
        rows += [replace(row, value=value) for row in found]
    if asked.widths and path:
        note(f"Compiling the kernels of {operation.name}")
        arch = plan.arch or machine.arch or "sm_90"
        rows = _with_widths(operation, path, rows, arch, over)
    notes = (*_notes(machine, peaks), *_broken(rows))
    fewest = _FEWEST_ASKED_FOR if asked.sweep else _FEWEST_TO_FIT
    fits = _fits(rows, fewest)
    return BenchReport(operation, machine, peaks, tuple(rows), notes, fits, over)


def _notes(machine: Machine, peaks: Peaks) -> Iterator[str]:
    if machine.gpu is None:
        yield (
            "no GPU here: Triton's kernels are checked in its interpreter and not timed, CUDA C++ "
            "is skipped, and times are those of the CPU"
        )
    elif peaks.memory_bytes_per_s is None:
        yield f"no data sheet of {machine.gpu} is known: pass --peak bandwidth=BYTES_PER_S"


def _broken(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note if a kernel made an error after which CUDA does nothing more in this process."""
    for row in rows:
        if row.status == "failed" and broke_cuda(row.why or ""):
            said = f"{row.version} broke CUDA in this process, so nothing was run after it"
            return (f"{said}: leave it out, or look at it with compute-sanitizer",)
    return ()


def _at(
    operation: Operation,
    asked: Asked,
    machine: Machine,
    peaks: Peaks,
    size: int,
    dtype: str,
    note: Callable[[str], None],
) -> list[Row]:
    """All versions at one size and type."""
    rows: list[Row] = []
    with released(machine.device):
        case = Case.made(operation, size, dtype, machine.device)
        for name in asked.versions:
            if _broken(rows):
                break
            note(f"{operation.name} {name}, size {size:,}, {dtype}")
            row = _checked(operation, operation.version(name), case, machine)
            rows.append(_timed(operation, row, case, asked, peaks) if _is_right(row) else row)
    return rows


def _is_right(row: Row) -> bool:
    return row.status == "right" and row.why is None


def _checked(operation: Operation, version: Version, case: Case, machine: Machine) -> Row:
    """The row as far as correctness goes."""
    row = Row(
        case.size,
        case.dtype,
        version.name,
        "skipped",
        bytes_moved=case.bytes_moved,
        flop=case.flop,
        tolerance=operation.tolerances[case.dtype],
        checked_size=case.checked.size if case.checked else None,
    )
    with users(operation, f"supports of {version.name}"):
        if version.supports and not version.supports(*case.inputs):
            return replace(row, status="unsupported", why="does not take such inputs")
    unable = _cannot_run(version, machine)
    if unable:
        return replace(row, why=unable)
    if case.checked is None:
        return replace(row, status="failed", why=case.unchecked)
    try:
        case.checked.spoil_free_memory()
        found = compare(version.run(*case.checked.inputs), case.checked.wanted, row.tolerance or 0)
        changed = case.checked.is_changed()
    except Exception as error:
        missing = _is_missing_tool(error)
        return replace(row, status="skipped" if missing else "failed", why=in_words(error))
    if changed:
        case.checked.restore()
        return replace(row, status="wrong", why="changes its inputs", error=found.error)
    if found.wrong:
        return replace(row, status="wrong", why=found.wrong, error=found.error)
    interpreted = version.needs == "triton" and machine.gpu is None
    why = "the interpreter says nothing of speed" if interpreted else None
    return replace(row, status="right", why=why, error=found.error)


def _cannot_run(version: Version, machine: Machine) -> str | None:
    if machine.gpu is None and version.needs == "cuda":
        return "needs a GPU"
    if machine.gpu is None and version.needs == "triton" and not machine.interpreter:
        return "needs a GPU, or TRITON_INTERPRET=1 set before Triton is imported"
    if machine.gpu and version.needs == "triton" and machine.interpreter:
        return "TRITON_INTERPRET=1 is set: unset it to run on the GPU"
    return None


def _is_missing_tool(error: BaseException) -> bool:
    """Whether it failed for want of a compiler on this machine, which is no fault of the version.

    Inductor's errors are told by name: importing torch._inductor would take seconds.
    """
    names = {type(each).__name__ for each in (error, error.__cause__) if each is not None}
    return bool(names & {"ToolNotFoundError", "InvalidCxxCompiler"})


def _timed(operation: Operation, row: Row, case: Case, asked: Asked, peaks: Peaks) -> Row:
    version = operation.version(row.version)
    kind = flop_kind(row.dtype, operation.tensor_cores)

    def declared(calls: int) -> str:
        name = f"{operation.name} {row.version}"
        moved, flop = case.bytes_moved * calls, case.flop * calls
        return declaration(name, bytes=moved, flop=flop, kind=kind)

    try:
        timing = benchmark(
            lambda: version.run(*case.inputs),
            asked.warmup,
            asked.trials,
            cold=asked.cold,
            declared=declared,
        )
    except Exception as error:
        return replace(row, status="failed", why=in_words(error))
    share, bound = peaks.share_pct(timing.median_ns, case.bytes_moved, case.flop, kind)
    return replace(row, status="timed", timing=timing, peak_pct=share, bound=bound)


def _with_widths(
    operation: Operation, path: str, rows: list[Row], arch: str, over: str
) -> list[Row]:
    found: dict[int | None, Mapping[Key, Width]] = {}
    for value in dict.fromkeys(row.value for row in rows):
        asked = [_key(row) for row in rows if row.value == value and row.status in _COMPILED]
        given = {} if value is None else {over: value}
        found[value] = widths_of(operation, path, asked, arch, given)
    return [replace(row, width=found[row.value].get(_key(row))) for row in rows]


def _key(row: Row) -> Key:
    return row.size, row.dtype, row.version


def _fits(rows: Sequence[Row], fewest: int) -> Mapping[tuple[str, str], Fit]:
    series: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.timing:
            series.setdefault((row.dtype, row.version), []).append(row)
    return {
        key: fitted([(_along(row), row.timing) for row in timed if row.timing])
        for key, timed in series.items()
        if len(set(map(_along, timed))) >= fewest
    }


def _along(row: Row) -> int:
    """Where on the axis of the sweep it is."""
    return row.size if row.value is None else row.value
