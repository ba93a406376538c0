"""Chrome traces of torch.profiler: from the pieces of a file to a Trace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from traceview.base import groups
from traceview.base.errors import TraceFormatError
from traceview.base.stages import stage
from traceview.base.tables import MOST_ROWS, Array, Table, Texts, picked
from traceview.base.units import counted
from traceview.traces.trace import foreign
from traceview.traces.trace.kineto import USE_TRACE, cpu_work, gpu_work
from traceview.traces.trace.kineto.chunks import ChromeTrace, ScannedEvents
from traceview.traces.trace.kineto.collectives import Collectives, collective_tables
from traceview.traces.trace.kineto.columns import integers
from traceview.traces.trace.kineto.events import NO_ARGUMENTS, Events, KinetoEvent
from traceview.traces.trace.kineto.owners import SettledOwners
from traceview.traces.trace.kineto.python_calls import PythonCalls
from traceview.traces.trace.kineto.scanned_rows import ScannedRows, scanned_categories
from traceview.traces.trace.kineto.scanner import ScannedTable
from traceview.traces.trace.kineto.stacks import python_tables
from traceview.traces.trace.model import Trace
from traceview.traces.trace.rank_identity import HOST
from traceview.traces.trace.schema import TABLES, TORCH_PROFILER
from traceview.traces.trace.staged import (
    ImpossibleRows,
    Staged,
    Window,
    numbers_of,
    ordered,
    thrifty_columns,
    warnings_of,
    window,
    without_impossible,
)

_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
    "cuda_driver": "cuda_runtime",
    "hip_runtime": "cuda_runtime",
    "hip_driver": "cuda_runtime",
}
_OTHER_ACCELERATOR = re.compile(r"(mtia|hpu|xpu|npu|glow|privateuse1)_")
"""How kineto's categories begin that hold calls and work of accelerators other than GPUs."""
_TIMES = ("start_ns", "end_ns", "time_ns")
_DISTRIBUTED = ("backend", "rank", "world_size", "nccl_version", "pg_count")
_HOST_NAME = "host_name"
_OPTIONS = ("record_shapes", "with_stack", "profile_memory")


@dataclass
class Gathered:
    """The data of all events of a trace, gathered chunk by chunk."""

    gpu: gpu_work.GpuWork = field(default_factory=gpu_work.GpuWork)
    cpu: cpu_work.CpuWork = field(default_factory=cpu_work.CpuWork)
    collectives: Collectives = field(default_factory=Collectives)
    memory: cpu_work.MemoryEvents = field(default_factory=cpu_work.MemoryEvents)
    python: PythonCalls = field(default_factory=PythonCalls)
    categories: set[str] = field(default_factory=set)
    accelerator: str = ""
    events: int = 0
    scanned: ScannedRows = field(init=False)

    def __post_init__(self) -> None:
        self.scanned = ScannedRows(self.gpu, self.cpu, self.python)

    def add(self, chunk: list[KinetoEvent] | ScannedEvents) -> None:
        if not isinstance(chunk, ScannedEvents):
            self._add(chunk)
            return
        self._count(chunk.scan.events - len(chunk.others))
        self.categories |= scanned_categories(chunk.scan)
        first_call = self.scanned.add(chunk.scan)
        self._add(chunk.others)
        operators = [event for table, _, event in chunk.details if table == ScannedTable.OPERATORS]
        self.collectives.add(operators, self.cpu)
        calls = [detail for detail in chunk.details if detail[0] == ScannedTable.CALLS]
        self.cpu.add_shapes(
            [event.args or NO_ARGUMENTS for _, _, event in calls],
            [first_call + row for _, row, _ in calls],
        )

    def _count(self, events: int) -> None:
        self.events += events
        if self.events > MOST_ROWS:
            raise TraceFormatError(
                f"it has more than {MOST_ROWS:,} events",
                "record fewer steps: see schedule(active=)",
            )

    def _add(self, events: Events) -> None:
        self._count(len(events))
        readers: Mapping[str, Callable[[Events], None]] = {
            "kernel": self.gpu.add_kernels,
            "gpu_memcpy": self.gpu.add_copies,
            "gpu_memset": self.gpu.add_sets,
            "cuda_runtime": self.cpu.add_calls,
            "cpu_op": self._operators,
            "user_annotation": self.cpu.add_annotations,
            "python_function": lambda some: self.python.add(some, self.cpu),
            "cpu_instant_event": lambda some: self.memory.add(some, self.cpu.owners),
            "cuda_sync": self.cpu.add_syncs,
            "overhead": self.cpu.add_overheads,
            "Trace": lambda _: None,
            "M": self._names,
            _OLDER: self._processes,
        }
        for category, some in _by_category(events).items():
            if read := readers.get(category):
                self.categories |= {category} - {_OLDER}
                read(some)
            elif found := _OTHER_ACCELERATOR.match(category):
                self.accelerator = found[1].upper()

    def _operators(self, events: Events) -> None:
        self.cpu.add_operators(events)
        self.collectives.add(events, self.cpu)

    def _names(self, events: Events) -> None:
        for event in events:
            self.cpu.owners.note(event)

    def _processes(self, events: Events) -> None:
        names = {event.pid: event.pid for event in events if isinstance(event.pid, str)}
        self.cpu.owners.process_names.update(names)


def _by_category(events: Events) -> dict[str, list[KinetoEvent]]:
    """Events with a duration by category, metadata as M; flows and marks are left out."""
    result: dict[str, list[KinetoEvent]] = defaultdict(list)
    for event in events:
        if category := _category(event):
            result[category].append(event)
    return result


def _category(event: KinetoEvent) -> str | None:
    """The category of an event, M for metadata; None for a flow or mark."""
    if event.ph == "M":
        return "M"
    timed = event.ph == "X" or event.cat == "cpu_instant_event"
    if not timed or not isinstance(event.cat, str):
        return _OLDER if timed and event.cat is None else None
    return _CATEGORIES.get(event.cat, event.cat)


_OLDER = "no category"
"""Of an event as other programs and older profilers write it."""


def read(pieces: Iterator[bytes], path: str, file: BinaryIO | None = None) -> Trace:
    """Read a trace of torch.profiler; `path` is the name shown to the user.

    `file` is the plain file whose whole content `pieces` are, if it is not compressed.

    Raises TraceFormatError if it is JSON of another kind.
    """
    source, gathered = ChromeTrace(pieces, file), Gathered()
    for chunk in source.chunks():
        stage("Reading the trace")
        gathered.add(chunk)
    if not gathered.categories - {"M"} and not source.truncated:
        raise foreign.of_events(
            gathered.cpu.owners.process_names.values(), source.metadata.keys()
        ) or TraceFormatError(
            "it is a Chrome trace, or other JSON, without any event of torch.profiler", USE_TRACE
        )
    if not gathered.categories:
        raise TraceFormatError("it is truncated before its first event", "copy the file again")
    tables, origin, impossible = _tables(gathered, source.metadata)
    warnings = (*warnings_of(impossible), *_warnings(source, gathered))
    return Trace(
        path=path,
        recorder=TORCH_PROFILER,
        recorder_version=None,
        export_schema_version=None,
        tables={name: tables[name] for name in TABLES if name in tables},
        run=_run(source, origin, gathered.accelerator),
        warnings=warnings,
        impossible=impossible,
    )


def _run(source: ChromeTrace, origin: int, accelerator: str) -> dict[str, str]:
    """The facts of the run in the metadata, with the start of its clock in ns since 1970."""
    metadata = source.metadata
    base = int(integers([metadata.get("baseTimeNanoseconds")], 0)[0])
    run = {"clock_origin_ns": str(base + origin)}
    run |= {"truncated": "yes"} if source.truncated else {}
    distributed = metadata.get("distributedInfo")
    if isinstance(distributed, Mapping):
        run |= {key: str(distributed[key]) for key in _DISTRIBUTED if key in distributed}
        run |= {HOST: str(metadata[_HOST_NAME])} if _HOST_NAME in metadata else {}
    run |= {key: str(int(metadata[key] in (1, True))) for key in _OPTIONS if key in metadata}
    vendor = "AMD" if _on_amd(metadata) else accelerator
    return run | {"gpu_vendor": vendor} if vendor else run


def _tables(
    gathered: Gathered, metadata: Mapping[str, Any]
) -> tuple[dict[str, Table], int, tuple[ImpossibleRows, ...]]:
    """The tables that were recorded, the time that becomes 0, and the rows that are left out.

    That is the time of the first event, of those that are possible.
    """
    gpus = groups.different(
        np.concatenate([parts.distinct("device") for parts in gathered.gpu.parts])
    )
    settled = gathered.cpu.owners.settle(
        _listed(metadata.get("deviceProperties")), gpus, _on_amd(metadata)
    )
    staged = _staged(gathered, settled, metadata)
    device_row = {int(number): row for row, number in enumerate(settled.devices["device_id"])}
    within = window(staged, None)
    origin = min((_first(columns, within) for columns in staged.values()), default=0)
    tables: dict[str, Table] = {}
    impossible: list[ImpossibleRows] = []
    for name, columns in staged.items():
        _shift(columns, origin)
        if "device" in columns:
            columns["device"] = _rows_of_devices(columns["device"], device_row)
        possible, found = without_impossible(
            name, thrifty_columns(ordered(name, columns)), within.since(origin)
        )
        impossible += found
        tables[name] = Table(TABLES[name].columns, possible)
    fixed = ("devices", "processes", "threads")
    tables |= {name: getattr(settled, name) for name in fixed}
    return tables, origin, tuple(impossible)


def _staged(
    gathered: Gathered, settled: SettledOwners, metadata: Mapping[str, Any]
) -> dict[str, Staged]:
    """The columns of every table that was recorded, with GPU numbers and absolute times."""
    seen = gathered.categories
    calls, launches = cpu_work.api_calls(gathered.cpu, settled.thread, settled.process)
    main = int(np.bincount(launches.process, minlength=1).argmax()) if len(launches.process) else 0
    staged: dict[str, Staged] = {}
    if "python_function" in seen:
        # First, because Python calls take the most memory, which is then freed.
        staged |= python_tables(gathered.python, settled.thread, calls)
        for name in ("python_samples", "call_sites"):
            thread = numbers_of(staged[name], "thread")
            staged[name]["process"] = settled.threads["process"][thread]
    if seen & {"kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime"}:
        staged["kernels"] = gpu_work.kernels(gathered.gpu, launches, main)
        staged["copies"] = gpu_work.copies(gathered.gpu, launches, main)
        staged["sets"] = gpu_work.sets(gathered.gpu, launches, main)
        staged["overheads"] = cpu_work.overheads(gathered.cpu, main)
        staged["graph_launches"] = {
            c.name: (Texts.of(()) if c.dtype == "text" else np.zeros(0, c.dtype))
            for c in TABLES["graph_launches"].columns
        }
        if "cuda_runtime" in seen or not _rows(staged["kernels"]):
            staged["api_calls"] = calls
    if seen & {"cpu_op", "user_annotation"}:
        staged["ranges"] = cpu_work.ranges(gathered.cpu, settled.thread, settled.process)
    if "cuda_sync" in seen:
        staged["synchronizations"] = cpu_work.synchronizations(gathered.cpu, launches, main)
    if gathered.memory.seen or metadata.get("profile_memory") in (1, True):
        staged["memory_events"] = cpu_work.memory_events(gathered.memory, settled)
    if gathered.collectives.parts.rows:
        distributed = metadata.get("distributedInfo")
        both = collective_tables(
            gathered.collectives, settled, distributed if isinstance(distributed, Mapping) else {}
        )
        staged["collective_calls"], staged["communicators"] = both
    return staged


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _on_amd(metadata: Mapping[str, Any]) -> bool:
    return any(str(key).startswith(("hip_", "roctracer", "rocprof")) for key in metadata) or any(
        "AMD" in str(one.get("name")) or one.get("warpSize") == 64
        for one in _listed(metadata.get("deviceProperties"))
        if isinstance(one, Mapping)
    )


def _rows(columns: Staged) -> int:
    return len(next(iter(columns.values())))


def _first(columns: Staged, within: Window) -> int:
    """The first possible time of a table; of one without, a time after all others."""
    name = next((column for column in _TIMES if column in columns), None)
    if name is None or not _rows(columns):
        return within.last_ns
    times = numbers_of(columns, name)
    first = int(times.min())
    if within.holds(first):
        return first
    return int(times[times >= within.first_ns].min(initial=within.last_ns))


def _shift(columns: Staged, origin: int) -> None:
    """Count times from the first event, in place."""
    for name in _TIMES:
        values = columns.get(name)
        if values is None or isinstance(values, Texts):
            continue
        if values.flags.writeable:
            values -= origin
        else:
            columns[name] = values - origin


def _rows_of_devices(numbers: Array | Texts, row_of: Mapping[int, int]) -> Array:
    assert not isinstance(numbers, Texts)
    if not len(numbers):
        return numbers.astype(np.int32)
    distinct = groups.group(numbers)
    rows = np.array(
        [row_of.get(number, 0) for number in numbers[distinct.first].tolist()], np.int32
    )
    return picked(rows, distinct.ids)


def _warnings(source: ChromeTrace, gathered: Gathered) -> tuple[str, ...]:
    texts = []
    if source.truncated:
        texts.append(
            f"the file ends in the middle of the trace, after {source.size:,} bytes of JSON and "
            f"{counted(gathered.events, 'event')}; later events are missing"
        )
    if source.mended:
        texts.append(
            f"the report reads {counted(source.mended, 'event')} of malformed JSON (names that "
            "were not escaped) by the structure of the lines"
        )
    if source.unreadable:
        texts.append(
            f"the report leaves out {counted(source.unreadable, 'event')} of malformed JSON"
        )
    undated = gathered.gpu.undated + gathered.cpu.undated
    if undated:
        texts.append(f"the report leaves out {counted(undated, 'event')} without time or duration")
    if unsized := gathered.gpu.unsized:
        texts.append(
            f"the report counts {counted(unsized, 'copy', 'copies')} without a size as 0 bytes"
        )
    return tuple(texts)
